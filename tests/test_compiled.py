"""What torch.compile makes of blocks: the training step of the plain ones, for each mixer, or a run that is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny import MODEL, FirstSymbol, RunningMean, recipe, training_loss
from torch import Tensor, nn

from levelfield import protocols
from levelfield.data.batches import SplitOnDevice
from levelfield.files import read_json
from levelfield.mixers import classes
from levelfield.model import Network
from levelfield.objectives import Classify, heads
from levelfield.rng import generator
from levelfield.run import execute
from levelfield.runs import compiled, store
from levelfield.spec import Block, MixerConfig, Numerics, Run, UserError

TASK = FirstSymbol(length=130)
LENGTHS = (24, 21, 5, 64, 33, 130)  # of the longest sequence of a batch


def network(config: MixerConfig, numerics: Numerics, *, ragged: bool) -> Network:
    """One block of the mixer, in training mode and compiled where numerics say so."""
    model = replace(MODEL, mixers=(config,), depth=1, width=64, block=Block(feedforward=64))
    model = replace(model, causal="causal" in config.directions)
    net = Network(model, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0, numerics=numerics)
    compiled.compile_blocks(net, ragged=ragged)
    return net.train()


def steps(config: MixerConfig, numerics: Numerics) -> Iterator[tuple[Tensor, ...]]:
    """The loss of a training step and the gradients of all parameters, for batches of LENGTHS."""
    net = network(config, numerics, ragged=True)
    for length in LENGTHS:
        split = SplitOnDevice(replace(TASK, length=length).build(None)["train"], torch.device("cpu"))
        batch = split.gather(torch.arange(8))
        loss = training_loss(net, batch, Classify(), TASK.input, generator(0, "mask"))
        yield loss.detach(), *torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)


def gradients_of_one(config: MixerConfig, numerics: Numerics) -> tuple[torch.Tensor, ...]:
    """The gradients of all parameters after a pass over one sequence without padding."""
    net = network(config, numerics, ragged=False)
    symbols = torch.randint(2, 10, (1, 200), generator=torch.Generator().manual_seed(0))  # no ties of NSA's blocks
    hidden_states = net.hidden_states(symbols, None)
    loss = net.head("label", hidden_states, None).square().sum()
    return torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # torch's compiler uses parts of torch that are deprecated
@pytest.mark.parametrize("config", [pytest.param(mixer, id=mixer.label) for mixer in classes()])
def test_compiled_blocks_take_the_steps_of_plain_ones_whatever_the_lengths(config: type[MixerConfig]) -> None:
    """With at most four kernels of one piece of code; torch's own convolution has one for each length."""
    from torch._dynamo import config as dynamo  # takes a second

    kernels = len(LENGTHS) if config.label == "conv" else 4
    found, wanted = (steps(config(), Numerics(compile=on)) for on in (True, False))
    with dynamo.patch(recompile_limit=kernels, fail_on_recompile_limit_hit=True):
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
            for mine, plain in zip(ours[1:], theirs[1:], strict=True):
                torch.testing.assert_close(mine, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # torch's compiler uses parts of torch that are deprecated
@pytest.mark.parametrize("config", [pytest.param(mixer, id=mixer.label) for mixer in classes()])
def test_a_block_compiled_for_one_long_sequence_has_the_gradients_of_the_plain_one(config: type[MixerConfig]) -> None:
    """Of several chunks, each of which is written into its place of the result."""
    found, wanted = (gradients_of_one(config(), Numerics(compile=on)) for on in (True, False))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


class Off(torch.autograd.Function):
    """Leaves values as they are, and makes their gradients 5 % too large."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad * 1.05


def compiled_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[nn.Module], object], dropout: float = 0.0
) -> list[str]:
    """Trains for some steps with blocks that `made` has compiled, and returns the notes of the ledger."""
    monkeypatch.setattr(torch, "compile", lambda block, dynamic: made(block))
    model = replace(MODEL, mixers=(RunningMean(dropout=dropout),), block=replace(MODEL.block, norm="batch"))
    run = Run(TASK, model, protocols.scratch(recipe(6)), 0, Numerics(compile=True))
    execute(run, folder, folder / "data", "cpu")
    return read_json(folder / store.LEDGER)["notes"]


def test_compiled_blocks_are_compared_with_plain_ones_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (said,) = compiled_run(tmp_path / "same", monkeypatch, lambda block: lambda y, mask: block(y, mask))
    assert said == "Compiled blocks had the gradient of the plain ones at the start, to 0e+00 of its norm."
    (said,) = compiled_run(tmp_path / "drawing", monkeypatch, lambda block: block, dropout=0.5)
    assert said.startswith("Compiled blocks were not compared with the plain ones, whose gradient depends on draws")
    with pytest.raises(
        UserError, match=r"^Torch's compiler is wrong about this model: .* off by 0.0\d+ of its norm. L"
    ):
        compiled_run(tmp_path / "backward", monkeypatch, lambda block: lambda y, mask: Off.apply(block(y, mask)))
    with pytest.raises(UserError, match=r"off by inf of its norm\. Leave compile out"):
        compiled_run(tmp_path / "nan", monkeypatch, lambda block: lambda y, mask: block(y, mask) * torch.nan)
    near = partial(compiled._gradient, draw=0)
    monkeypatch.setattr(compiled, "_rounded", lambda *given: near(*given) * 1.03)
    (said,) = compiled_run(tmp_path / "rounded", monkeypatch, lambda block: lambda y, mask: Off.apply(block(y, mask)))
    assert said.startswith("Compiled blocks had the gradient of the plain ones at the start, to 4e-02")


def test_the_comparison_changes_nothing_that_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = []
    for name in ("compared", "not-compared"):
        compiled_run(tmp_path / name, monkeypatch, lambda block: block, dropout=0.1)
        weights.append((tmp_path / name / store.WEIGHTS).read_bytes())
        monkeypatch.setattr("levelfield.run.check_compiled", lambda *given: "")
    assert weights[0] == weights[1]
