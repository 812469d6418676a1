"""Softmax attention through fused kernels: over everything, over blocks of steps, over a sliding window, or with
scores that fall with the distance.

    attend(q, k, v, None, causal=True)                     # (B, H, T, d) each
    attend_blocks(q, k, v, mask, False, block=4096)        # own block and the ones beside it
    attend_window(q, k, v, None, True, window=2048)        # itself and the 2047 steps before
    attend_sloped(q, k, v, mask, True, slopes)             # a slope for each head

What lies outside of blocks or windows is never computed. Keys and values may have fewer heads than queries, G, which
then serve H / G of them each. In the causal direction the queries may be fewer than the keys: they are the last steps,
and the keys before them come from a state.
Letters: B batch, H heads, Q queries, K keys, d channels of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

CHUNK = 256  # the fewest queries of a window that are worth a call of their own


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(q k^T / sqrt(d)) v. q: (B, H, Q, d); k, v: (B, G, K, d); mask: (B, K) of the keys -> (B, H, Q, d)."""
    queries, keys = q.shape[2], k.shape[2]
    if causal and 1 < queries < keys:
        past = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        return _softmax(q, k, v, past)
    return _softmax(q, k, v, None if mask is None else visible(mask), causal and queries == keys)


def attend_blocks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, block: int) -> Tensor:
    """`attend` where a step sees its own block and the ones beside it: one call for each block of queries.

    The first and the last block have one neighbour; a causal step sees the block before and its own up to itself.
    The first key is the first of a block.
    """
    length, parts = k.shape[2], []
    past = length - q.shape[2]
    for start in range(past // block * block, length, block):
        end = min(start + block, length)
        seen = slice(max(0, start - block), end if causal else min(end + block, length))
        some = q[:, :, max(start, past) - past : end - past]
        parts.append(attend(some, k[:, :, seen], v[:, :, seen], None if mask is None else mask[:, seen], causal))
    return torch.cat(parts, 2)


def attend_window(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, window: int) -> Tensor:
    """`attend` where a step sees itself, window - 1 steps before it and, unless causal, as many after it."""
    length, parts = k.shape[2], []
    past = length - q.shape[2]
    steps = torch.arange(length, device=q.device)
    for start in range(past, length, max(window, CHUNK)):
        end = min(start + max(window, CHUNK), length)
        seen = slice(max(0, start - window + 1), end if causal else min(end + window - 1, length))
        ahead = steps[seen] - steps[start:end, None]
        near = (ahead > -window) & (ahead < (1 if causal else window))
        if mask is not None:
            near = (near & mask[:, None, seen]) | (ahead == 0)  # a padded step sees itself rather than nothing
        part = _softmax(q[:, :, start - past : end - past], k[:, :, seen], v[:, :, seen], near.unsqueeze(-3))
        parts.append(part)
    return torch.cat(parts, 2)


def attend_sloped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, slopes: Tensor) -> Tensor:
    """`attend` with scores lowered by slope * distance. slopes: (H,). Memory grows with K, not with Q * K."""
    length, parts = k.shape[2], []
    past = length - q.shape[2]
    steps = torch.arange(length, device=q.device)
    hidden = None if mask is None else ~visible(mask)
    for start in range(past, length, CHUNK):
        end = min(start + CHUNK, length)
        seen = slice(0, end if causal else length)
        ahead = steps[seen] - steps[start:end, None]
        bias = (ahead.abs() * -slopes[:, None, None]).to(q.dtype)
        if causal:
            bias = bias.masked_fill(ahead > 0, -torch.inf)
        if hidden is not None:
            bias = bias.masked_fill(hidden[..., seen], -torch.inf)
        parts.append(_softmax(q[:, :, start - past : end - past], k[:, :, seen], v[:, :, seen], bias))
    return torch.cat(parts, 2)


def visible(mask: Tensor) -> Tensor:
    """Which keys may be looked at: (B, K) -> (B, 1, 1, K).

    A sequence that is all padding looks at all of it: a softmax over nothing is not a number, in value and gradient.
    """
    empty = ~mask.any(-1, keepdim=True)
    return (mask | empty)[:, None, None, :]


def _softmax(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool = False) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(q, k, v, seen, is_causal=causal, enable_gqa=grouped)
