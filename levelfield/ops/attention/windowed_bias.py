"""Softmax attention near each step, with scores shifted by a table: windows or chunks with a learned bias.

    keys      |....before....|......block......|..after..|
    queries                  |......block......|             every block of queries has the same table, (H, Q, K)

The table holds what is added for each distance, and -inf where not to look. A table with a gradient rules out the
fused kernels, and keeping all scores for the backward takes `block + before + after` numbers a step and head; here both
passes make a block of scores in cache, use it and drop it.

    table = window_table(window=128, causal=True, block=128)               # (128, 255): 0 or -inf
    y = attend_table(q, k, v, table + bias, None, before=127)              # bias: (H, 128, 255)

Letters: B batch, H heads, T steps, d channels of a head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def attend_table(q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: Tensor | None, before: int) -> Tensor:
    """q: (B, H, Q, d), the last Q of T steps; k, v: (B, H, T, d); mask: (B, T), True at real keys, or None.

    table: (H or 1, block, before + block + after); its first row is of every step whose number is a multiple of the
    block, its column `before` of that step's own key. -> (B, H, Q, d). A padded step sees itself whatever the mask
    says. Equal to `naive_attend_table`.
    """
    table = table.to(q.dtype).expand(q.shape[1], -1, -1)
    y: Tensor = _Table.apply(q / math.sqrt(q.shape[3]), k, v, table, mask, before)  # pyright: ignore[reportAssignmentType]
    return y


def naive_attend_table(q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: Tensor | None, before: int) -> Tensor:
    """`attend_table` through one matrix over all pairs of steps."""
    (queries, keys), block = (q.shape[2], k.shape[2]), table.shape[1]
    shift = torch.full((q.shape[1], queries, keys), -math.inf, dtype=q.dtype)
    for i in range(keys - queries, keys):
        for j in range(keys):
            column = j - i // block * block + before
            if 0 <= column < table.shape[2]:
                shift[:, i - keys + queries, j] = table[:, i % block, column]
    scores = q @ k.mT / math.sqrt(q.shape[3]) + shift
    if mask is not None:
        own = torch.eye(keys, dtype=torch.bool)[keys - queries :]
        scores = scores.masked_fill(~mask[:, None, None, :] & ~own, -math.inf)
    return scores.softmax(-1) @ v


def window_table(window: int, causal: bool, block: int) -> Tensor:
    """For steps less than `window` away: (block, window - 1 + block, and unless causal window - 1), 0 or -inf."""
    away = distances(block, window - 1, 0 if causal else window - 1)
    return torch.zeros(away.shape).masked_fill((away <= -window) | (away >= (1 if causal else window)), -math.inf)


def chunk_table(chunk: int, causal: bool) -> Tensor:
    """For the steps of the same chunk: (chunk, chunk), 0 or -inf."""
    away = distances(chunk, 0, 0)
    return torch.zeros(away.shape).masked_fill(away > (0 if causal else chunk), -math.inf)


def distances(block: int, before: int, after: int) -> Tensor:
    """Key's number less query's, of every entry of a table: (block, before + block + after) int64."""
    return torch.arange(-before, block + after) - torch.arange(block).unsqueeze(1)


@dataclass(frozen=True)
class _Piece:
    """Sequences, queries and keys that are taken at once, and where in the table they are."""

    batch: slice
    rows: slice  # of q
    seen: slice  # of k and v
    high: slice  # rows of the table
    wide: slice  # columns of the table
    own: int  # number of the first query less that of the first key


class _Table(torch.autograd.Function):
    """table: (H, block, columns)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: Tensor | None, before: int) -> Tensor:
        ctx.save_for_backward(q, k, v, table, mask)
        ctx.before = before
        out = torch.empty_like(q)
        with torch.autocast(q.device.type, enabled=False):
            for piece in _pieces(q, k, table, before):
                weights = _weights(q, k, table, mask, piece)
                out[piece.batch, :, piece.rows] = weights @ v[piece.batch, :, piece.seen]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, table, mask = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_table = torch.zeros_like(table, memory_format=torch.contiguous_format)
        with torch.autocast(q.device.type, enabled=False):
            for piece in _pieces(q, k, table, ctx.before):
                here, near = (piece.batch, slice(None), piece.rows), (piece.batch, slice(None), piece.seen)
                weights = _weights(q, k, table, mask, piece)
                grad_v[near] += weights.mT @ grads[0][here]
                pull = grads[0][here] @ v[near].mT
                pull = torch.ops.aten._softmax_backward_data(pull, weights, -1, weights.dtype)
                grad_q[here] = pull @ k[near]
                grad_k[near] += pull.mT @ q[here]
                if ctx.needs_input_grad[3]:
                    grad_table[:, piece.high, piece.wide] += pull[0] if len(pull) == 1 else pull.sum(0)
        return grad_q, grad_k, grad_v, grad_table if ctx.needs_input_grad[3] else None, None, None


def _pieces(q: Tensor, k: Tensor, table: Tensor, before: int) -> Iterator[_Piece]:
    """On a CPU a block of one sequence at a time, elsewhere of all of them."""
    (block, columns), keys = table.shape[1:], k.shape[2]
    past, many = keys - q.shape[2], 1 if q.device.type == "cpu" else len(q)
    for row in range(0, len(q), many):
        for start in range(past // block * block, keys, block):
            first, end = max(start, past), min(start + block, keys)
            low, high = max(0, start - before), min(keys, start - before + columns)
            yield _Piece(
                slice(row, row + many),
                slice(first - past, end - past),
                slice(low, high),
                slice(first - start, end - start),
                slice(low - start + before, high - start + before),
                first - low,
            )


def _weights(q: Tensor, k: Tensor, table: Tensor, mask: Tensor | None, piece: _Piece) -> Tensor:
    """(b, H, rows, keys)."""
    scores = q[piece.batch, :, piece.rows] @ k[piece.batch, :, piece.seen].mT
    scores += table[:, piece.high, piece.wide]
    if mask is not None:
        hidden = ~mask[piece.batch, None, None, piece.seen].expand(-1, 1, scores.shape[2], -1)
        own = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(piece.own).tril(piece.own)
        scores.masked_fill_(hidden & ~own, -math.inf)
    return torch.softmax(scores, -1)
