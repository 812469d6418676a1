"""What a run costs, counted by one function for every model.

FLOPs are counted from the operators one example's forward and backward pass really dispatches: matrix products,
convolutions, attention, Fourier transforms. Elementwise work and custom kernels are not counted, for anyone. torch's
own counter does the first two; it counts zero for products added in place, attention on a CPU and every Fourier
transform, so those rules are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from levelfield.batches import encode
from levelfield.objectives import Trainable, training_loss
from levelfield.ops import accelerated
from levelfield.seeding import generator
from levelfield.spec import Model, Task

if TYPE_CHECKING:
    from levelfield.batches import Batch
    from levelfield.model import Net

LONG = 4096  # steps up to which FLOPs are counted by passing the example through the network
LARGE = 2_000_000_000  # parameters times steps


def _fft(shape: Sequence[int], dims: Sequence[int], *_: Any, out_shape: Sequence[int], **__: Any) -> int:
    """Complex transform: 5 N log2 N real operations per row."""
    size = math.prod(shape[d] for d in dims)
    return int(5 * math.prod(shape) * math.log2(max(2, size)))


def _rfft(shape: Sequence[int], dims: Sequence[int], *_: Any, out_shape: Sequence[int], **__: Any) -> int:
    """Real to complex: half of the complex transform."""
    return _fft(shape, dims, out_shape=out_shape) // 2


def _irfft(shape: Sequence[int], dims: Sequence[int], *_: Any, out_shape: Sequence[int], **__: Any) -> int:
    """Complex to real: counted on the real side."""
    return _fft(out_shape, dims, out_shape=out_shape) // 2


def _attention(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], dropout: float = 0.0, causal: bool = False, **_: Any
) -> int:
    """Two products of (T, D) by (D, S); a causal one does half of it."""
    batch, heads, length, width = query
    total = 2 * batch * heads * length * key[-2] * (width + value[-1])
    return total // 2 if causal else total


def _attention_backward(
    grad: Sequence[int],
    query: Sequence[int],
    key: Sequence[int],
    value: Sequence[int],
    out: Sequence[int],
    logsumexp: Sequence[int],
    dropout: float = 0.0,
    causal: bool = False,
    **_: Any,
) -> int:
    """Five products where the forward pass has two."""
    return _attention(query, key, value, dropout, causal) * 5 // 2


def _triangular(a: Sequence[int], b: Sequence[int], *_: Any, **__: Any) -> int:
    """a: (..., T, T) of which half is zero, b: (..., T, K)."""
    return math.prod(b) * a[-1]


def _added(total: Sequence[int], a: Sequence[int], b: Sequence[int], **_: Any) -> int:
    """a: (..., M, K) by b: (..., K, N), added to what is there: torch has a rule for new tensors alone."""
    return 2 * math.prod(a) * b[-1]


def _vector(a: Sequence[int], *_: Any, **__: Any) -> int:
    """A matrix by a vector."""
    return 2 * math.prod(a)


_RULES = {
    torch.ops.aten.addmm_: _added,
    torch.ops.aten.baddbmm_: _added,
    torch.ops.aten.linalg_solve_triangular: _triangular,
    torch.ops.aten.mv: _vector,
    torch.ops.aten._fft_r2c: _rfft,
    torch.ops.aten._fft_c2r: _irfft,
    torch.ops.aten._fft_c2c: _fft,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


def flops_per_example(net: Net, batch: Batch, objective: Trainable, task: Task) -> float:
    """Forward and backward, per example of `batch`, which must lie on the CPU as `net` must. Gradients are cleared.

    Beyond LONG steps, and for LARGE networks, where a pass would take a CPU many seconds, the operators are counted on
    tensors without values. What opaque mixers do to those is unknown: beyond LONG steps it is a T + b T^2 there,
    through the counts at LONG / 2 and LONG steps.
    """
    length = batch.raw.shape[1]
    if any(mixer.opaque for mixer in net.model.mixers):
        return (_count if length <= LONG else _fit)(net, batch, objective, task)
    large = parameters(net)["parameters"] * length > LARGE
    return (_count_without_values if length > LONG or large else _count)(net, batch, objective, task)


def _count_without_values(net: Net, batch: Batch, objective: Trainable, task: Task) -> float:
    """Of trunk and heads, as nothing in a loss is counted anyway; of layers of one mixer and equal shapes, one."""
    x = encode(batch.raw, None, task.input)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, torch.random.fork_rng(devices=[]), _without_onednn():
        buffers = {id(buffer): fake.from_tensor(buffer) for buffer in net.buffers()}  # plain copies of them need values
        copy, shape = deepcopy(net, buffers).train(), fake.from_tensor(torch.cat([x, x]))
        blocks, copy.blocks = copy.blocks, nn.ModuleList()

        def around() -> Tensor:
            features = copy.features(shape, None)
            return torch.stack([copy.head(part.key, features, None).sum() for part in objective.parts])

        total, known = _operations(around), {}
        for layer, block in enumerate(blocks):
            mixer = net.model.mixers[layer % len(net.model.mixers)]
            kind = mixer, tuple(value.shape for value in block.parameters())
            if kind not in known:
                y = torch.zeros(*shape.shape[:2], net.model.width, requires_grad=True)
                known[kind] = _operations(partial(block, y, None))
            total += known[kind]
    return total / (2 * len(batch.y))


def _operations(forward: Callable[[], Tensor]) -> int:
    """And of the backward."""
    with FlopCounterMode(display=False, custom_mapping=_RULES) as counter:
        forward().sum().backward()
    return counter.get_total_flops()


def _fit(net: Net, batch: Batch, objective: Trainable, task: Task) -> float:
    length = batch.raw.shape[1]
    half, whole = (_count(net, _crop(batch, n), objective, task) for n in (LONG // 2, LONG))
    square = (whole - 2 * half) / (LONG**2 / 2)
    return (whole / LONG - square * LONG) * length + square * length**2


def _count(net: Net, batch: Batch, objective: Trainable, task: Task) -> float:
    """On a copy, for a pass in training mode moves batch statistics; two examples, for one has no batch statistics."""
    copy = deepcopy(net).train()
    twice = replace(batch, **{f.name: _twice(getattr(batch, f.name)) for f in fields(batch)})
    with torch.random.fork_rng(devices=[]), _without_onednn():
        total = _operations(lambda: training_loss(copy, twice, objective, task.input, generator(0, "flops")))
    return total / len(twice.y)


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Then a recurrent layer is the matrix products it is made of, which are counted, and not one opaque operator."""
    before = torch.backends.mkldnn.set_flags(False)[0]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before)


def _twice(value: Tensor | None) -> Tensor | None:
    return None if value is None else torch.cat([value, value])


def _crop(batch: Batch, length: int) -> Batch:
    mask = None if batch.mask is None else batch.mask[:, :length]
    cut = replace(batch, raw=batch.raw[:, :length], lengths=batch.lengths.clamp(max=length), mask=mask)
    stepwise = batch.y.shape == batch.raw.shape[:2] and not batch.y.is_floating_point()
    return replace(cut, y=batch.y[:, :length]) if stepwise else cut


def parameters(net: Net) -> dict[str, int]:
    """Trainable real numbers, two for a complex one: all, those of the heads, and those of the trunk, which is all but
    heads and the hidden flag."""
    sizes = {name: p.numel() * (2 if p.is_complex() else 1) for name, p in net.named_parameters() if p.requires_grad}
    heads = sum(n for name, n in sizes.items() if name.startswith("heads."))
    flag = sizes.get("encoder.hidden", 0)
    total = sum(sizes.values())
    return {"parameters": total, "parameters_trunk": total - heads - flag, "parameters_heads": heads}


def state_size(model: Model, length: int) -> int | None:
    """Numbers carried past step `length` by all layers of the causal model; None where a mixer does not declare it."""
    configs = [model.mixers[layer % len(model.mixers)] for layer in range(model.depth)]
    sizes = [config.state_size(model.width, length) for config in configs]
    return None if any(s is None for s in sizes) else sum(s for s in sizes if s is not None)


def match_width(model: Model, parameters_of: Any, target: int, multiple: int = 8) -> Model:
    """The model at the width whose parameter count is nearest to `target`.

    parameters_of: Model -> int. Widths are multiples of `multiple`, so that heads and groups divide them.
    """
    low, high = multiple, 2 * multiple
    while parameters_of(replace(model, width=high)) < target:
        low, high = high, high * 2
    while high - low > multiple:
        middle = (low + high) // 2 // multiple * multiple
        low, high = (middle, high) if parameters_of(replace(model, width=middle)) < target else (low, middle)
    sized = [replace(model, width=w) for w in (low, high)]
    return min(sized, key=lambda m: abs(parameters_of(m) - target))


def peak_memory(device: torch.device) -> dict[str, float]:
    """The most memory this run held on a GPU, in MiB; absent on a CPU, where a process keeps no count of one run."""
    if device.type != "cuda":
        return {}
    return {"peak_memory_mb": round(torch.cuda.max_memory_allocated(device) / 2**20, 1)}


def new_kernels() -> list[str]:
    """Which kernels ran, or were refused and why, since this was last asked; nothing where all was plain."""
    notes = accelerated.notes()
    accelerated.forget()
    return notes


def all_kernels(phases: Sequence[dict[str, Any]]) -> str:
    """In the phases and since: "plain", or the notes of `new_kernels`."""
    notes = {note for phase in phases for note in phase.get("kernels", [])}
    return "; ".join(sorted(notes.union(new_kernels()))) or "plain"


def total(phases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The phases' costs added up; tuning trials are those of the phase that had most."""
    keys = ("examples", "tokens", "padding", "steps", "flops", "wall_s")
    summed = {key: sum(phase[key] for phase in phases) for key in keys}
    return summed | {"tuning_trials": max((phase["tuning_trials"] for phase in phases), default=0)}
