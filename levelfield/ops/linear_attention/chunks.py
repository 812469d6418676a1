"""Walking along sequences in chunks, several at a time: as many as a CPU's cache holds, or nearly all on other devices.

    for part in segments(batch, length, chunk=64, width=640, device=x.device):
        pieces(x, part)                      # (rows, chunks, heads, size, X) of x: (B, T, H, X)

What is left of the length after whole chunks is a chunk of its own. Parts of the same rows come in order of time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CPU_NUMBERS = 1 << 18  # of the widest array in a part: 1 MiB of float32
DEVICE_NUMBERS = 1 << 26


class Segment(NamedTuple):
    """`chunks` chunks of `size` steps each of some rows; the last may reach beyond the sequence (`pieces` pads it)."""

    rows: slice
    steps: slice
    chunks: int
    size: int
    first: int  # number of its first chunk in the sequence

    @property
    def bounds(self) -> slice:
        """Numbers of the states before, between and after its chunks."""
        return slice(self.first, self.first + self.chunks + 1)


def segments(
    batch: int,
    length: int,
    chunk: int,
    width: int,
    device: torch.device,
    rest_size: Callable[[int], int] = lambda rest: rest,
) -> list[Segment]:
    """Parts of (batch, length) with about so many numbers of `width` a step as a part may have.

    rest_size: the size of the chunk that holds what is left of the length, given the steps in it.
    """
    budget = (CPU_NUMBERS if device.type == "cpu" else DEVICE_NUMBERS) // max(1, chunk * width)
    whole, rest = divmod(length, chunk)
    most = max(1, min(whole, budget))
    rows_at_once = max(1, min(batch, budget // most))
    parts = []
    for top in range(0, batch, rows_at_once):
        rows = slice(top, min(batch, top + rows_at_once))
        for first in range(0, whole, most):
            chunks = min(most, whole - first)
            parts.append(Segment(rows, slice(first * chunk, (first + chunks) * chunk), chunks, chunk, first))
        if rest:
            parts.append(Segment(rows, slice(whole * chunk, length), 1, rest_size(rest), whole))
    return parts


def pieces(x: Tensor, part: Segment) -> Tensor:
    """x: (B, T, H, X) -> (rows, chunks, H, size, X), a view where nothing is padded."""
    cut = x[part.rows, part.steps]
    missing = part.chunks * part.size - cut.shape[1]
    if missing:
        cut = F.pad(cut, (0, 0, 0, 0, 0, missing))
    return cut.unflatten(1, (part.chunks, part.size)).transpose(2, 3)


def place(x: Tensor, part: Segment, into: Tensor) -> None:
    """The way back: x: (rows, chunks, H, size, X) into its place in (B, T, H, X), without what was padded."""
    cut = into[part.rows, part.steps]
    if cut.shape[1] == part.chunks * part.size:
        cut.unflatten(1, (part.chunks, part.size)).copy_(x.transpose(2, 3))
    else:
        cut.copy_(x.transpose(2, 3).flatten(1, 2)[:, : cut.shape[1]])


def count(length: int, chunk: int) -> int:
    """Chunks in so many steps."""
    return -(-length // chunk)
