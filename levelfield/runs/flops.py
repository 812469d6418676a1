"""Counts the FLOPs of training: forward and backward of real batches, from the operations that the layers dispatch.

One place, `ops/arithmetic.py`, says what counts as an operation. A step costs what is done once for a batch, such as
the kernel of a state-space model, and what is done for each sequence; counting two batches tells the two apart:

    cost(net, 1024, Classify(), task)           # Cost(fixed=..., each=...): a step of S sequences is fixed + S * each
    costs = Costs.of(net, examples.lengths, Classify(), task)
    Meter(costs, examples, recipe, seed).work(500)      # Work(dispatched=..., useful=...) of training's first 500 steps

Where lengths vary, batches are formed as training forms them. The cost is counted at a few lengths and interpolated
between them, so attention pays for the square of each length, and padding is paid for like everything else. The useful
part is what the same steps would cost if every sequence were computed at its own length, and nothing again.
Letters: T steps of a sequence, S sequences of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from levelfield.data.batches import Batches, batches_of, encode
from levelfield.objectives import Trainable
from levelfield.ops.arithmetic import Operations, ended, fourier
from levelfield.spec import Examples, Numerics, Recipe, Task, Tokens
from levelfield.spec.numerics import PLAIN

if TYPE_CHECKING:
    from levelfield.model import Network

LONG = 4096  # steps beyond which no tensor with values is passed through a layer
LARGE = 2_000_000_000  # operations beyond which a layer is counted without values, where that is known to be right
FEW, MORE = 2, 3  # sizes of the batches counted; a batch of one would lack sums over it, which all larger ones have
BATCHES = 500  # batches that are formed to see their lengths; later ones are taken to be like them
NODES = 3  # lengths at which a cost is counted where many occur
AGREES = 0.03  # of a count, by which an extrapolation may miss it
CACHED = 4096  # costs of layers that are kept


@dataclass(frozen=True)
class Cost:
    """FLOPs of a training step at one length: those done once for a batch, and those done for each sequence.

    The transforms are the part of either that Fourier transforms take. uncounted: operators that were dispatched and
    count as nothing, as no rule says what they take.
    """

    fixed: float
    each: float
    fixed_transforms: float = 0.0
    each_transforms: float = 0.0
    uncounted: frozenset[str] = frozenset()

    def of(self, sequences: int) -> float:
        return self.fixed + self.each * sequences

    def __add__(self, other: Cost) -> Cost:
        parts = (a + b for a, b in zip(self.parts, other.parts, strict=True))
        return Cost(*parts, uncounted=self.uncounted | other.uncounted)

    def __mul__(self, factor: float) -> Cost:
        return Cost(*(factor * a for a in self.parts), uncounted=self.uncounted)

    @property
    def parts(self) -> tuple[float, float, float, float]:
        return self.fixed, self.each, self.fixed_transforms, self.each_transforms


@dataclass(frozen=True)
class Work:
    """FLOPs of some training steps, with padding and what is recomputed; those that the sequences alone need; and the
    examples seen."""

    dispatched: float
    useful: float
    examples: float


@dataclass(frozen=True)
class Costs:
    """The costs of a training step at a few lengths, in rising order, from which those between follow.

    again: at each length, what computing the blocks again in the backward pass adds; empty where that is not done.
    """

    lengths: tuple[int, ...]
    costs: tuple[Cost, ...]
    again: tuple[Cost, ...] = ()

    @staticmethod
    def of(net: Network, lengths: np.ndarray, objective: Trainable, task: Task, most: int | None = None) -> Costs:
        """Counts a network, which must lie on the CPU, and recomputes its blocks where its numerics say so.

        lengths: (N,), those of the sequences that occur. most: as in `cost`.
        """
        masked, counted = bool((lengths != lengths[0]).any()), nodes(lengths)
        costs = tuple(cost(net, n, objective, task, masked=masked, most=most) for n in counted)
        again = tuple(_again(net, n, masked, most) for n in counted) if net.numerics.recompute else ()
        return Costs(tuple(counted), costs, again)

    @property
    def whole(self) -> Costs:
        """Returns the costs with what is computed again."""
        return Costs(self.lengths, tuple(a + b for a, b in zip(self.costs, self.again, strict=True)))

    @property
    def uncounted(self) -> str:
        """Returns a sentence where operators were dispatched that count as nothing, and "" otherwise."""
        names = sorted(set[str]().union(*(each.uncounted for each in self.costs)))
        return f"FLOPs lack those of operators that are not counted: {', '.join(names)}." if names else ""

    def at(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the fixed FLOPs and those of each sequence, (n,) both, at each of the lengths (n,).

        FLOPs per step of the sequence are interpolated linearly between the lengths that were counted, which is exact
        for what grows with T and T^2. Transforms exist in some sizes only, so theirs are interpolated per operation of
        a transform.
        """
        distinct, places = np.unique(lengths, return_inverse=True)
        parts = np.array([c.parts for c in self.costs]).T
        found = []
        for whole, transforms in ((parts[0], parts[2]), (parts[1], parts[3])):
            each = np.interp(distinct, self.lengths, (whole - transforms) / self.lengths) * distinct
            if transforms.any():
                sizes, known = (np.array([_transform(t) for t in ts]) for ts in (distinct, self.lengths))
                each += np.interp(distinct, self.lengths, transforms / known) * sizes
            found.append(each[places])
        return found[0], found[1]


@dataclass(frozen=True)
class Meter:
    """Tells what training on these examples by this recipe costs.

    seed: that of the phase, from which training draws its batches too. numerics: into how many parts these are split,
    in all processes together, and whether each length in a part is computed by itself.
    """

    costs: Costs
    examples: Examples
    recipe: Recipe
    seed: int
    numerics: Numerics = PLAIN

    @cached_property
    def batches(self) -> Batches:
        return batches_of(self.seed, self.examples, self.recipe)

    @cached_property
    def per_step(self) -> Work:
        """The work of a mean optimizer step."""
        whole = self.work(BATCHES)
        return Work(whole.dispatched / BATCHES, whole.useful / BATCHES, whole.examples / BATCHES)

    def work(self, steps: int) -> Work:
        """Returns the work of the first `steps` optimizer steps.

        What is done once for a batch is done in each part of it that has an example, and for each length in a part
        where that is computed by itself. Blocks that are computed again count as dispatched, and not as useful.
        """
        once = self._work(steps, self.costs)
        return replace(once, dispatched=self._work(steps, self.costs.whole).dispatched) if self.costs.again else once

    def _work(self, steps: int, costs: Costs) -> Work:
        documents, parts = self.examples.documents, self.numerics.parts
        if not steps:
            return Work(0.0, 0.0, 0.0)
        if len(costs.lengths) == 1 and not self.recipe.bucketed:
            cost = costs.costs[0]
            total = steps * (parts * cost.fixed + self.recipe.batch * documents * cost.each)
            return Work(total, total, steps * self.recipe.batch)
        taken = min(steps, BATCHES)
        formed = [each for step in range(taken) for each in self._formed(step)]
        padded, sequences = np.array([to for to, _ in formed]), np.array([some.size for _, some in formed])
        (fixed, each), own = costs.at(padded), costs.at(np.concatenate([some for _, some in formed], axis=None))[1]
        dispatched = (fixed + np.maximum(sequences, documents) * each).sum()
        useful, scale = fixed[sequences > 0].sum() + own.sum(), steps / taken
        return Work(float(scale * dispatched), float(scale * useful), float(scale * sequences.sum() / documents))

    def _formed(self, step: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yields what is computed at once in a step, the length that it is padded to and the lengths (n, documents) of
        its sequences: each part of a batch, or the examples of one length in it. A process that no example is left for
        computes the first one, which is none of its own: n is 0."""
        lengths, alone = self._lengths[self.batches.order(step).numpy()], self.numerics.by_length
        parts, count, most = self.numerics.parts, len(lengths), lengths.max()
        for start, stop in pairwise(count * part // parts for part in range(parts + 1)):
            some = lengths[start:stop]
            longest = some.max(1) if alone else np.full(len(some), most)
            yield from ((length, some[longest == length]) for length in np.unique(longest))
        for _ in range(count, self.numerics.nproc):
            yield lengths[0].max() if alone else most, lengths[:0]

    @cached_property
    def _lengths(self) -> np.ndarray:
        """Steps of each sequence of each example, (N, documents)."""
        return self.examples.lengths.reshape(-1, self.examples.documents)


def nodes(lengths: np.ndarray) -> list[int]:
    """Returns the lengths to count at: the only one that occurs, or NODES of them from a short one to the longest."""
    longest = int(lengths.max())
    short = max(1, int(np.quantile(lengths, 0.05)))
    return np.unique(np.geomspace(short, longest, NODES).round().astype(int)).tolist()


def _transform(length: int) -> int:
    from levelfield.ops.compiled.fft import size_for  # imports numba

    return fourier(size_for(int(length)))


def cost(
    net: Network, length: int, objective: Trainable, task: Task, masked: bool = False, most: int | None = None
) -> Cost:
    """Counts a training step on sequences of this length. Layers of one mixer that do the same are counted once.

    masked: whether batches hold padding. Layers are counted on tensors with values where that takes little time, and
    else on tensors without. What an opaque mixer does without values is not known, so it is counted with values up to
    LONG steps, and beyond as the a T + b T^2 that fits LONG / 2 and LONG steps.

    most: for an estimate, the steps beyond which layers are extrapolated where that can be done; None for a count.
    """
    return sum(_blocks(net, length, masked, most), start=_around(net, length, objective, task, masked))


def _again(net: Network, length: int, masked: bool, most: int | None) -> Cost:
    """Counts what is added where each block is computed again in the backward pass, as far as its gradients need it."""
    twice = sum(_blocks(net, length, masked, most, again=True), start=Cost(0.0, 0.0))
    return sum((once * -1 for once in _blocks(net, length, masked, most)), start=twice)


def _blocks(net: Network, length: int, masked: bool, most: int | None, *, again: bool = False) -> Iterator[Cost]:
    """Yields the cost of each residual block, as of `cost`. again: as in training that recomputes it."""
    for layer in range(len(net.blocks)):
        mixer = net.model.mixers[layer % len(net.model.mixers)]
        of_layer = partial(_layer, net, layer, masked=masked, again=again)
        if mixer.opaque and length > LONG:
            yield _beyond(of_layer, length)
        elif most is not None and mixer.receptive_field is None and not mixer.opaque:
            yield _estimated(of_layer, length, most)
        else:
            yield of_layer(length)


def _estimated(of_layer: Callable[[int], Cost], length: int, most: int) -> Cost:
    """Extrapolates the cost of a layer from `most` steps and half as many, where the same rule leads from a half and a
    quarter of them to what is counted at `most`; else, as where windows are computed in blocks, counts it."""
    if length <= most:
        return of_layer(length)
    quarter, half, whole = (of_layer(most // part) for part in (4, 2, 1))
    tried = _grown(quarter, half, most // 2, most)
    right = all(np.isclose(a, b, rtol=AGREES) for a, b in zip(tried.parts[:2], whole.parts[:2], strict=True))
    return _grown(half, whole, most, length) if right else of_layer(length)


def _grown(half: Cost, whole: Cost, most: int, length: int) -> Cost:
    """Returns the a T + b T^2 that fits most / 2 and `most` steps, at `length`; transforms grow with their sizes."""
    few, many = _transforms(half), _transforms(whole)
    rest = _fitted(half + few * -1, whole + many * -1, most, length)
    return rest + many * (_transform(length) / _transform(most))


def _transforms(cost: Cost) -> Cost:
    """Returns the part of a cost that is Fourier transforms."""
    return Cost(cost.fixed_transforms, cost.each_transforms, cost.fixed_transforms, cost.each_transforms)


def _beyond(of_layer: Callable[[int], Cost], length: int) -> Cost:
    """Extrapolates the cost of a layer as a T + b T^2 from LONG / 2 and LONG steps."""
    return _fitted(of_layer(LONG // 2), of_layer(LONG), LONG, length)


def _fitted(half: Cost, whole: Cost, most: int, length: int) -> Cost:
    """Returns the a T + b T^2 that fits most / 2 and `most` steps, at `length`."""
    square = (whole + half * -2) * (2 / most**2)
    return (whole * (1 / most) + square * -most) * length + square * length**2


_KNOWN: dict[Any, Cost] = {}


def _layer(net: Network, layer: int, length: int, *, masked: bool, again: bool) -> Cost:
    """Counts one residual block. Blocks of the same kind are counted once in a process."""
    model, block = net.model, net.blocks[layer]
    mixer, shapes = model.mixers[layer % len(model.mixers)], tuple(value.shape for value in block.parameters())
    at = None if type(mixer).__module__.startswith("levelfield.") else layer  # what other code may decide by
    kind = mixer, at, model.block, model.width, model.causal, shapes, length, masked, again
    if kind not in _KNOWN:
        values = mixer.opaque or _affordable(model.width, sum(map(torch.Size.numel, shapes)), length)

        def work(copy: nn.Module, sequences: int) -> None:
            x = torch.randn(sequences, length, model.width).requires_grad_()
            mask = _mask(sequences, length) if masked else None
            passed = partial(checkpoint, copy, use_reentrant=False, preserve_rng_state=False) if again else copy
            ended([passed(x, mask)]).backward()

        while len(_KNOWN) >= CACHED:
            _KNOWN.pop(next(iter(_KNOWN)))
        _KNOWN[kind] = _measured(block, work, 1, values)
    return _KNOWN[kind]


def _around(net: Network, length: int, objective: Trainable, task: Task, masked: bool) -> Cost:
    """Counts encoder, last norm and heads. What a loss takes beyond them is not counted."""
    shape = (length,) if isinstance(task.input, Tokens) else (length, task.input.channels)

    def work(copy: Any, sequences: int) -> None:
        raw = torch.zeros(sequences, *shape, dtype=torch.uint8 if isinstance(task.input, Tokens) else torch.float32)
        mask = _mask(sequences, length) if masked else None
        hidden_states = copy.hidden_states(encode(raw, None, task.input), mask)
        ended([copy.head(part.key, hidden_states, mask) for part in objective.parts]).backward()

    blocks, net.blocks = net.blocks, nn.ModuleList()
    try:
        size = sum(value.numel() for value in net.parameters())
        return _measured(net, work, task.documents, _affordable(net.model.width, size, length))
    finally:
        net.blocks = blocks


def _affordable(width: int, parameters: int, length: int) -> bool:
    """Returns whether the most expensive layer there is, attention with its maps, is counted fast with values."""
    return length <= LONG and MORE * length * (28 * length * width + 6 * parameters) <= LARGE


def _mask(sequences: int, length: int) -> Tensor:
    """Returns the mask (S, T) of a batch in which one sequence is a step shorter than the others."""
    mask = torch.ones(sequences, length, dtype=torch.bool)
    return mask if length == 1 else mask.index_put((torch.tensor(0), torch.tensor(length - 1)), torch.tensor(False))


def _measured(module: nn.Module, work: Callable[[Any, int], None], unit: int, values: bool) -> Cost:
    """Counts work(copy, sequences) for two sizes of batch, and returns what is done once and for each sequence.

    unit: sequences in an example. The work is done on a copy of the module in training mode, since a pass changes batch
    statistics and leaves gradients.
    """
    with torch.random.fork_rng(devices=[]), _without_onednn():
        if values:
            copy = _unmasked(deepcopy(module).train())
            counts = [_counted(copy, partial(work, copy, unit * size)) for size in (FEW, MORE)]
        else:
            with FakeTensorMode(allow_non_fake_inputs=True) as fake:
                # Plain copies of buffers would need values.
                buffers = {id(buffer): fake.from_tensor(buffer) for buffer in module.buffers()}
                copy = _unmasked(deepcopy(module, buffers).train())
                counts = [_counted(copy, partial(work, copy, unit * size)) for size in (FEW, MORE)]
    few, more = (np.array([count.total, count.transforms], dtype=float) for count in counts)
    each = (more - few) / ((MORE - FEW) * unit)
    fixed = few - FEW * unit * each
    parts = float(fixed[0]), float(each[0]), float(fixed[1]), float(each[1])
    return Cost(*parts, uncounted=frozenset(counts[0].uncounted | counts[1].uncounted))


def _counted(copy: nn.Module, work: Callable[[], None]) -> Operations:
    """Returns the operations of some work."""
    copy.zero_grad(set_to_none=True)  # as training does: nothing is added to earlier gradients
    with Operations() as operations:
        work()
    return operations


class _Whole(nn.Module):
    """A norm that ignores the mask, because choosing the real steps by a mask takes values."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.norm(x, None)


def _unmasked(copy: nn.Module) -> nn.Module:
    """Returns the module with its norms made to ignore the mask."""
    for name in ("norm", "norm2"):
        norm = getattr(copy, name, None)
        if isinstance(norm, nn.Module) and not isinstance(norm, _Whole):
            setattr(copy, name, _Whole(norm))
    return copy


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Switches oneDNN off, so that a recurrent layer is counted as matrix products, and not as one opaque operator."""
    before = torch.backends.mkldnn.set_flags(False)[0]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before)
