"""Computes block-sparse softmax attention, where a table lists the blocks of keys that each block of queries sees.

    attend_block_sparse(q, k, v, real, table=table, listed=listed)

The listed blocks are gathered and read by one call, so the cost is linear in the length for a table of bounded width.
Letters: B batch, H heads, M blocks of queries, N blocks of keys, S columns of the table, b steps per block, d channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from levelfield.ops.opaque import opaque

BITS = 32  # of the integers that are hashed


@opaque
def attend_block_sparse(q: Tensor, k: Tensor, v: Tensor, real: Tensor, table: Tensor, listed: Tensor) -> Tensor:
    """Attention of each block of queries, (B, H, M, b, d), to the blocks of keys listed for it: (B, H, M, b, d).

    k, v: (B, H, N, b, d); real: (B, N, b) bool, the keys that may be seen; table: (B, H, M, S) int64, block indices
    from 0 to N - 1; listed: bool of the same shape, True where an entry counts. The entries of a row that count must
    differ from each other. Queries that see no real key see all keys of their row.
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


@opaque
def sample_blocks(keys: Tensor, taken: Tensor, blocks: Tensor) -> Tensor:
    """One block for each key, uniform among those of 0 to blocks - 1 that are not taken; `blocks` where all are.

    keys: (...) int64, uniform in 0 to 2^32 - 1; taken: (..., S) int64, ignored where it is not below `blocks` and
    otherwise without repeats; blocks: int64, of a shape that broadcasts to (...).
    """
    free = blocks - (taken < blocks.unsqueeze(-1)).sum(-1)
    pick = (keys * free) >> BITS
    for block in taken.sort(-1).values.unbind(-1):  # `pick` counts free blocks only: step over each taken block
        pick = pick + (pick >= block)
    return torch.where(free > 0, pick, blocks)


def hash_integers(x: Tensor) -> Tensor:
    """Hashes integers of 0 to 2^32 - 1 one to one into the same range, which gives random numbers of the same shape."""
    for _ in range(2):
        x = ((x >> 16 ^ x) * 0x45D9F3B) & (2**BITS - 1)
    return x >> 16 ^ x
