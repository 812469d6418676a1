"""Computes forgetting attention: causal softmax attention whose scores fall by the forget gates of the steps between.

    s_ij = q_i . k_j / sqrt(d) + sum_{l = j+1..i} log f_l,     y_i = sum_{j <= i} softmax_j(s_i) v_j          per head

The sums of log-gates are differences of running sums (lin2025, section 3), so gates cost a number for each step and
head. Fused kernels give no gradient of such a bias, and keeping all scores for the backward pass would take T numbers
per step and head. Here both passes make the scores of a block of queries, use them and drop them, so that memory is
linear in T:

    y = attend_forgetting(q, k, v, F.logsigmoid(gates))         # (B, H, T, d) each; gates: (B, H, T)

Running sums grow with T while only their differences matter, so they are kept in float64. The gradient of a log-gate is
the sum of the scores' gradients over all pairs it stands between, by running sums too: those of whole rows and columns.
Letters: B batch, H heads, Q queries, K keys, d channels of a head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.opaque import opaque

BLOCK = 128  # queries whose scores exist at a time


@opaque
def attend_forgetting(q: Tensor, k: Tensor, v: Tensor, log_forget: Tensor) -> Tensor:
    """Causal attention of q, (B, H, Q, d), the last Q of K steps, to the keys up to each: (B, H, Q, d).

    k, v: (B, H, K, d); log_forget: (B, H, K), finite and none above 0, in float32 or wider. That of the first key
    counts for nothing. Products are in the type of q; scores, their softmax and all sums over blocks are in float32 or
    wider. Equal to `naive_attend_forgetting`.
    """
    total = log_forget.double().cumsum(-1)
    y: Tensor = _Forgetting.apply(q / math.sqrt(q.shape[3]), k, v, total)  # pyright: ignore[reportAssignmentType]
    return y


def naive_attend_forgetting(q: Tensor, k: Tensor, v: Tensor, log_forget: Tensor) -> Tensor:
    """`attend_forgetting` by one matrix over all pairs of steps: (B, H, Q, d)."""
    past = k.shape[2] - q.shape[2]
    total = log_forget.cumsum(-1)
    scores = q @ k.mT / math.sqrt(q.shape[3]) + total[:, :, past:, None] - total[:, :, None]
    ahead = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(past + 1)
    return scores.masked_fill(ahead, -math.inf).softmax(-1) @ v


class _Part(NamedTuple):
    """Sequences and queries that are computed at once, with the keys up to the last of them."""

    batch: slice
    rows: slice  # of q
    steps: slice  # the same queries among the keys
    seen: slice  # of k and v

    def of(self, x: Tensor, steps: slice) -> Tensor:
        """Some steps of x, (B, H, T, ...), in the sequences of the part."""
        return x[self.batch, :, steps]


class _Forgetting(torch.autograd.Function):
    """Attention and its gradient, a part at a time: (B, H, Q, d). total: (B, H, K) float64, the sums of log-gates."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, total: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v, total)
        out = torch.empty_like(q)
        with torch.autocast(q.device.type, enabled=False):
            for part in _parts(q, k):
                weights = _weights(q, k, total, part).to(v.dtype)
                out[part.batch, :, part.rows] = weights @ part.of(v, part.seen)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, total = ctx.saved_tensors
        wide = torch.promote_types(q.dtype, torch.float32)
        grad_q, grad_total = torch.empty_like(q), torch.zeros_like(total)
        grad_k, grad_v = (torch.zeros_like(x, dtype=wide) for x in (k, v))
        with torch.autocast(q.device.type, enabled=False):
            for part in _parts(q, k):
                given, keys, values = part.of(grads[0], part.rows), part.of(k, part.seen), part.of(v, part.seen)
                weights = _weights(q, k, total, part)
                part.of(grad_v, part.seen).add_(weights.to(v.dtype).mT @ given)
                from_values = (given @ values.mT).to(wide)
                grad = torch.ops.aten._softmax_backward_data(from_values, weights, -1, weights.dtype)
                part.of(grad_q, part.rows).copy_(grad.to(k.dtype) @ keys)
                part.of(grad_k, part.seen).add_(grad.to(q.dtype).mT @ part.of(q, part.rows))
                # A row's sum is 0 but for rounding. With it what is rounded cancels out of the gradients of log-gates.
                part.of(grad_total, part.steps).add_(grad.sum(-1, dtype=total.dtype))
                part.of(grad_total, part.seen).sub_(grad.sum(-2, dtype=total.dtype))
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), grad_total


def _parts(q: Tensor, k: Tensor) -> Iterator[_Part]:
    """Yields a block of queries at a time: of one sequence on a CPU, of all sequences on other devices."""
    queries, past = q.shape[2], k.shape[2] - q.shape[2]
    many = 1 if q.device.type == "cpu" else len(q)
    for row in range(0, len(q), many):
        for start in range(0, queries, BLOCK):
            end = min(start + BLOCK, queries)
            steps, seen = slice(start + past, end + past), slice(0, end + past)
            yield _Part(slice(row, row + many), rows=slice(start, end), steps=steps, seen=seen)


def _weights(q: Tensor, k: Tensor, total: Tensor, part: _Part) -> Tensor:
    """The attention weights of a part: (b, H, rows, keys) in float32 or wider."""
    scores = (part.of(q, part.rows) @ part.of(k, part.seen).mT).to(torch.promote_types(q.dtype, torch.float32))
    scores += part.of(total, part.steps).unsqueeze(-1) - part.of(total, part.seen).unsqueeze(-2)
    ahead = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(part.steps.start + 1)
    return torch.softmax(scores.masked_fill_(ahead, -math.inf), -1)
