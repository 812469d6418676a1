"""Computes attention to blocks of steps: to all of them summed up, and to the steps of a few that a query chooses.

    pooled = pool(k, block)                                          # (B, G, K // block, d): means of whole blocks
    y, weights = attend_pooled(q, pooled, pool(v, block), past, block)
    blocks = choose(weights, G, Choice(past, block, n, K))           # (B, G, Q, n): those of the highest weights
    z = attend_chosen(q, k, v, blocks, block)                        # to the steps of these blocks, up to the query

These are two of the three branches of native sparse attention (yuan2025, sections 3.3.1 and 3.3.2), with blocks of one
size for both. All heads of queries that share keys choose the same blocks, by the sum of their weights. A block is
summed up once it is whole; the first block, the query's own and the one before it are always among those chosen.
Which blocks are chosen has no gradient: it is learned through the weights of the first branch.

Gathering what some queries chose moves far more memory than attention to all steps with a mask does: a layer on 1,024
steps of 16 blocks took 6 times as long so, on 4,096 steps 3.6 times, on one CPU core. So a mask is used up to DENSE
times as many steps as are chosen; beyond that keys are gathered, for as many queries at a time as memory allows. Both
are computed again for the backward pass. Letters: B batch, H heads of queries, G heads of keys, R = H / G, Q queries,
the last of K steps, d channels of a head, n chosen blocks, N blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from levelfield.ops.attention.softmax import split_spans
from levelfield.ops.opaque import opaque

GATHERED = 1 << 22  # numbers of keys that are gathered at a time
DENSE = 4  # times the chosen steps, up to which attention is computed to all steps with a mask
QUERIES = 256  # whose mask exists at a time


class Choice(NamedTuple):
    """What a choice of blocks depends on beside weights.

    past: steps before the first query. block: steps of a block. most: blocks to choose. total: steps in all.
    """

    past: int
    block: int
    most: int
    total: int


@opaque
def pool(x: Tensor, block: int) -> Tensor:
    """The means of whole blocks of keys or values: (B, G, K, d) -> (B, G, K // block, d)."""
    whole = x.shape[2] // block
    if not whole:  # torch's compiler makes no kernel of what has no elements
        return x[:, :, :0]
    return x[:, :, : whole * block].unflatten(2, (whole, block)).mean(3)


@opaque
def attend_pooled(q: Tensor, k: Tensor, v: Tensor, past: int, block: int) -> tuple[Tensor, Tensor]:
    """Attention to the whole blocks that end at a query or before it: (B, H, Q, d), and its weights, (B, H, Q, N).

    q: (B, H, Q, d), the first at step `past`; k, v: (B, G, N, d). A query before the end of the first block reads 0.
    """
    shared = k.shape[1]
    if not k.shape[2]:  # as in `pool`
        return torch.zeros_like(q), q.new_zeros(*q.shape[:3], 0)
    ends = torch.arange(1, k.shape[2] + 1, device=q.device) * block - 1
    ahead = ends > torch.arange(past, past + q.shape[2], device=q.device)[:, None]
    rows = q.unflatten(1, (shared, -1)).flatten(2, 3)  # (B, G, R Q, d)
    scores = (rows @ k.mT / math.sqrt(q.shape[3])).unflatten(2, (-1, q.shape[2]))
    # The least number in place of -inf: a softmax over nothing would be NaN.
    weights = scores.masked_fill(ahead, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(ahead, 0.0)
    y = weights.flatten(2, 3) @ v
    return y.unflatten(2, (-1, q.shape[2])).flatten(1, 2), weights.flatten(1, 2)


@opaque
def choose(weights: Tensor, shared: int, choice: Choice) -> Tensor:
    """The blocks that each query chooses, (B, G, Q, n), -1 where there are fewer. n is `most`, or all blocks if fewer.

    weights: (B, H, Q, N) of whole blocks, as `attend_pooled` gives them; shared: G. Of blocks with equal weights the
    earlier ones are chosen, as those of a query of zeros: so no choice depends on how many steps come later.
    """
    past, block, most, total = choice
    number, ratio = -(-total // block), weights.shape[1] // shared
    own = torch.arange(past, past + weights.shape[2], device=weights.device)[:, None] // block
    blocks = torch.arange(number, device=weights.device)
    always = (blocks == 0) | (blocks == own) | (blocks == own - 1)
    votes = F.pad(weights.detach().unflatten(1, (shared, ratio)).sum(2), (0, number - weights.shape[3]))
    votes = votes.masked_fill(blocks > own, -1.0).masked_fill(always & (blocks <= own), ratio + 1.0)
    # Not `topk`, which settles ties differently for rows of different lengths.
    values, indices = (part[..., :most] for part in votes.sort(dim=-1, descending=True, stable=True))
    return indices.masked_fill(values < 0, -1)


@opaque
def attend_chosen(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, block: int) -> Tensor:
    """Attention to the steps of chosen blocks, up to the query's own: (B, H, Q, d).

    q: (B, H, Q, d), the last Q of K steps; k, v: (B, G, K, d); blocks: (B, G, Q, n), the query's own among them, and -1
    for none. Equal to `naive_attend_chosen`.
    """
    shared, length, past = k.shape[1], q.shape[2], k.shape[2] - q.shape[2]
    rows = q.unflatten(1, (shared, -1)).transpose(2, 3)  # (B, G, Q, R, d)
    if k.shape[2] <= DENSE * blocks.shape[3] * block:
        return _attend_masked(rows, k, v, blocks, block)
    k, v = (F.pad(x, (0, 0, 0, -x.shape[2] % block)).unflatten(2, (-1, block)) for x in (k, v))
    size = max(1, GATHERED // (len(q) * shared * blocks.shape[3] * block * q.shape[3]))
    out = []
    for start in range(0, length, size):
        some = slice(start, min(start + size, length))
        steps = torch.arange(past + some.start, past + some.stop, device=q.device)
        out.append(_Chosen.apply(_gathered, rows[:, :, some], k, v, blocks[:, :, some], steps))
    return torch.cat(out, 2).transpose(2, 3).flatten(1, 2)


def _attend_masked(rows: Tensor, k: Tensor, v: Tensor, blocks: Tensor, block: int) -> Tensor:
    """`attend_chosen` with a mask for QUERIES of the queries (B, G, Q, R, d) at a time, and the keys up to the last."""
    past, total = k.shape[2] - rows.shape[2], k.shape[2]
    asked = [(start, min(start + QUERIES, rows.shape[2])) for start in range(0, rows.shape[2], QUERIES)]
    seen = [(0, min(-(-(past + end) // block) * block, total)) for _, end in asked]
    out = []
    for some, keys, values, (start, end) in zip(
        split_spans(rows, asked), split_spans(k, seen), split_spans(v, seen), asked, strict=True
    ):
        steps = torch.arange(past + start, past + end, device=k.device)
        out.append(_Chosen.apply(partial(_masked, block=block), some, keys, values, blocks[:, :, start:end], steps))
    return torch.cat(out, 2).transpose(2, 3).flatten(1, 2)


def naive_attend_chosen(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, block: int) -> Tensor:
    """`attend_chosen` by one matrix over all pairs of steps: (B, H, Q, d)."""
    ratio, steps = q.shape[1] // k.shape[1], torch.arange(k.shape[2], device=q.device)
    among = (steps // block == blocks.unsqueeze(-1)).any(3)  # (B, G, Q, K)
    seen = among & (steps <= steps[k.shape[2] - q.shape[2] :, None])
    k, v, seen = (x.repeat_interleave(ratio, 1) for x in (k, v, seen))
    scores = q @ k.mT / math.sqrt(q.shape[3])
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ v


class _Chosen(torch.autograd.Function):
    """`_gathered` or `_masked`, which keeps nothing but its inputs for the backward pass: that computes it again."""

    @staticmethod
    def forward(
        ctx: Any, work: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, steps: Tensor
    ) -> Tensor:
        ctx.work = work
        ctx.save_for_backward(q, k, v, blocks, steps)
        return work(q, k, v, blocks, steps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *inputs, blocks, steps = ctx.saved_tensors
        with torch.enable_grad(), torch.autocast(grads[0].device.type, enabled=False):
            q, k, v = leaves = [x.detach().requires_grad_() for x in inputs]
            y = ctx.work(q, k, v, blocks, steps)
            return None, *torch.autograd.grad(y, leaves, grads[0]), None, None


def _gathered(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, steps: Tensor) -> Tensor:
    """Attention of queries (B, G, q, R, d) at steps (q,) to blocks (B, G, q, n) of k and v, (B, G, N, block, d)."""
    at = blocks.clamp_min(0)
    rows, heads = (torch.arange(n, device=q.device) for n in at.shape[:2])
    keys, values = (x[rows[:, None, None, None], heads[:, None, None], at].flatten(3, 4) for x in (k, v))
    places = at.unsqueeze(-1) * k.shape[3] + torch.arange(k.shape[3], device=q.device)
    seen = (blocks >= 0).unsqueeze(-1) & (places <= steps[:, None, None])
    scores = (q @ keys.mT).to(torch.promote_types(q.dtype, torch.float32)) / math.sqrt(q.shape[4])
    weights = scores.masked_fill(~seen.flatten(3).unsqueeze(3), -math.inf).softmax(-1)
    return weights.to(values.dtype) @ values


def _masked(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, steps: Tensor, block: int) -> Tensor:
    """Attention of queries (B, G, q, R, d) at steps (q,) to blocks (B, G, q, n) of k and v, (B, G, K, d)."""
    ratio, total = q.shape[3], k.shape[2]
    none = -(-total // block)  # a place after the last block
    among = torch.zeros(*blocks.shape[:3], none + 1, dtype=torch.bool, device=q.device)
    among.scatter_(3, torch.where(blocks < 0, none, blocks), True)
    keys_at = torch.arange(total, device=q.device)
    # Gathered: of flags that are repeated and then cut to K, torch's compiler reads wrong ones on a CPU.
    seen = among.gather(3, (keys_at // block).expand(*blocks.shape[:3], -1))  # (B, G, q, K)
    seen = seen & (keys_at <= steps[:, None])
    seen, keys, values = (x.repeat_interleave(ratio, 1) if x.shape[1] > 1 else x for x in (seen, k, v))
    rows = q.transpose(2, 3).flatten(1, 2)  # (B, H, q, d)
    heads = len(q), rows.shape[1], -1, -1
    y = F.scaled_dot_product_attention(rows, keys.expand(heads), values.expand(heads), seen)
    return y.unflatten(1, (-1, ratio)).transpose(2, 3)
