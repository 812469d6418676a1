"""One split on a device, and which of its examples each training step sees.

Batches are gathered where the data lies: whole splits sit on the device as raw bytes when they fit, so there are no
worker processes. Order is a function of (seed, step) alone, so a resumed run sees the batches it would have seen:

    split = Loaded(examples, device)
    batch = split.gather(order(seed, step, batch=32, count=len(split)))
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from levelfield.spec import Examples, Input, Tokens, derive_seed

ROOM = 8 << 30  # bytes of one split that may lie on the device; larger ones stay memory-mapped on disk


@dataclass(frozen=True)
class Batch:
    """raw: (B, T) or (B, T, C) as stored, zero beyond each length. lengths: (B,). y: (B,) or (B, dims).

    mask: (B, T) bool, True at real steps, or None where every sequence has the full length.
    """

    raw: Tensor
    lengths: Tensor
    mask: Tensor | None
    y: Tensor

    @property
    def steps(self) -> int:
        """Positions computed, padding included."""
        return self.raw.shape[0] * self.raw.shape[1]


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


class Loaded:
    """The examples of one split, ready to be gathered on `device`."""

    def __init__(self, examples: Examples, device: torch.device) -> None:
        self.examples = examples
        self.device = device
        lengths = examples.lengths
        self.longest = int(lengths.max()) if len(examples) else 0
        self.equal = bool(len(examples) and (lengths == self.longest).all())
        self.resident = examples.x.nbytes <= ROOM
        self.y = _tensor(examples.y, device)
        self.offsets = torch.from_numpy(np.array(examples.offsets))
        self.x = _tensor(examples.x, device) if self.resident else None

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def mean_length(self) -> float:
        return float(self.examples.offsets[-1]) / max(1, len(self))

    def gather(self, indices: Tensor) -> Batch:
        """indices: (B,) int64 on the CPU -> the batch, padded to its longest sequence."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        longest = int(lengths.max())
        steps = torch.arange(longest)
        mask = None if self.equal or bool((lengths == longest).all()) else steps < lengths[:, None]
        places = starts[:, None] + (steps if mask is None else torch.where(mask, steps, 0))
        raw = self._read(places)
        if mask is not None:
            mask = mask.to(self.device)
            raw = raw * mask.reshape(*mask.shape, *[1] * (raw.dim() - 2))
        y = self.y[indices.to(self.device)]
        return Batch(raw, lengths.to(self.device), mask, y)

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


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    return torch.randperm(count, generator=generator)


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    """Copies, because a memory map is read-only; unsigned 16-bit storage becomes 32-bit, which torch can index."""
    wide = np.int32 if array.dtype == np.uint16 else array.dtype
    return torch.from_numpy(np.array(array, dtype=wide)).to(device)
