"""Computes the delta rule, which corrects what a matrix of memory recalls for each key, a chunk of steps at a time.

    S_t = a_t S_{t-1} + k_t u_t^T,    u_t = beta_t (v_t - k_t a_t S_{t-1}),    y_t = q_t S_t,    a_t = exp(log_decay_t)

S: (K, V) per head. Without decay this is DeltaNet (yang2024delta), with it Gated DeltaNet (yang2025). Let L_i be the
sum of log-decays from a chunk's first step through its step i, D_ij = exp(L_i - L_j), S the state before the chunk and
e_i the error that step i corrects, u_i = beta_i e_i. The errors of a chunk solve one triangular system (the WY form;
yang2024delta, section 3.2; yang2025, equation 8):

    e_i + sum_{j < i} D_ij (k_i . k_j) beta_j e_j = v_i - exp(L_i) k_i S

Its matrix is inverted for all chunks at once, which leaves three products of small matrices from chunk to chunk:

    y, state = delta_rule(q, k, v, beta)                         # keys of unit length, beta in [0, 1]
    more, state = delta_rule(*later, state=state)                # goes on where it stopped

The gradient of the decays is found as in `decay_per_head.py`: dL_i = dy_i . y_i - dv_i . v_i.
Letters: B batch, H heads, T steps, K and V channels, m chunks, N rows of heads, c steps in a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.layers.underflow import LOG_UNDERFLOW, decay_factor, forgets_all
from levelfield.ops.linear_attention.chunks import ChunkSpan, chunk_spans, from_chunks, suited_chunk, to_chunks
from levelfield.ops.opaque import opaque
from levelfield.ops.vendor.dispatch import try_kernel


class _Inputs(NamedTuple):
    q: Tensor  # (B, T, H, K)
    k: Tensor  # (B, T, H, K)
    v: Tensor  # (B, T, H, V)
    beta: Tensor  # (B, T, H)
    log_decay: Tensor | None  # (B, T, H)


class _Kept(NamedTuple):
    """What the backward pass needs of a span besides the inputs."""

    bounds: Tensor  # the states before, between and after its chunks: (m + 1, N, K, V)
    errors: Tensor  # e: (m, N, c, V)
    inverse: Tensor  # of the triangular matrices: (m, N, c, c)


@opaque
def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None = None,
    state: Tensor | None = None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(B, H, T, V) and the state after the last step, (B, H, K, V), in float32 or wider.

    q, k: (B, H, T, K); v: (B, H, T, V); beta: (B, H, T); log_decay: (B, H, T), finite and none above 0, or None for no
    decay; state: (B, H, K, V), or None for zeros. chunk: steps of a chunk, or None for what suits the sizes. The
    recurrence is stable where beta |k|^2 is at most 2. Equal to `naive_delta_rule`. It is fastest where the arguments
    lie as (B, T, H, X) in memory, as the result does.
    """
    given = try_kernel("delta_rule", naive_delta_rule, (q, k, v, beta, log_decay, state))
    if given is not None:
        return given
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k, v, beta = (x.to(wide).transpose(1, 2) for x in (q, k, v, beta))
    log_decay = None if log_decay is None else log_decay.to(wide).transpose(1, 2)
    state = v.new_zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3]) if state is None else state.to(wide)
    chunk = suited_chunk(q.shape[3], q.device) if chunk is None else chunk
    with torch.autocast(q.device.type, enabled=False):
        inputs = _Inputs(q, k, v, beta, log_decay)
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (*inputs, state)):
            y, last = _DeltaRule.apply(*inputs, state, chunk)  # pyright: ignore[reportGeneralTypeIssues]
        else:
            y, last, _ = _forward(inputs, state, chunk, keep=False)
    return y.transpose(1, 2), last


def naive_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`delta_rule` by its equation, step by step. Arguments and results have the same shapes."""
    if state is None:
        state = v.new_zeros(*v.shape[:2], q.shape[3], v.shape[3])
    out = []
    for t in range(q.shape[2]):
        if log_decay is not None:
            state = state * log_decay[:, :, t, None, None].exp()
        recalled = (k[:, :, t, None, :] @ state).squeeze(-2)
        change = beta[:, :, t, None] * (v[:, :, t] - recalled)
        state = state + k[:, :, t, :, None] * change[:, :, None, :]
        out.append((q[:, :, t, None, :] @ state).squeeze(-2))
    return torch.stack(out, dim=2), state


class _Chunks(NamedTuple):
    """The chunks of a span in order of time. The factors of decay are None where there is no decay."""

    both: Tensor  # q above k: (m, N, 2 c, K)
    v: Tensor  # (m, N, c, V)
    beta: Tensor  # (m, N, c, 1)
    before: Tensor | None  # exp(L_i), for q and k: (m, N, 2 c, 1)
    after: Tensor | None  # exp(L_end - L_j): (m, N, c, 1)
    whole: Tensor | None  # exp(L_end): (m, N, 1, 1)
    pairs: Tensor  # exp(L_i - L_j) for j <= i, else 0: (m, N, 1, c, c), or (c, c)

    @property
    def k(self) -> Tensor:
        return self.both[:, :, self.v.shape[2] :]

    @property
    def reading(self) -> Tensor:
        """The rows q and k as they read the state before the chunk, decayed: (m, N, 2 c, K)."""
        return _times(self.both, self.before)

    def scores(self) -> tuple[Tensor, Tensor]:
        """D_ij (q_i . k_j) for j <= i, and D_ij (k_i . k_j) for j < i: (m, N, c, c) each, zero elsewhere."""
        rows = (self.both @ self.k.mT).unflatten(2, (2, -1)).mul_(self.pairs)
        rows[:, :, 1].diagonal(0, -2, -1).zero_()
        return rows[:, :, 0], rows[:, :, 1]


def _cut(x: Tensor, span: ChunkSpan) -> Tensor:
    """The chunks of a span, in order of time: (B, T, H, X) -> (m, N, c, X)."""
    cut = to_chunks(x, span).transpose(0, 1)
    return cut.reshape(cut.shape[0], -1, *cut.shape[3:])


def _chunks(span: ChunkSpan, inputs: _Inputs) -> _Chunks:
    q, k, v, beta, log_decay = inputs
    both = torch.cat([_cut(q, span), _cut(k, span)], 2)
    vs, betas = _cut(v, span), _cut(beta.unsqueeze(-1), span)
    lower = torch.ones(span.size, span.size, dtype=v.dtype, device=v.device).tril_()
    if log_decay is None:
        return _Chunks(both, vs, betas, before=None, after=None, whole=None, pairs=lower)
    # Sums are float64: the difference of two large sums must not lose the small decays between them.
    total = _cut(log_decay.unsqueeze(-1), span).double().cumsum(2)
    before, after, whole = (decay_factor(x, v.dtype) for x in (total, total[:, :, -1:] - total, total[:, :, -1:]))
    # Above the diagonal exponents are positive; they are clamped to 0 and then masked out.
    pairs = (total - total.mT).to(v.dtype).clamp_(LOG_UNDERFLOW, 0).exp_().mul_(lower)
    return _Chunks(
        both, vs, betas, before=before.repeat(1, 1, 2, 1), after=after, whole=whole, pairs=pairs.unsqueeze(2)
    )


def _times(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor


def _forward(inputs: _Inputs, state: Tensor, chunk: int, keep: bool) -> tuple[Tensor, Tensor, list[_Kept]]:
    """The results, the last state, and, with `keep`, what the backward pass needs of each span."""
    v = inputs.v
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    last, kept = state.clone(memory_format=torch.contiguous_format), []
    for span in _spans(inputs, chunk):
        c = _chunks(span, inputs)
        weights, overlap = c.scores()
        eye = torch.eye(span.size, dtype=v.dtype, device=v.device).expand_as(overlap)
        inverse = torch.linalg.solve_triangular(overlap * c.beta.mT, eye, upper=False, unitriangular=True)
        bounds = v.new_empty(span.chunks + 1, *c.v.shape[1:2], *state.shape[2:])
        bounds[0] = last[span.rows].flatten(0, 1)
        reading, entering = c.reading, (_times(c.k, c.after) * c.beta).mT
        e, seen = torch.empty_like(c.v), v.new_empty(*reading.shape[:3], v.shape[3])
        for i in range(span.chunks):
            torch.bmm(reading[i], bounds[i], out=seen[i])
            torch.bmm(inverse[i], c.v[i] - seen[i, :, span.size :], out=e[i])
            passed = bounds[i] if c.whole is None else bounds[i] * c.whole[i]
            torch.baddbmm(passed, entering[i], e[i], out=bounds[i + 1])
        last[span.rows] = bounds[-1].view_as(last[span.rows])
        here = (weights @ (e * c.beta)).add_(seen[:, :, : span.size])
        _put(here, span, y)
        if keep:
            kept.append(_Kept(bounds, e, inverse))
    return y, last, kept


def _spans(inputs: _Inputs, chunk: int) -> list[ChunkSpan]:
    batch, length, heads, values = inputs.v.shape
    return chunk_spans((batch, length), chunk, heads * max(inputs.q.shape[3], values), inputs.v.device)


def _put(x: Tensor, span: ChunkSpan, into: Tensor) -> None:
    """The inverse of `_cut`: writes x, (m, N, c, X), to the span's place in `into`, (B, T, H, X)."""
    from_chunks(x.unflatten(1, (-1, into.shape[2])).transpose(0, 1), span, into)


class _DeltaRule(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        beta: Tensor,
        log_decay: Tensor | None,
        state: Tensor,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        y, last, kept = _forward(_Inputs(q, k, v, beta, log_decay), state, chunk, keep=True)
        ctx.save_for_backward(q, k, v, beta, log_decay, y, *(x for parts in kept for x in parts))
        ctx.chunk = chunk
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, beta, log_decay, y, *kept = ctx.saved_tensors
        inputs = _Inputs(q, k, v, beta, log_decay)
        out = [None if x is None else torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs]
        carry = grads[1].clone(memory_format=torch.contiguous_format)
        for number, span in reversed(list(enumerate(_spans(inputs, ctx.chunk)))):
            c, parts = _chunks(span, inputs), _Kept(*kept[3 * number : 3 * number + 3])
            ends = torch.empty_like(parts.bounds)
            ends[-1] = carry[span.rows].flatten(0, 1)
            ours = _span_backward(c, _cut(grads[0], span), _cut(y, span), parts, ends)
            carry[span.rows] = ends[0].view_as(carry[span.rows])
            for found, into in zip(ours, out, strict=True):
                if found is not None and into is not None:
                    _put(found, span, into if into.dim() == 4 else into.unsqueeze(-1))
        if inputs.log_decay is not None and out[4] is not None:
            out[4].masked_fill_(forgets_all(inputs.log_decay), 0)
        return *out, carry, None


def _span_backward(c: _Chunks, given: Tensor, y: Tensor, kept: _Kept, ends: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of q, k, v, beta and log_decay, (m, N, c, X) each, from `given`, that of y: (m, N, c, V).

    ends: gradients of the states before, between and after the chunks, (m + 1, N, K, V); the last is given, the others
    are written. With Z the gradient of the right-hand side of e's system, the rows [dy; -Z] are the gradients of what q
    and k read, and every other gradient is a product with them.
    """
    bounds, e, inverse = kept
    size, (weights, overlap), reading, leaving = c.v.shape[2], c.scores(), c.reading.mT, _times(c.k, c.after)
    rows = torch.cat([given, torch.empty_like(given)], 2)
    direct = weights.mT @ given
    for i in reversed(range(len(given))):
        direct[i].baddbmm_(leaving[i], ends[i + 1])
        torch.neg(torch.bmm(inverse[i].mT, direct[i] * c.beta[i]), out=rows[i, :, size:])
        passed = ends[i + 1] if c.whole is None else ends[i + 1] * c.whole[i]
        torch.baddbmm(passed, reading[i], rows[i], out=ends[i])
    minus_z, u = rows[:, :, size:], e * c.beta
    scores = (rows @ u.mT).unflatten(2, (2, -1)).mul_(c.pairs)
    scores[:, :, 1].diagonal(0, -2, -1).zero_()
    scores = scores.flatten(2, 3)  # (m, N, 2 c, c)
    grad = _times(rows @ bounds[:-1].mT, c.before) + scores @ c.k
    grad_k = grad[:, :, size:] + scores.mT @ c.both + _times(u @ ends[1:].mT, c.after)
    grad_beta = ((direct + overlap.mT @ minus_z) * e).sum(-1, keepdim=True)
    slope = None
    if c.whole is not None:
        slope = (given * y + minus_z * c.v).sum(-1, keepdim=True)
        slope[:, :, -1, 0] += (bounds[1:] * ends[1:]).sum((-2, -1))
        slope = slope.flip(2).cumsum(2).flip(2)
    return grad[:, :, :size], grad_k, -minus_z, grad_beta, slope
