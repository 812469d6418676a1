"""Softmax attention between blocks of steps, where a table lists the blocks of keys that each block of queries sees.

    attend_listed(q, k, v, real, table, listed)

The listed blocks are gathered and read by one call, so cost is linear in the length for a table of bounded width.
Letters: B batch, H heads, M blocks of queries, N blocks of keys, S places in the table, b steps of a block, d channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

BITS = 32


def attend_listed(q: Tensor, k: Tensor, v: Tensor, real: Tensor, table: Tensor, listed: Tensor) -> Tensor:
    """q: (B, H, M, b, d); k, v: (B, H, N, b, d); real: (B, N, b) bool, the keys that may be seen -> (B, H, M, b, d).

    table: (B, H, M, S) int64, each in 0..N-1, and listed: the same shape, bool, where an entry counts. Those of a row
    that count differ from each other. Queries that see no real key look at all keys of their row.
    """
    batch, heads, blocks, size, dim = k.shape
    rows = torch.arange(batch * heads, device=k.device).view(batch, heads, 1, 1) * blocks + table
    k, v = (x.reshape(-1, size * dim).index_select(0, rows.flatten()) for x in (k, v))
    rows = torch.arange(batch, device=k.device).view(batch, 1, 1, 1) * blocks + table
    seen = real.reshape(-1, size).index_select(0, rows.flatten()).view(*table.shape, size) & listed.unsqueeze(-1)
    seen = seen.reshape(batch, heads * q.shape[2], 1, -1)
    seen = seen | ~seen.any(-1, keepdim=True)
    k, v = (x.view(batch, heads * q.shape[2], -1, dim) for x in (k, v))
    return scaled_dot_product_attention(q.flatten(1, 2), k, v, seen).view(q.shape)


def drawn(keys: Tensor, taken: Tensor, blocks: Tensor) -> Tensor:
    """One block for each key, uniform among those from 0 to blocks - 1 that are not taken; `blocks` where all are.

    keys: (...) int64, uniform in 0..2^32-1; taken: (..., S) int64, different where they are below `blocks`, and ignored
    elsewhere; blocks: int64, of a shape that broadcasts to (...).
    """
    free = blocks - (taken < blocks.unsqueeze(-1)).sum(-1)
    pick = (keys * free) >> BITS
    for place in taken.sort(-1).values.unbind(-1):  # counted among the free ones so far: step over those taken
        pick = pick + (pick >= place)
    return torch.where(free > 0, pick, blocks)


def scattered(x: Tensor) -> Tensor:
    """Integers in 0..2^32-1 to others of them that look random, one to one: a hash, for draws at any index."""
    for _ in range(2):
        x = ((x >> 16 ^ x) * 0x45D9F3B) & (2**BITS - 1)
    return x >> 16 ^ x
