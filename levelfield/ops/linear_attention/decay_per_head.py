"""Computes `decayed_attention` with one decay per head and step: the state-space duality of Mamba-2.

With L_i the sum of log-decays from a chunk's first step through its step i (dao2024, section 6), and S the state:

    y_i  = sum_{j <= i} exp(L_i - L_j) (q_i . k_j) v_j  +  exp(L_i) q_i S_before
    S_after = exp(L_end) S_before  +  sum_j exp(L_end - L_j) k_j v_j^T

The scores q_i . k_j, the products with the state and their gradients are computed once for all heads that share q
and k.

The gradient of the log-decays does not need the gradient of the decay between each pair of steps. exp(L_i) scales y_i
as if it were a factor of q_i, and exp(-L_j) as if it were a factor of k_j, so that dL_i = dy_i . y_i - dv_i . v_i. The
gradient of a log-decay is the sum of dL from its step on. In each chunk the sum starts afresh, from the gradient of the
state at the chunk's end, so that rounding errors do not accumulate.
Letters: B batch, T steps, H heads, G groups, R = H / G, K and V channels, n rows, m chunks, c steps in a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.layers.underflow import LOG_UNDERFLOW, decay_factor, forgets_all
from levelfield.ops.linear_attention.chunks import ChunkSpan, chunk_count, chunk_spans, from_chunks, to_chunks


class _Inputs(NamedTuple):
    q: Tensor  # (B, T, G, K)
    k: Tensor  # (B, T, G, K)
    v: Tensor  # (B, T, H, V)
    log_decay: Tensor  # (B, T, H)


def attend_by_head(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """The results, (B, T, H, V), and the state after the last step, (B, H, K, V).

    q, k: (B, T, G, K); v: (B, T, H, V); log_decay: (B, T, H); state: (B, H, K, V). All of one type.
    """
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, log_decay, state)):
        return _ByHead.apply(q, k, v, log_decay, state, chunk)  # pyright: ignore[reportReturnType]
    y, last, _ = _forward(_Inputs(q, k, v, log_decay), state, chunk, keep=False)
    return y, last


class _Decays(NamedTuple):
    """Factors by which values decay within a chunk, none above 1."""

    before: Tensor  # exp(L_i): (n, m, c, H, 1)
    after: Tensor  # exp(L_end - L_j): (n, m, c, H, 1)
    whole: Tensor  # exp(L_end): (n, m, G, 1, R, 1)
    pairs: Tensor  # exp(L_i - L_j) for j <= i, else 0: (n, m, G, R, c, c)


def _decays(log_decay: Tensor, span: ChunkSpan, groups: int) -> _Decays:
    """The factors of a span's chunks. log_decay: (B, T, H).

    Sums are float64: the difference of two large sums must not lose the small decays between them.
    """
    total = log_decay[span.rows, span.steps].unflatten(1, (span.chunks, span.size)).double().cumsum(2)
    end, kind = total[:, :, -1:], log_decay.dtype
    rows = total.transpose(2, 3).unflatten(2, (groups, -1)).contiguous()  # (n, m, G, R, c)
    lower = torch.ones(span.size, span.size, dtype=kind, device=total.device).tril_()
    # Above the diagonal exponents are positive; they are clamped to 0 and then masked out.
    pairs = (rows.unsqueeze(-1) - rows.unsqueeze(-2)).to(kind).clamp_(LOG_UNDERFLOW, 0).exp_().mul_(lower)
    before, after = (decay_factor(x, kind).unsqueeze(-1) for x in (total, end - total))
    return _Decays(before, after, before[:, :, -1].unflatten(2, (groups, 1, -1)), pairs)


def _forward(inputs: _Inputs, state: Tensor, chunk: int, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The results, the last state, and the states at the bounds of chunks, (B, chunks + 1, G, K, R, V), if `keep`."""
    q, k, v, log_decay = inputs
    (batch, length, heads, values), groups = v.shape, q.shape[2]
    carry = _grouped(state, groups)
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    states = y.new_empty(batch, chunk_count(length, chunk) + 1 if keep else 0, *carry.shape[1:])
    if keep:
        states[:, 0] = carry
    for span in chunk_spans((batch, length), chunk, heads * values, v.device):
        d = _decays(log_decay, span, groups)
        qs, ks, vs = to_chunks(q, span), to_chunks(k, span), to_chunks(v, span)
        bounds = states[span.rows, span.bounds] if keep else y.new_empty(qs.shape[0], span.chunks + 1, *carry.shape[1:])
        bounds[:, 0] = carry[span.rows]
        added = ks.mT @ _by_group(vs.transpose(2, 3) * d.after, groups)
        _pass_on(bounds, added.view_as(bounds[:, 1:]), d.whole)
        carry[span.rows] = bounds[:, -1]
        read = qs @ bounds[:, :-1].flatten(-2)  # (n, m, G, c, R V)
        weights = ((qs @ ks.mT).unsqueeze(3) * d.pairs).flatten(2, 3)  # (n, m, H, c, c)
        here = y[span.rows, span.steps].unflatten(1, (span.chunks, span.size))
        here.copy_(_by_head(read, heads) * d.before)
        here += (weights @ vs).transpose(2, 3)
    return y, carry.transpose(2, 3).flatten(1, 2), states


def _pass_on(bounds: Tensor, added: Tensor, whole: Tensor) -> None:
    """Writes the state after each chunk, bounds[:, i + 1] = whole_i bounds[:, i] + added_i.

    bounds: (n, m + 1, ...), of which the first is given; added: (n, m, ...); whole: of a shape that broadcasts to it.
    """
    for i in range(added.shape[1]):
        torch.addcmul(added[:, i], bounds[:, i], whole[:, i], out=bounds[:, i + 1])


def _grouped(state: Tensor, groups: int) -> Tensor:
    """A copy with heads in groups: (B, H, K, V) -> (B, G, K, R, V)."""
    return state.unflatten(1, (groups, -1)).transpose(2, 3).clone(memory_format=torch.contiguous_format)


def _by_group(x: Tensor, groups: int) -> Tensor:
    """Puts the heads of a group side by side: (n, m, c, H, V) -> (n, m, G, c, R V)."""
    return x.unflatten(3, (groups, -1)).transpose(2, 3).flatten(-2)


def _by_head(x: Tensor, heads: int) -> Tensor:
    """The inverse of `_by_group`: (n, m, G, c, R V) -> (n, m, c, H, V)."""
    return x.transpose(2, 3).reshape(*x.shape[:2], x.shape[3], heads, -1)


class _ByHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        y, last, states = _forward(_Inputs(q, k, v, log_decay), state, chunk, keep=True)
        ctx.save_for_backward(q, k, v, log_decay, y, states)
        ctx.chunk = chunk
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, log_decay, y, states = ctx.saved_tensors
        (batch, length, heads, values), groups = v.shape, q.shape[2]
        inputs = _Inputs(q, k, v, log_decay)
        out = _Inputs(*(torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs))
        carry = _grouped(grads[1], groups)
        for span in reversed(chunk_spans((batch, length), ctx.chunk, heads * values, v.device)):
            bounds = states[span.rows, span.bounds]
            grad_bounds = torch.empty_like(bounds)
            grad_bounds[:, -1] = carry[span.rows]
            _span_backward(span, inputs, (y, grads[0]), _Bounds(bounds, grad_bounds), out)
            carry[span.rows] = grad_bounds[:, 0]
        out.log_decay.masked_fill_(forgets_all(log_decay), 0)
        return *out, carry.transpose(2, 3).flatten(1, 2), None


class _Bounds(NamedTuple):
    """The states before, between and after the chunks of a span, and their gradients."""

    states: Tensor  # (n, m + 1, G, K, R, V)
    grads: Tensor  # (n, m + 1, G, K, R, V): the last is given, the others are written


def _span_backward(
    span: ChunkSpan, inputs: _Inputs, results: tuple[Tensor, Tensor], around: _Bounds, out: _Inputs
) -> None:
    """Writes the gradients of one span, those of the inputs to `out` and those of the states to `around.grads`.

    results: y and its gradient, (B, T, H, V) each.
    """
    q, k, v, log_decay = inputs
    (y, grad), (bounds, grad_bounds) = results, around
    groups, heads = q.shape[2], v.shape[2]
    d = _decays(log_decay, span, groups)
    qs, ks, vs, given = (to_chunks(x, span) for x in (q, k, v, grad))
    # On a CPU products with a transposed right factor run at half speed, so the smaller factor is transposed in memory.
    decayed = _by_group(given.transpose(2, 3) * d.before, groups)  # (n, m, G, c, R V)
    entered = _by_group(vs.transpose(2, 3) * d.after, groups).mT.contiguous()
    back = (qs.mT @ decayed).view_as(bounds[:, 1:])
    for i in reversed(range(span.chunks)):
        torch.addcmul(back[:, i], grad_bounds[:, i + 1], d.whole[:, i], out=grad_bounds[:, i])
    ends = grad_bounds[:, 1:].flatten(-2)  # (n, m, G, K, R V)

    scores = (given @ vs.mT).unflatten(2, (groups, -1)).mul_(d.pairs).sum(3)  # (n, m, G, c, c)
    weights = d.pairs.mul_((qs @ ks.mT).unsqueeze(3)).flatten(2, 3)
    from_chunks(scores @ ks + (bounds[:, :-1].flatten(-2) @ decayed.mT.contiguous()).mT, span, out.q)
    from_chunks(scores.mT @ qs + (ends @ entered).mT, span, out.k)
    grad_v = _by_head(ks @ ends, heads).mul_(d.after).add_((weights.mT @ given).transpose(2, 3))
    from_chunks(grad_v.transpose(2, 3), span, out.v)

    read = grad[span.rows, span.steps] * y[span.rows, span.steps]
    slope = read.sum(-1).unflatten(1, (span.chunks, span.size)) - (grad_v * vs.transpose(2, 3)).sum(-1)
    slope[:, :, -1] += (bounds[:, 1:] * grad_bounds[:, 1:]).sum((3, 5)).flatten(2)
    from_chunks(slope.flip(2).cumsum(2).flip(2).transpose(2, 3).unsqueeze(-1), span, out.log_decay.unsqueeze(-1))
