"""Computes linear attention with decay over levels of the past: a memory for each, weighted by every step anew.

    y_t = sum_{s <= t} w_t[level(t, s)] exp(L_t - L_s) (q_t . k_s) v_s,     L_t = log_decay_1 + .. + log_decay_t

per head (guo2025, section 3). A step is at level 0 of itself, and s at level l of t where bit l - 1 is
the highest that differs in their numbers, counted from 0. So level l is a block of 2^(l - 1) steps, a node of the
Fenwick tree, and the further away, the larger the blocks:

    t = 13    0 1 2 3 4 5 6 7 | 8 9 10 11 | 12 | 13
    level            4        |     3     |  1 |  0         level 2 is empty, as bit 1 of 13 is not set

After n steps there is a memory S_b, (K, V), for each bit b of n that is set: the sum over 2^b steps. A block of 2^b
steps, where n is a multiple of 2^b, finds each of them at level b + 1 whichever of its steps looks, and is then added
as a binary number is: memories of equal size become one of twice the size. One step at a time this is a recurrence;
blocks of CHUNK steps, and smaller ones at the ends, make products of matrices of it:

    y, past = level_attention(Steps(q, k, v, log_decay, weights))
    more, past = level_attention(later, past)                            # goes on where it stopped

Letters: B batch, T steps, H heads, G groups of heads with the same q and k, R = H / G, K and V channels of a head's
keys and values, W weights, c steps of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from levelfield.ops.layers.underflow import LOG_UNDERFLOW, decay_factor, forgets_all
from levelfield.ops.opaque import opaque

CHUNK = 64  # steps of the largest block, a power of two


class Steps(NamedTuple):
    """What the steps bring: (B, T, G, K) twice, (B, T, H, V), (B, T, H), none above 0, and (B, T, H, W).

    Levels from the last weight on share it.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    weights: Tensor


class Past(NamedTuple):
    """What is left of the first n steps: a memory for each bit of n, (B, bits, H, K, V), zero where it is not set."""

    memory: Tensor
    steps: int


@opaque
def level_attention(steps: Steps, past: Past | None = None, chunk: int = CHUNK) -> tuple[Tensor, Past]:
    """The outputs, (B, T, H, V), and what later steps need, in float32 or wider. past: None where there is none.

    Equal to `naive_level_attention`.
    """
    wide, groups, length = torch.promote_types(steps.q.dtype, torch.float32), steps.q.shape[2], steps.v.shape[1]
    with torch.autocast(steps.q.device.type, enabled=False):
        q, k, *rest = (part.to(wide).transpose(1, 2) for part in steps)
        v, log_decay, weights = (part.unflatten(1, (groups, -1)) for part in rest)
        # Where a step's decay is below rounding, what is computed for its gradient is rounding alone.
        log_decay = torch.where(forgets_all(log_decay), log_decay.detach(), log_decay)
        start, memories = _memories(past, groups)
        sizes = list(_block_sizes(start, start + length, chunk))
        parts = (q.unsqueeze(2), k.unsqueeze(2), v, log_decay.unsqueeze(-1), weights)
        out = []
        for block in zip(*(part.split(sizes, 3) for part in parts), strict=True):
            out.append(_read(Steps(*block), memories))
            memories = _passed(Steps(*block), memories)
        y, end = torch.cat(out, 3), start + length
        nothing = torch.zeros_like(next(iter(memories.values())))
        memory = torch.stack([memories.get(bit, nothing) for bit in range(end.bit_length())], 1)
    return y.flatten(1, 2).transpose(1, 2), Past(memory.flatten(2, 3), end)


def naive_level_attention(steps: Steps) -> tuple[Tensor, Past]:
    """`level_attention` from the first step on, by all pairs of steps, (B, T, H, V), and a sum for each memory."""
    length, heads, last = steps.v.shape[1], steps.v.shape[2], steps.weights.shape[3] - 1
    q, k = (part.repeat_interleave(heads // part.shape[2], 2) for part in steps[:2])
    total = steps.log_decay.cumsum(1)
    rows = []
    for t in range(length):
        levels = [min((t ^ s).bit_length(), last) for s in range(t + 1)]
        weights = steps.weights[:, t, :, levels] * (total[:, t, :, None] - total[:, : t + 1].mT).exp()  # (B, H, t + 1)
        rows.append(torch.einsum("bhs,bhk,bshk,bshv->bhv", weights, q[:, t], k[:, : t + 1], steps.v[:, : t + 1]))
    kept = k * (total[:, -1:] - total).exp().unsqueeze(-1)
    memories = []
    for bit in range(length.bit_length()):
        first = length >> bit + 1 << bit + 1
        block = slice(first, first + (length & 1 << bit))  # of no steps, where the bit is not set
        memories.append(torch.einsum("bshk,bshv->bhkv", kept[:, block], steps.v[:, block]))
    return torch.stack(rows, 1), Past(torch.stack(memories, 1), length)


def _memories(past: Past | None, groups: int) -> tuple[int, dict[int, Tensor]]:
    """How many steps there were, and the memories of its set bits: (B, G, R, K, V) each."""
    if past is None:
        return 0, {}
    each = past.memory.unflatten(2, (groups, -1)).unbind(1)
    return past.steps, {bit: memory for bit, memory in enumerate(each) if past.steps >> bit & 1}


def _block_sizes(start: int, end: int, largest: int) -> Iterator[int]:
    """Yields the sizes of blocks from `start` to `end`: powers of two, each a divisor of where its block begins."""
    while start < end:
        aligned = start & -start or largest
        size = min(largest, aligned, 1 << (end - start).bit_length() - 1)
        yield size
        start += size


def _read(block: Steps, memories: dict[int, Tensor]) -> Tensor:
    """The outputs of a block's steps, (B, G, R, c, V), from each other and from the memories before them.

    block: q and k, (B, G, 1, c, K); v, (B, G, R, c, V); log_decay, (B, G, R, c, 1); weights, (B, G, R, c, W).
    """
    q, k, v, log_decay, weights = block
    size, last = v.shape[3], weights.shape[4] - 1
    # Sums are float64: the difference of two large sums must not lose the small decays between them.
    total = log_decay.double().cumsum(3)
    at = torch.arange(size, device=q.device)
    powers = 1 << torch.arange(size.bit_length(), device=q.device)
    levels = ((at.unsqueeze(1) ^ at).unsqueeze(-1) >= powers).sum(-1).clamp(max=last)
    # Above the diagonal exponents are positive; they are clamped to 0 and then masked out.
    decays = (total - total.mT).to(v.dtype).clamp(LOG_UNDERFLOW, 0).exp()
    pairs = weights.gather(4, levels.expand(*weights.shape[:4], size)) * decays
    y = (q @ k.mT * pairs.tril()) @ v
    if memories:
        before = weights * decay_factor(total, v.dtype)
        for bit, memory in memories.items():
            level = min(bit + 1, last)
            y = y + before[..., level : level + 1] * (q @ memory)
    return y


def _passed(block: Steps, memories: dict[int, Tensor]) -> dict[int, Tensor]:
    """The memories after a block, as `_read` takes it: the block's own is added to them as a bit to a binary number."""
    total = block.log_decay.double().cumsum(3)
    after, whole = (decay_factor(x, block.v.dtype) for x in (total[..., -1:, :] - total, total[..., -1:, :]))
    memories = {bit: memory * whole for bit, memory in memories.items()}
    own, bit = block.k.mT @ (block.v * after), block.v.shape[3].bit_length() - 1
    while bit in memories:
        own, bit = own + memories.pop(bit), bit + 1
    return {**memories, bit: own}
