"""Cuts sequences into spans of chunks that are computed together.

On a CPU a span holds as many chunks as fit its cache; on other devices it holds nearly all of them:

    for span in chunk_spans((batch, length), chunk=64, width=640, device=x.device):
        to_chunks(x, span)                      # (rows, chunks, heads, size, X) of x: (B, T, H, X)

Steps left over after the whole chunks form a chunk of their own. Spans of the same rows come in order of time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CPU_BLOCK_ELEMENTS = 1 << 18  # in the widest array of a span: 1 MiB of float32
DEVICE_BLOCK_ELEMENTS = 1 << 26


class ChunkSpan(NamedTuple):
    """Consecutive chunks of `size` steps in some rows of a batch.

    The last chunk may reach beyond the sequence; `to_chunks` pads it with zeros.
    """

    rows: slice
    steps: slice
    chunks: int
    size: int
    first: int  # index of its first chunk in the sequence

    @property
    def bounds(self) -> slice:
        """Indices of the states before, between and after its chunks."""
        return slice(self.first, self.first + self.chunks + 1)


def suited_chunk(keys: int, device: torch.device) -> int:
    """The steps of a chunk that suit heads of so many key channels.

    Per head and step, the pairs of a chunk take as many numbers as it has steps, and the state as many as keys: on a
    CPU, chunks much longer than that lose by pairs what they save on states (docs/speed-chunks.md). Other devices take
    long ones, as few large products are faster there.
    """
    if device.type != "cpu" or keys > 64:
        return 64
    return 16 if keys <= 16 else 32


def chunk_spans(
    shape: tuple[int, int],
    chunk: int,
    width: int,
    device: torch.device,
    rest_size: Callable[[int], int] = lambda rest: rest,
) -> list[ChunkSpan]:
    """Spans that cover `shape`, (batch, steps), each of about as many elements as the device takes at a time.

    width: elements per step of the widest array. rest_size: maps the steps left over after whole chunks to the size of
    the chunk that holds them.
    """
    batch, length = shape
    budget = (CPU_BLOCK_ELEMENTS if device.type == "cpu" else DEVICE_BLOCK_ELEMENTS) // max(1, chunk * width)
    whole, rest = divmod(length, chunk)
    most = max(1, min(whole, budget))
    rows_at_once = max(1, min(batch, budget // most))
    spans = []
    for top in range(0, batch, rows_at_once):
        rows = slice(top, min(batch, top + rows_at_once))
        for first in range(0, whole, most):
            chunks = min(most, whole - first)
            spans.append(ChunkSpan(rows, slice(first * chunk, (first + chunks) * chunk), chunks, chunk, first))
        if rest:
            spans.append(ChunkSpan(rows, slice(whole * chunk, length), 1, rest_size(rest), whole))
    return spans


def to_chunks(x: Tensor, span: ChunkSpan) -> Tensor:
    """(B, T, H, X) -> (rows, chunks, H, size, X), a view where nothing is padded."""
    cut = x[span.rows, span.steps]
    missing = span.chunks * span.size - cut.shape[1]
    if missing:
        cut = F.pad(cut, (0, 0, 0, 0, 0, missing))
    return cut.unflatten(1, (span.chunks, span.size)).transpose(2, 3)


def from_chunks(x: Tensor, span: ChunkSpan, into: Tensor) -> None:
    """Writes x, (rows, chunks, H, size, X), to the span's place in `into`, (B, T, H, X), without the padding."""
    cut = into[span.rows, span.steps]
    if cut.shape[1] == span.chunks * span.size:
        cut.unflatten(1, (span.chunks, span.size)).copy_(x.transpose(2, 3))
    else:
        cut.copy_(x.transpose(2, 3).flatten(1, 2)[:, : cut.shape[1]])


def chunk_count(length: int, chunk: int) -> int:
    """The number of chunks that `length` steps fill, the last one perhaps in part."""
    return -(-length // chunk)


def whole_chunks(x: Tensor, chunk: int) -> Tensor:
    """Cuts a whole sequence: (B, T, H, X) -> (B, m, H, c, X), the last chunk padded with zeros.

    Under a delta rule such steps change nothing: they neither decay nor write.
    """
    return F.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % chunk)).unflatten(1, (-1, chunk)).transpose(2, 3)
