"""Computes softmax attention near each step with a bias from a table: windows or chunks with a learned bias.

    keys      |....before....|......block......|..after..|
    queries                  |......block......|             every block of queries has the same table, (H, Q, K)

The table holds the bias of each distance, and -inf at keys that are not visible. Fused kernels give no gradient of the
table, and keeping all scores for the backward pass would take `block + before + after` numbers per step and head. Here
both passes make a block of scores in cache, use it and drop it.

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

from levelfield.ops.opaque import opaque


@opaque
def attend_table(q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: Tensor | None, before: int) -> Tensor:
    """Attention of q, (B, H, Q, d), the last Q of T steps, to the keys that the table covers: (B, H, Q, d).

    k, v: (B, H, T, d); table: (H or 1, block, before + block + after), whose first row belongs to every step whose
    index is a multiple of the block, and whose column `before` belongs to that step's own key; mask: (B, T), True at
    real keys, or None. A padded step sees itself even so. Products are in the type of q; scores, their softmax and all
    sums over blocks are in float32 or wider, for a bias gets its gradient from every step, and bfloat16 would soon add
    nothing to such a sum. Equal to `naive_attend_table`.
    """
    table = table.to(torch.promote_types(q.dtype, torch.float32)).expand(q.shape[1], -1, -1)
    y: Tensor = _Table.apply(q / math.sqrt(q.shape[3]), k, v, table, mask, before)  # pyright: ignore[reportAssignmentType]
    return y


def naive_attend_table(q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: Tensor | None, before: int) -> Tensor:
    """`attend_table` by one matrix over all pairs of steps: (B, H, Q, d)."""
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
    """The table of a window, 0 for steps less than `window` away and -inf for others.

    Its shape is (block, window - 1 + block) if causal, else (block, window - 1 + block + window - 1).
    """
    away = distances(block, window - 1, 0 if causal else window - 1)
    return torch.zeros(away.shape).masked_fill((away <= -window) | (away >= (1 if causal else window)), -math.inf)


def chunk_table(chunk: int, causal: bool) -> Tensor:
    """The table of a chunk whose steps see each other or, if causal, those before: (chunk, chunk), 0 or -inf."""
    away = distances(chunk, 0, 0)
    return torch.zeros(away.shape).masked_fill(away > (0 if causal else chunk), -math.inf)


def distances(block: int, before: int, after: int) -> Tensor:
    """The key's index less the query's for every entry of a table: (block, before + block + after) int64."""
    return torch.arange(-before, block + after) - torch.arange(block).unsqueeze(1)


@dataclass(frozen=True)
class _Part:
    """Sequences, queries and keys that are computed at once, and their place in the table."""

    batch: slice
    rows: slice  # of q
    seen: slice  # of k and v
    table_rows: slice
    table_columns: slice
    own: int  # index of the first query less that of the first key


class _Table(torch.autograd.Function):
    """Attention and its gradient, a part at a time: (B, H, Q, d). table: (H, block, columns)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: Tensor | None, before: int) -> Tensor:
        ctx.save_for_backward(q, k, v, table, mask)
        ctx.before = before
        out = torch.empty_like(q)
        with torch.autocast(q.device.type, enabled=False):
            for part in _parts(q, k, table, before):
                weights = _weights(q, k, table, mask, part).to(v.dtype)
                out[part.batch, :, part.rows] = weights @ v[part.batch, :, part.seen]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, table, mask = ctx.saved_tensors
        grad_q = torch.empty_like(q)
        grad_k, grad_v = (torch.zeros_like(x, dtype=table.dtype) for x in (k, v))
        grad_table = torch.zeros_like(table, memory_format=torch.contiguous_format)
        with torch.autocast(q.device.type, enabled=False):
            for part in _parts(q, k, table, ctx.before):
                here, near = (part.batch, slice(None), part.rows), (part.batch, slice(None), part.seen)
                weights = _weights(q, k, table, mask, part)
                grad_v[near] += weights.to(v.dtype).mT @ grads[0][here]
                grad_weights = (grads[0][here] @ v[near].mT).to(table.dtype)
                grad = torch.ops.aten._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
                grad_q[here] = grad.to(k.dtype) @ k[near]
                grad_k[near] += grad.to(q.dtype).mT @ q[here]
                if ctx.needs_input_grad[3]:
                    total = grad[0] if len(grad) == 1 else grad.sum(0)
                    grad_table[:, part.table_rows, part.table_columns] += total
        grad_k, grad_v = grad_k.to(k.dtype), grad_v.to(v.dtype)
        return grad_q, grad_k, grad_v, grad_table if ctx.needs_input_grad[3] else None, None, None


def _parts(q: Tensor, k: Tensor, table: Tensor, before: int) -> Iterator[_Part]:
    """Yields a block of steps at a time: of one sequence on a CPU, of all sequences on other devices."""
    (block, columns), keys = table.shape[1:], k.shape[2]
    past, many = keys - q.shape[2], 1 if q.device.type == "cpu" else len(q)
    for row in range(0, len(q), many):
        for start in range(past // block * block, keys, block):
            first, end = max(start, past), min(start + block, keys)
            low, high = max(0, start - before), min(keys, start - before + columns)
            yield _Part(
                batch=slice(row, row + many),
                rows=slice(first - past, end - past),
                seen=slice(low, high),
                table_rows=slice(first - start, end - start),
                table_columns=slice(low - start + before, high - start + before),
                own=first - low,
            )


def _weights(q: Tensor, k: Tensor, table: Tensor, mask: Tensor | None, part: _Part) -> Tensor:
    """The attention weights of a part, in the type of the table: (b, H, rows, keys)."""
    scores = (q[part.batch, :, part.rows] @ k[part.batch, :, part.seen].mT).to(table.dtype)
    scores += table[:, part.table_rows, part.table_columns]
    if mask is not None:
        hidden = ~mask[part.batch, None, None, part.seen].expand(-1, 1, scores.shape[2], -1)
        own = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(part.own).tril(part.own)
        scores.masked_fill_(hidden & ~own, -math.inf)
    return torch.softmax(scores, -1)
