"""Softmax attention through fused kernels: over everything, over blocks of steps, over a sliding window, or with
scores that fall with the distance.

    attend(q, k, v, None, causal=True)                     # (B, H, T, d) each
    attend_blocks(q, k, v, mask, False, block=4096)        # own block and the ones beside it
    attend_window(q, k, v, None, True, window=2048)        # itself and the 2047 steps before
    attend_sloped(q, k, v, mask, True, slopes)             # a slope for each head

What lies outside of blocks or windows is never computed, and time and memory are linear in K there. Keys and values may
have fewer heads than queries, G, which then serve H / G of them each. The queries may be fewer than the keys: they are
the last steps, and the keys before them come from a state.
Letters: B batch, H heads, Q queries, K keys, d channels of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from levelfield.ops.vendor.dispatch import try_kernel

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
    length, asked, seen = k.shape[2], [], []
    past = length - q.shape[2]
    for start in range(past // block * block, length, block):
        end = min(start + block, length)
        asked.append((max(start, past) - past, end - past))
        seen.append((max(0, start - block), end if causal else min(end + block, length)))
    parts = []
    for some, keys, values, (a, b) in zip(
        stretches(q, asked), stretches(k, seen), stretches(v, seen), seen, strict=True
    ):
        parts.append(attend(some, keys, values, None if mask is None else mask[:, a:b], causal))
    return torch.cat(parts, 2)


def attend_window(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, window: int, first: int = 0
) -> Tensor:
    """`attend` where a step sees itself, window - 1 steps before it and, unless causal, as many after it.

    Every step sees the `first` keys besides, in the causal direction if they are not after it. Equal to
    `naive_attend_window`.
    """
    given = try_kernel("attend_window", naive_attend_window, (q, k, v, mask, causal, window, first))
    if given is not None:
        return given
    length, asked, seen = k.shape[2], [], []
    past, size = length - q.shape[2], max(window, CHUNK)
    first = min(first, length)
    for start in range(past, length, size):
        end = min(start + size, length)
        asked.append((start - past, end - past))
        seen.append((max(first, start - window + 1), max(first, end if causal else min(end + window - 1, length))))
    steps, parts = torch.arange(length, device=q.device), []
    (first_keys, *near_keys), (first_values, *near_values) = (stretches(x, [(0, first), *seen]) for x in (k, v))
    pieces = zip(stretches(q, asked), near_keys, near_values, asked, seen, strict=True)
    for some, keys, values, (start, end), (a, b) in pieces:
        if first:
            keys, values = torch.cat([first_keys, keys], 2), torch.cat([first_values, values], 2)
        looked = torch.cat([steps[:first], steps[a:b]])
        ahead = looked - steps[start + past : end + past, None]
        near = ((ahead > -window) & (ahead < window)) | (looked < first)
        if causal:
            near = near & (ahead <= 0)
        if mask is not None:
            near = (near & mask[:, None, looked]) | (ahead == 0)  # a padded step sees itself rather than nothing
        parts.append(_softmax(some, keys, values, near.unsqueeze(-3) if mask is not None else near))
    return torch.cat(parts, 2)


def naive_attend_window(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, window: int, first: int = 0
) -> Tensor:
    """`attend_window` through one matrix over all pairs of steps."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    steps = torch.arange(k.shape[2], device=q.device)
    ahead = steps - steps[k.shape[2] - q.shape[2] :, None]
    near = (ahead.abs() < window) | (steps < first)
    if causal:
        near = near & (ahead <= 0)
    if mask is not None:
        near = (near & mask[:, None, None, :]) | (ahead == 0)
    scores = (q @ k.mT / q.shape[3] ** 0.5).masked_fill(~near, -torch.inf)
    return scores.softmax(-1) @ v


def attend_sloped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, slopes: Tensor) -> Tensor:
    """`attend` with scores lowered by slope * distance. slopes: (H,).

    The bias of a pair depends on how far ahead the key is, and on nothing else. So with the queries of a chunk in
    reverse, all rows of biases are one line read from one place after another: a view, which costs no memory.
    """
    length, parts = k.shape[2], []
    past, width = length - q.shape[2], q.shape[3]
    if mask is not None:
        q, k, v = _walled(q, k, v, visible(mask))
    ahead = torch.arange(1 - length, length, device=q.device)
    line = (ahead.abs() * -slopes[:, None]).to(q.dtype)
    if causal:
        line = line.masked_fill(ahead > 0, -torch.inf)
    for start in range(past, length, CHUNK):
        end = min(start + CHUNK, length)
        seen = end if causal else length
        shape, strides = (1, len(slopes), end - start, seen), (0, line.stride(0), 1, 1)
        bias = line.as_strided(shape, strides, length - end)  # its first row is of the last query and the first key
        some = q[:, :, start - past : end - past].flip(2)
        y = scaled_dot_product_attention(some, k[:, :, :seen], v[:, :, :seen], bias, scale=width**-0.5)
        parts.append(y.flip(2))
    return torch.cat(parts, 2)[..., :width]


def _walled(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """More channels, in which a query scores all keys that are not `seen`, (B, 1, 1, K), as low as a number can say."""
    wall = k.new_zeros(1).masked_fill(~seen.mT, torch.finfo(k.dtype).min / 32)
    return pad(q, (0, 8), value=1.0), torch.cat([k, wall.expand(*k.shape[:3], 8)], 3), pad(v, (0, 8))


def stretches(x: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, ...]:
    """x[:, :, a:b] for each (a, b). Their gradients are added up in one tensor.

    The backward of an ordinary slice makes a tensor as long as x, so that slicing all of x is quadratic in its length.
    """
    return _Stretches.apply(x, spans)  # pyright: ignore[reportReturnType]


class _Stretches(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, ...]:
        ctx.shape, ctx.spans = x.shape, spans
        return tuple(x[:, :, a:b] for a, b in spans)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        total = grads[0].new_zeros(ctx.shape)
        for (a, b), grad in zip(ctx.spans, grads, strict=True):
            total[:, :, a:b] += grad
        return total, None


def visible(mask: Tensor) -> Tensor:
    """Which keys may be looked at: (B, K) -> (B, 1, 1, K).

    A sequence that is all padding looks at all of it: a softmax over nothing is not a number, in value and gradient.
    """
    empty = ~mask.any(-1, keepdim=True)
    return (mask | empty)[:, None, None, :]


def _softmax(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool = False) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(q, k, v, seen, is_causal=causal, enable_gqa=grouped)
