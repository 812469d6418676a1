"""Custom operators: what torch's own checker says of them, and that calling one does not import torch's compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from levelfield.mixers import find
from levelfield.ops.custom import NAMESPACE, custom_op

OPERATORS = {
    "convolve", "convolve_backward", "decay_per_key", "decay_per_key_backward", "depthwise_conv",
    "depthwise_conv_backward", "diagonal", "low_rank", "low_rank_backward", "moments", "selective",
    "selective_backward", "states", "states_backward",
}  # fmt: skip
CALLERS = ("s4", "mega", "lru", "s5", "sgconv", "mamba", "gla", "rwkv6")  # mixers that together call all of them


class _Calls(TorchDispatchMode):
    """Keeps the arguments of the first call of each of our operators."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, tuple[Any, tuple[Any, ...]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == NAMESPACE:
            self.seen.setdefault(func._opname, (func, tuple(_copy(x) for x in args)))
        return func(*args, **(kwargs or {}))


def _copy(x: Any) -> Any:
    return x.detach().clone() if isinstance(x, Tensor) else x


@pytest.fixture(scope="module")
def calls() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """By operator, the arguments with which a training step of some mixer calls it."""
    x = torch.randn(2, 20, 64, generator=torch.Generator().manual_seed(0))
    with _Calls() as found:
        for name in CALLERS:
            layer = find(name).build(64, causal=True, layer=0, generator=torch.Generator().manual_seed(0))
            layer(x.clone().requires_grad_(), None).sum().backward()
    return found.seen


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_torch_finds_no_fault_in_an_operator(calls: dict[str, Any], name: str) -> None:
    """It changes no argument, its results are no views of one, and without values it says their shapes and types."""
    operator, args = calls[name]
    torch.library.opcheck(operator, args, test_utils=("test_schema", "test_faketensor"))


def test_every_operator_is_listed(calls: dict[str, Any]) -> None:
    assert calls.keys() == OPERATORS


def test_a_new_operator_has_a_kernel_a_device_and_a_gradient() -> None:
    @custom_op("test_square")
    def square(x: Tensor) -> Tensor:
        return x.square()

    @square.register_kernel("cpu")
    def _(x: Tensor) -> Tensor:
        return x * x + 1

    @square.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    def keep(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    square.register_autograd(lambda ctx, grad: 2 * ctx.saved_tensors[0] * grad, keep)
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    y = square(x)
    y.sum().backward()
    assert y.tolist() == [5.0, 10.0]
    assert x.grad is not None and x.grad.tolist() == [4.0, 6.0]
    assert square(torch.ones(3, device="meta")).shape == (3,)
    torch.library.opcheck(square.overload, (x,))


def test_neither_operators_nor_runs_import_the_compiler_or_algebra(tmp_path: Path) -> None:
    """Torch's compiler takes seconds, and its algebra half of one. The run has each of what else would import them: an
    embedding, an optimizer and a count of FLOPs; a checkpoint saves and restores an optimizer too."""
    code = (
        "import sys; from pathlib import Path; from dataclasses import replace\n"
        "import tiny, torch; from levelfield.mixers import find; from levelfield.protocols import scratch\n"
        "from levelfield.run import execute; from levelfield.spec import Run; from levelfield.train import AdamW\n"
        "layer = find('s4').build(16, causal=True, layer=0, generator=torch.Generator().manual_seed(0))\n"
        "layer(torch.randn(2, 20, 16), None).sum().backward()\n"
        "model = replace(tiny.MODEL, mixers=(find('spade'),))\n"
        "run = Run(tiny.FirstSymbol(), model, scratch(tiny.recipe(steps=2)), 0)\n"
        "execute(run, Path('run'), Path('data'), 'cpu')\n"
        "optimizer = AdamW(layer.parameters()); optimizer.load_state_dict(optimizer.state_dict())\n"
        "print(*{'torch._dynamo', 'sympy'} & set(sys.modules))"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1] / "support"), *sys.path])
    words, env = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path, env=env)
    assert done.stdout.strip() == ""
