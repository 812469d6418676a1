"""Computes causal linear attention without decay, as sums over the steps so far, a chunk at a time.

    S_t = S_{t-1} + k_t v_t^T,    z_t = z_{t-1} + k_t,    y_t = q_t S_t / (q_t . z_t + eps)      S: (K, V), z: (K,)

Within a chunk the pairs of steps are products of small matrices; S and z are passed from chunk to chunk
(katharopoulos2020, equations 16 to 20). `decay_per_head.py` does the same with decays; here there are none, and the
denominator is kept beside the values rather than as one more value channel. The backward pass keeps y, the denominators
and the sums between chunks.
Letters: B batch, T steps, H heads, K key and V value channels, n rows, m chunks, c steps in a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.linear_attention.chunks import (
    ChunkSpan,
    chunk_count,
    chunk_spans,
    from_chunks,
    suited_chunk,
    to_chunks,
)


class _Inputs(NamedTuple):
    q: Tensor  # (B, T, H, K)
    k: Tensor  # (B, T, H, K)
    v: Tensor  # (B, T, H, V)


class _Sums(NamedTuple):
    memory: Tensor  # S: (B, H, K, V)
    total: Tensor  # z: (B, H, K, 1)


def attend_by_sums(
    q: Tensor, k: Tensor, v: Tensor, memory: Tensor, total: Tensor, eps: float, chunk: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The results y, (B, T, H, V), and S and z after the last step. All are of one type, float32 or wider.

    q, k: (B, T, H, K), none negative; v: (B, T, H, V); memory: S before the first step, (B, H, K, V); total: z before
    the first step, (B, H, K, 1). chunk: steps of a chunk, or None for what suits the sizes.
    """
    chunk = suited_chunk(q.shape[3], q.device) if chunk is None else chunk
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, memory, total)):
        return _Undecayed.apply(q, k, v, memory, total, eps, chunk)  # pyright: ignore[reportReturnType]
    return _forward(_Inputs(q, k, v), _Sums(memory, total), eps, chunk, keep=False)[0]


class _Kept(NamedTuple):
    """What the backward pass needs of the forward pass besides y."""

    scale: Tensor  # q . z + eps: (B, T, H, 1)
    memories: Tensor  # S before and after every chunk: (B, chunks + 1, H, K, V)
    totals: Tensor  # z before and after every chunk: (B, chunks + 1, H, K, 1)


def _forward(
    inputs: _Inputs, sums: _Sums, eps: float, chunk: int, keep: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], _Kept]:
    """(y, S and z after the last step), and what the backward pass needs, which is empty without `keep`."""
    q, k, v = inputs
    batch, length, heads, values = v.shape
    carry = tuple(x.clone(memory_format=torch.contiguous_format) for x in sums)
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    kept = _Kept(
        y.new_empty(batch, length if keep else 0, heads, 1),
        *(y.new_empty(batch, chunk_count(length, chunk) + 1 if keep else 0, *x.shape[1:]) for x in carry),
    )
    for span in chunk_spans((batch, length), chunk, heads * values, v.device):
        qs, ks, vs = (to_chunks(x, span).contiguous() for x in (q, k, v))  # (n, m, H, c, X)
        if keep:
            bounds = (kept.memories[span.rows, span.bounds], kept.totals[span.rows, span.bounds])
        else:
            bounds = tuple(y.new_empty(qs.shape[0], span.chunks + 1, *x.shape[1:]) for x in carry)
        for running, added, last in zip(bounds, (ks.mT @ vs, ks.sum(3).unsqueeze(-1)), carry, strict=True):
            running[:, 0] = last[span.rows]
            for i in range(span.chunks):
                torch.add(running[:, i], added[:, i], out=running[:, i + 1])
            last[span.rows] = running[:, -1]
        weights = _pairs(qs, ks)
        scale = weights.sum(-1, keepdim=True).add_(qs @ bounds[1][:, :-1]).add_(eps)
        found = _plus(weights @ vs, qs, bounds[0][:, :-1])
        from_chunks(found.div_(scale), span, y)
        if keep:
            from_chunks(scale, span, kept.scale)
    return (y, carry[0], carry[1]), kept


def _pairs(left: Tensor, right: Tensor) -> Tensor:
    """Scores of each step of a chunk with the steps up to itself, zero with later ones: (n, m, H, c, c)."""
    return (left @ right.mT).tril_()


def _plus(into: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Adds left @ right to `into`, contiguous and of shape (n, m, H, rows, columns), and returns it."""
    into.flatten(0, 2).baddbmm_(left.flatten(0, 2), right.flatten(0, 2))
    return into


class _Undecayed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, memory: Tensor, total: Tensor, eps: float, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        found, kept = _forward(_Inputs(q, k, v), _Sums(memory, total), eps, chunk, keep=True)
        ctx.save_for_backward(q, k, v, found[0], *kept)
        ctx.chunk = chunk
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Gradients through y = n / d, with n = q S and d = q . z + eps: dn = dy / d and dd = -dn . y.

        Those of S and z are summed from the last chunk to the first.
        """
        q, k, v, y, *rest = ctx.saved_tensors
        kept = _Kept(*rest)
        batch, length, heads, values = v.shape
        out = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
        carry = tuple(x.clone(memory_format=torch.contiguous_format) for x in grads[1:])
        for span in reversed(chunk_spans((batch, length), ctx.chunk, heads * values, v.device)):
            qs, ks, vs, ys, given = (to_chunks(x, span).contiguous() for x in (q, k, v, y, grads[0]))
            given = given / to_chunks(kept.scale, span)
            grads_here = _Quotient(given, (given * ys).sum(-1, keepdim=True).neg_())
            grad_sums = _sums_backward(span, carry, [qs.mT @ grad for grad in grads_here])
            before = _Sums(*(x[span.rows, span.bounds][:, :-1] for x in kept[1:]))
            for grad, into in zip(_span_backward(_Inputs(qs, ks, vs), grads_here, before, grad_sums), out, strict=True):
                from_chunks(grad, span, into)
        return *out, *carry, None, None


class _Quotient(NamedTuple):
    """Gradients of the numerator and of the denominator of y in the chunks of a span."""

    numerator: Tensor  # (n, m, H, c, V)
    denominator: Tensor  # (n, m, H, c, 1)


def _sums_backward(span: ChunkSpan, carry: tuple[Tensor, ...], added: list[Tensor]) -> _Sums:
    """Gradients of S and z after every chunk of a span: (n, m, H, K, V) and (n, m, H, K, 1).

    carry: those after the span, which become those before it; added: what each chunk adds to them.
    """
    found = []
    for last, adds in zip(carry, added, strict=True):
        grad = torch.empty_like(adds)
        grad[:, -1] = last[span.rows]
        for i in reversed(range(1, span.chunks)):
            torch.add(grad[:, i], adds[:, i], out=grad[:, i - 1])
        torch.add(grad[:, 0], adds[:, 0], out=last[span.rows])
        found.append(grad)
    return _Sums(*found)


def _span_backward(inputs: _Inputs, grads: _Quotient, before: _Sums, after: _Sums) -> _Inputs:
    """Gradients of q, k and v of one span, (n, m, H, c, X) each.

    before: S and z before its chunks; after: the gradients of S and z after its chunks.
    """
    q, k, v = inputs
    given, fall = grads
    scores = (given @ v.mT).add_(fall).tril_()
    grad_q = _plus((scores @ k).add_(fall * before.total.mT), given, before.memory.mT)
    grad_k = _plus((scores.mT @ q).add_(after.total.mT), v, after.memory.mT)
    return _Inputs(grad_q, grad_k, _plus(_pairs(q, k).mT @ given, k, after.memory))
