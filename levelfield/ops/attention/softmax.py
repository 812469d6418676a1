"""Computes softmax attention by fused kernels: full, in blocks of steps, in a sliding window, or with ALiBi.

    attend(q, k, v, None, causal=True)                     # (B, H, T, d) each
    attend_blocks(q, k, v, mask, False, block=4096)        # own block and the ones beside it
    attend_window(q, k, v, None, True, window=2048)        # itself and the 2047 steps before
    attend_alibi(q, k, v, mask, True, slopes=slopes)       # scores fall with the distance, by a slope for each head

Scores outside of blocks and windows are never computed, so that time and memory are linear in K. Keys and values may
have G heads, fewer than the queries have, each of which then serves H / G heads of queries. The queries may be fewer
than the keys: they are then the last steps, and the earlier keys come from a state.
Letters: B batch, H heads of queries, G heads of keys and values, Q queries, K keys, d channels of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from levelfield.ops.opaque import opaque
from levelfield.ops.vendor.dispatch import try_kernel

CHUNK = 256  # minimum number of queries per attention call in a sliding window


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Full attention, softmax(q k^T / sqrt(d)) v: (B, H, Q, d).

    q: (B, H, Q, d); k, v: (B, G, K, d); mask: (B, K), True at real keys, or None.
    """
    queries, keys = q.shape[2], k.shape[2]
    if causal and 1 < queries < keys:
        past = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        return _softmax(q, k, v, past)
    return _softmax(q, k, v, None if mask is None else visible(mask), causal and queries == keys)


@opaque
def attend_blocks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, block: int) -> Tensor:
    """`attend` where a step sees its own block and the two beside it, one call per block of queries: (B, H, Q, d).

    The first and the last block have one neighbour. In the causal direction a step sees the block before and its own
    block up to itself. The first key must be the first of a block.
    """
    length, asked, seen = k.shape[2], [], []
    past = length - q.shape[2]
    for start in range(past // block * block, length, block):
        end = min(start + block, length)
        asked.append((max(start, past) - past, end - past))
        seen.append((max(0, start - block), end if causal else min(end + block, length)))
    parts = []
    for some, keys, values, (a, b) in zip(
        split_spans(q, asked), split_spans(k, seen), split_spans(v, seen), seen, strict=True
    ):
        parts.append(attend(some, keys, values, None if mask is None else mask[:, a:b], causal))
    return torch.cat(parts, 2)


@opaque
def attend_window(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, window: int, first: int = 0
) -> Tensor:
    """`attend` in a window: a step sees itself, window - 1 steps before it and, unless causal, as many after it.

    Every step also sees the `first` keys, in the causal direction only those not after it. Arguments and result have
    the shapes of `attend`: (B, H, Q, d). Equal to `naive_attend_window`.
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
    (first_keys, *near_keys), (first_values, *near_values) = (split_spans(x, [(0, first), *seen]) for x in (k, v))
    calls = zip(split_spans(q, asked), near_keys, near_values, asked, seen, strict=True)
    for some, keys, values, (start, end), (a, b) in calls:
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
    """`attend_window` by one matrix over all pairs of steps: (B, H, Q, d)."""
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


@opaque
def attend_alibi(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, slopes: Tensor) -> Tensor:
    """`attend` with scores lowered by slope * distance: (B, H, Q, d). slopes: (H,).

    The bias of a pair depends only on how far ahead the key is. With the queries of a chunk in reverse order, each row
    of biases is therefore the row before it shifted by one, and all rows are a view of one line that takes no memory.
    """
    length, parts = k.shape[2], []
    past, width = length - q.shape[2], q.shape[3]
    if mask is not None:
        q, k, v = _mask_by_bias(q, k, v, visible(mask))
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


def _mask_by_bias(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Adds eight channels to q, k and v, which give a very low score to keys that are not `seen`, (B, 1, 1, K)."""
    low = k.new_zeros(1).masked_fill(~seen.mT, torch.finfo(k.dtype).min / 32)
    return pad(q, (0, 8), value=1.0), torch.cat([k, low.expand(*k.shape[:3], 8)], 3), pad(v, (0, 8))


def split_spans(x: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, ...]:
    """The slices x[:, :, a:b] of x, (B, H, T, d), for each (a, b). Their gradients are added up in one tensor.

    The backward pass of an ordinary slice makes a tensor as long as x, so that slicing all of x would be quadratic in
    its length.
    """
    return _SplitSpans.apply(x, spans)  # pyright: ignore[reportReturnType]


class _SplitSpans(torch.autograd.Function):
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
    """A mask of the visible keys: (B, K) -> (B, 1, 1, K).

    In a sequence that is all padding every key is visible, because a softmax over nothing is NaN.
    """
    empty = ~mask.any(-1, keepdim=True)
    return (mask | empty)[:, None, None, :]


def _softmax(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool = False) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(q, k, v, seen, is_causal=causal, enable_gqa=grouped)
