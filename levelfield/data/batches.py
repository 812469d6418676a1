"""Puts one split on a device and says which of its examples each training step sees.

Batches are gathered where the data is, without worker processes: a split of at most RESIDENT_BYTES sits on the device
(on a CPU, a copy in each process), a larger one on disk. Order is a function of (seed, step) alone, so a resumed run
sees the batches it would have seen:

    split = SplitOnDevice(examples, device)
    batches = Shuffled(seed, examples, batch=32)
    batches = Buckets(seed, examples, batch=32)     # examples of similar length together
    batch = split.gather(batches.order(step))

Letters: B examples of a batch, T steps, C channels, N examples of the split.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from levelfield.spec.examples import Examples
from levelfield.spec.identity import derive_seed
from levelfield.spec.io_types import Input, Tokens
from levelfield.spec.recipe import Recipe

RESIDENT_BYTES = 8 << 30  # of one split, train and val each, however much memory the device has


@dataclass(frozen=True)
class Batch:
    """The examples of one step.

    raw: (S, T) or (S, T, C) as stored, zero beyond each length. lengths: (S,). mask: (S, T) bool, True at real steps,
    or None where every sequence has the full length. S is the number of sequences: B, the number of examples, or B *
    documents where an example has several inputs, which follow one another. y: (B,), (B, dims), or, with `stepwise`,
    (S, T), a target for each step, -1 for none. on_host: the lengths on the CPU, where they are known without waiting
    for the device.
    """

    raw: Tensor
    lengths: Tensor
    mask: Tensor | None
    y: Tensor
    stepwise: bool = False
    on_host: Tensor | None = None

    @property
    def steps(self) -> int:
        """Positions computed, padding included."""
        return self.raw.shape[0] * self.raw.shape[1]

    def computed(self, by_length: bool) -> int:
        """Positions computed, padding included, where examples of different lengths are computed apart or not."""
        return int(self.longest.sum()) * self.documents if by_length else self.steps

    @property
    def longest(self) -> Tensor:
        """Steps of the longest sequence of each example, (B,) on the CPU."""
        lengths = self.lengths.cpu() if self.on_host is None else self.on_host
        return lengths.view(-1, self.documents).amax(1)

    @property
    def documents(self) -> int:
        return len(self.raw) // len(self.y)

    def sequences(self, examples: slice) -> slice:
        """The sequences of some examples, given as a slice with a start and a stop."""
        return slice(examples.start * self.documents, examples.stop * self.documents)

    def part(self, examples: slice) -> Batch:
        """Some of the examples, padded as they are."""
        rows = self.sequences(examples)
        mask = None if self.mask is None else self.mask[rows]
        on_host = None if self.on_host is None else self.on_host[rows]
        raw, lengths, y = self.raw[rows], self.lengths[rows], self.y[examples]
        return replace(self, raw=raw, lengths=lengths, mask=mask, y=y, on_host=on_host)


@dataclass(frozen=True)
class ModelInput:
    """What the model sees of a batch: x as `encode` gives it; masked: (B, T) bool, the hidden steps, or None."""

    x: Tensor
    masked: Tensor | None = None

    def part(self, sequences: slice) -> ModelInput:
        """What the model sees of some sequences of the batch."""
        return ModelInput(self.x[sequences], None if self.masked is None else self.masked[sequences])


def by_length(batch: Batch, shown: ModelInput) -> Iterator[tuple[Batch, ModelInput]]:
    """Yields the examples of each length, (n, longest), and what the model sees of them.

    Only where an example has several sequences is the shorter one of it still padded.
    """
    for longest in batch.longest.unique().tolist():
        found = (batch.longest == longest).nonzero().flatten()
        sequences = _sequences(found, batch.documents)
        examples, rows = found.to(batch.raw.device), sequences.to(batch.raw.device)
        y = batch.y[examples, :longest] if batch.stepwise else batch.y[examples]
        some = replace(
            batch,
            raw=batch.raw[rows, :longest],
            lengths=batch.lengths[rows],
            mask=batch.mask[rows, :longest] if batch.mask is not None and batch.documents > 1 else None,
            y=y,
            on_host=None if batch.on_host is None else batch.on_host[sequences],
        )
        masked = None if shown.masked is None else shown.masked[rows, :longest]
        yield some, ModelInput(shown.x[rows, :longest], masked)


def _sequences(examples: Tensor, documents: int) -> Tensor:
    """The indices of the sequences of the examples at some indices, (n,), in their order: (n * documents,)."""
    return examples if documents == 1 else (examples[:, None] * documents + torch.arange(documents)).flatten()


def encode(raw: Tensor, mask: Tensor | None, spec: Input) -> Tensor:
    """What a model sees: ids (B, T) int64 for Tokens, normalised values (B, T, C) float32 for Signal."""
    if isinstance(spec, Tokens):
        ids = raw.long() + Tokens.OFFSET
        return ids if mask is None else ids.masked_fill(~mask, Tokens.PAD)
    raw = raw.unsqueeze(-1) if raw.dim() == 2 else raw
    shift = torch.tensor(spec.shift, dtype=torch.float32, device=raw.device)
    scale = torch.tensor(spec.scale, dtype=torch.float32, device=raw.device)
    values = (raw.float() - shift) / scale
    return values if mask is None else values * mask.unsqueeze(-1)


class SplitOnDevice:
    """The examples of one split, ready to be gathered on `device`."""

    def __init__(self, examples: Examples, device: torch.device) -> None:
        self.examples = examples
        self.device = device
        lengths = examples.lengths
        self.longest = int(lengths.max()) if len(examples) else 0
        self.equal = bool(len(examples) and (lengths == self.longest).all())
        self.resident = examples.x.nbytes * (2 if examples.x.dtype == np.uint16 else 1) <= RESIDENT_BYTES
        self.y = _tensor(examples.y, device)
        self.offsets = torch.from_numpy(np.array(examples.offsets))
        self.x = _tensor(examples.x, device) if self.resident else None

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def mean_length(self) -> float:
        return float(self.examples.offsets[-1]) / max(1, len(self))

    def gather(self, indices: Tensor) -> Batch:
        """The batch of the examples at indices: (B,) int64 on the CPU, padded to its longest sequence."""
        documents = self.examples.documents
        each = _sequences(indices, documents)
        starts = self.offsets[each]
        lengths = self.offsets[each + 1] - starts
        longest = int(lengths.max())
        steps = torch.arange(longest)
        mask = None if self.equal or bool((lengths == longest).all()) else steps < lengths[:, None]
        places = starts[:, None] + (steps if mask is None else torch.where(mask, steps, 0))
        raw = self._read(places)
        if mask is not None:
            mask = mask.to(self.device)
            raw = raw * mask.reshape(*mask.shape, *[1] * (raw.dim() - 2))
        y = self.y[(places if self.examples.stepwise else indices).to(self.device)]
        if self.examples.stepwise and mask is not None:
            y = y.masked_fill(~mask, -1)
        return Batch(raw, lengths.to(self.device), mask, y, stepwise=self.examples.stepwise, on_host=lengths)

    def _read(self, places: Tensor) -> Tensor:
        if self.x is not None:
            return self.x[places.to(self.device)]
        return _tensor(self.examples.x[places.numpy()], self.device)


def order(seed: int, step: int, *, batch: int, count: int) -> Tensor:
    """The examples of one step: (batch,) int64. Epochs are seeded permutations laid end to end; none is cut short."""
    first, wanted, parts = step * batch, batch, []
    while wanted:
        epoch, at = divmod(first, count)
        part = _permutation(seed, epoch, count)[at : at + wanted]
        parts.append(part)
        first, wanted = first + len(part), wanted - len(part)
    return torch.cat(parts)


class Batches(ABC):
    """Defines which of `count` examples each training step sees, epoch after epoch, each with every example once."""

    count: int

    @abstractmethod
    def order(self, step: int) -> Tensor:
        """The examples of one step: (B,) int64."""

    @abstractmethod
    def epoch(self, step: int) -> range:
        """The steps of the epoch that this one is part of."""

    @abstractmethod
    def steps(self, epochs: float) -> int:
        """How many steps this number of epochs takes, rounded up."""

    @abstractmethod
    def share(self, step: int, units: np.ndarray, total: int) -> float:
        """How much the mean loss of a step's batch counts, so that every unit of an epoch counts the same; 1 on
        average.

        units: (N,), how many units each example has, where a unit is what that loss is a mean over. total: their sum,
        which takes a pass over the split.
        """


class Shuffled(Batches):
    """Batches of one size, as `order` lays them end to end. A window of an epoch leaves out what fills no batch."""

    def __init__(self, seed: int, examples: Examples, batch: int) -> None:
        self.seed, self.count, self.batch = seed, len(examples), batch

    def order(self, step: int) -> Tensor:
        return order(self.seed, step, batch=self.batch, count=self.count)

    def epoch(self, step: int) -> range:
        whole = max(1, self.count // self.batch)
        return range(step // whole * whole, (step // whole + 1) * whole)

    def steps(self, epochs: float) -> int:
        return _rounded_up(epochs * self.count / self.batch)

    def share(self, step: int, units: np.ndarray, total: int) -> float:
        """All batches count the same: which examples are in one has nothing to do with their lengths."""
        return 1.0


class Buckets(Batches):
    """Batches of similar lengths, each within a budget of padded steps.

    The budget is `batch` times an example's mean number of steps. Every epoch is a seeded permutation of the split, cut
    into pools of POOL * batch examples; a pool is sorted by length and cut where the next example would exceed the
    budget, and the epoch's batches are shuffled. So a batch of short sequences has more examples and one of long ones
    fewer; a sequence longer than the budget has its own. How much a batch's mean loss counts is in proportion
    (`share`), or long sequences would count for more.
    """

    POOL = 50

    def __init__(self, seed: int, examples: Examples, batch: int) -> None:
        self.seed, self.count, self.pool = seed, len(examples), self.POOL * batch
        self.padded = torch.from_numpy(np.ascontiguousarray(examples.longest)) * examples.documents
        self.budget = batch * int(examples.offsets[-1]) / max(1, len(examples))
        self.ends = [0]  # steps made by the end of each epoch that has been laid out
        self.laid, self.current = -1, ()  # the epoch that was laid out last, and its batches

    def order(self, step: int) -> Tensor:
        epoch = self._number(step)
        return self._laid_out(epoch)[step - self.ends[epoch]]

    def epoch(self, step: int) -> range:
        number = self._number(step)
        return range(self.ends[number], self.ends[number + 1])

    def steps(self, epochs: float) -> int:
        whole = int(round(epochs, 9))
        while len(self.ends) < whole + 2:
            self._next()
        return self.ends[whole] + _rounded_up((epochs - whole) * (self.ends[whole + 1] - self.ends[whole]))

    def share(self, step: int, units: np.ndarray, total: int) -> float:
        return float(units[self.order(step).numpy()].sum() * len(self.epoch(step)) / max(1, total))

    def _number(self, step: int) -> int:
        """The epoch that the step is part of."""
        while self.ends[-1] <= step:
            self._next()
        return bisect_right(self.ends, step) - 1

    def _next(self) -> None:
        self.ends.append(self.ends[-1] + len(self._laid_out(len(self.ends) - 1)))

    def _laid_out(self, epoch: int) -> tuple[Tensor, ...]:
        if epoch != self.laid:
            pools = _permutation(self.seed, epoch, self.count).split(self.pool)
            batches = [part for pool in pools for part in self._cut(pool)]
            generator = torch.Generator().manual_seed(derive_seed(self.seed, "buckets", epoch))
            shuffled = torch.randperm(len(batches), generator=generator).tolist()
            self.laid, self.current = epoch, tuple(batches[i] for i in shuffled)
        return self.current

    def _cut(self, pool: Tensor) -> Iterator[Tensor]:
        """Cuts a pool into batches from the longest sequence on, so that the first of each tells how many fit."""
        ranked = pool[self.padded[pool].argsort(descending=True, stable=True)]
        at = 0
        while at < len(ranked):
            fit = max(1, int(self.budget // max(1, int(self.padded[ranked[at]]))))
            yield ranked[at : at + fit]
            at += fit


def batches_of(seed: int, examples: Examples, recipe: Recipe) -> Batches:
    """The batches of a split in the order that the recipe asks for."""
    return (Buckets if recipe.bucketed else Shuffled)(seed, examples, recipe.batch)


def _rounded_up(steps: float) -> int:
    return int(np.ceil(round(steps, 9)))


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    return torch.randperm(count, generator=generator)


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    """A copy on the device, as a memory map is read-only; uint16 becomes int32, twice as large: torch can index it."""
    wide = np.int32 if array.dtype == np.uint16 else array.dtype
    return torch.from_numpy(np.array(array, dtype=wide)).to(device)
