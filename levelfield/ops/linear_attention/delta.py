"""The delta rule: a matrix of memory in which a step corrects what its key recalls, computed a chunk at a time.

    S_t = a_t S_{t-1} + k_t u_t^T,    u_t = beta_t (v_t - k_t a_t S_{t-1}),    y_t = q_t S_t,    a_t = exp(log_decay_t)

S: (K, V) per head. Without decay this is DeltaNet's (yang2024delta), with it Gated DeltaNet's (yang2025). With L_i the
sum of log-decays from a chunk's first step through its step i, D_ij = exp(L_i - L_j), S the state before the chunk and
e_i what is subtracted above without beta, the steps of a chunk are one triangular system (the WY form, yang2024delta
section 3.2; yang2025 equation 8):

    e_i + sum_{j < i} D_ij (k_i . k_j) beta_j e_j = v_i - exp(L_i) k_i S

whose inverse is taken for all chunks at once. What is left between chunks are three products of small matrices:

    y, state = delta_rule(q, k, v, beta)                         # keys of unit length, beta in [0, 1]
    more, state = delta_rule(*later, state=state)                # goes on where it stopped

The gradient of the decays comes as in `decay_by_head`: dL_i = dy_i . y_i - dv_i . v_i.
Letters: B batch, H heads, T steps, K and V channels, m chunks, N rows of heads, c steps in a chunk.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.linear_attention.chunks import Segment, pieces, place, segments
from levelfield.ops.vendor.dispatch import attempt

CHUNK = 64
GONE = -60.0  # a factor below e^-60 counts as that much: nothing, and CPUs are slow at numbers near the smallest ones

Kept = tuple[Tensor, Tensor, Tensor]
"""Of a part: the states before, between and after its chunks, e, and the inverses."""


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None = None,
    state: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """(B, H, T, V) and the state after the last step, (B, H, K, V), in float32 or wider.

    q, k: (B, H, T, K); v: (B, H, T, V); beta: (B, H, T); log_decay: (B, H, T), finite and none above 0, or None for no
    decay; state: (B, H, K, V), or None for zeros. Steady where beta |k|^2 is at most 2. Equal to `naive_delta_rule`.
    Fastest where the arguments are (B, T, H, X) in memory, as the result is.
    """
    given = attempt("delta_rule", naive_delta_rule, (q, k, v, beta, log_decay, state))
    if given is not None:
        return given
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k, v, beta = (x.to(wide).transpose(1, 2) for x in (q, k, v, beta))
    log_decay = None if log_decay is None else log_decay.to(wide).transpose(1, 2)
    state = v.new_zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3]) if state is None else state.to(wide)
    with torch.autocast(q.device.type, enabled=False):
        inputs = (q, k, v, beta, log_decay, state)
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
            y, last = _DeltaRule.apply(*inputs, chunk)  # pyright: ignore[reportGeneralTypeIssues]
        else:
            y, last, _ = _forward(*inputs, chunk, keep=False)
    return y.transpose(1, 2), last


def naive_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`delta_rule` step by step, as its equation says."""
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
    """The chunks of a part in order of time; the factors of decay are None where there is none."""

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
        """What q and k see of the state before: (m, N, 2 c, K)."""
        return _times(self.both, self.before)

    def scores(self) -> tuple[Tensor, Tensor]:
        """D_ij (q_i . k_j) for j <= i, and D_ij (k_i . k_j) for j < i: (m, N, c, c) each, zero elsewhere."""
        rows = (self.both @ self.k.mT).unflatten(2, (2, -1)).mul_(self.pairs)
        rows[:, :, 1].diagonal(0, -2, -1).zero_()
        return rows[:, :, 0], rows[:, :, 1]


def _cut(x: Tensor, part: Segment) -> Tensor:
    """(B, T, H, X) -> (m, N, c, X)."""
    cut = pieces(x, part).transpose(0, 1)
    return cut.reshape(cut.shape[0], -1, *cut.shape[3:])


def _chunks(part: Segment, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None) -> _Chunks:
    both = torch.cat([_cut(q, part), _cut(k, part)], 2)
    vs, betas = _cut(v, part), _cut(beta.unsqueeze(-1), part)
    lower = torch.ones(part.size, part.size, dtype=v.dtype, device=v.device).tril_()
    if log_decay is None:
        return _Chunks(both, vs, betas, None, None, None, lower)
    # Sums in float64: differences of large ones must not lose the small steps between them.
    total = _cut(log_decay.unsqueeze(-1), part).double().cumsum(2)
    before, after, whole = (_fading(x, v.dtype) for x in (total, total[:, :, -1:] - total, total[:, :, -1:]))
    # Above the diagonal exponents are positive: held at 0, and struck out.
    pairs = (total - total.mT).to(v.dtype).clamp_(GONE, 0).exp_().mul_(lower)
    return _Chunks(both, vs, betas, before.repeat(1, 1, 2, 1), after, whole, pairs.unsqueeze(2))


def _fading(exponent: Tensor, kind: torch.dtype) -> Tensor:
    return exponent.to(kind).clamp(min=GONE).exp_()


def _times(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None,
    state: Tensor,
    chunk: int,
    keep: bool,
) -> tuple[Tensor, Tensor, list[Kept]]:
    """y, the last state, and with `keep` what the backward needs of each part."""
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    last, kept = state.clone(memory_format=torch.contiguous_format), []
    for part in _parts(q, v, chunk):
        c = _chunks(part, q, k, v, beta, log_decay)
        weights, overlap = c.scores()
        eye = torch.eye(part.size, dtype=v.dtype, device=v.device).expand_as(overlap)
        inverse = torch.linalg.solve_triangular(overlap * c.beta.mT, eye, upper=False, unitriangular=True)
        bounds = v.new_empty(part.chunks + 1, *c.v.shape[1:2], *state.shape[2:])
        bounds[0] = last[part.rows].flatten(0, 1)
        reading, entering = c.reading, (_times(c.k, c.after) * c.beta).mT
        e, seen = torch.empty_like(c.v), v.new_empty(*reading.shape[:3], v.shape[3])
        for i in range(part.chunks):
            torch.bmm(reading[i], bounds[i], out=seen[i])
            torch.bmm(inverse[i], c.v[i] - seen[i, :, part.size :], out=e[i])
            passed = bounds[i] if c.whole is None else bounds[i] * c.whole[i]
            torch.baddbmm(passed, entering[i], e[i], out=bounds[i + 1])
        last[part.rows] = bounds[-1].view_as(last[part.rows])
        here = (weights @ (e * c.beta)).add_(seen[:, :, : part.size])
        _put(here, part, y)
        if keep:
            kept.append((bounds, e, inverse))
    return y, last, kept


def _parts(q: Tensor, v: Tensor, chunk: int) -> list[Segment]:
    batch, length, heads, values = v.shape
    return segments(batch, length, chunk, heads * max(q.shape[3], values), v.device)


def _put(x: Tensor, part: Segment, into: Tensor) -> None:
    """`_cut`, backwards: x: (m, N, c, X) into its place in (B, T, H, X)."""
    place(x.unflatten(1, (-1, into.shape[2])).transpose(0, 1), part, into)


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
        y, last, kept = _forward(q, k, v, beta, log_decay, state, chunk, keep=True)
        ctx.save_for_backward(q, k, v, beta, log_decay, y, *(x for part in kept for x in part))
        ctx.chunk = chunk
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, beta, log_decay, y, *kept = ctx.saved_tensors
        inputs = [q, k, v, beta, log_decay]
        out = [None if x is None else torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs]
        pull = grads[1].clone(memory_format=torch.contiguous_format)
        for number, part in reversed(list(enumerate(_parts(q, v, ctx.chunk)))):
            c = _chunks(part, q, k, v, beta, log_decay)
            bounds, e, inverse = kept[3 * number : 3 * number + 3]
            ends = torch.empty_like(bounds)
            ends[-1] = pull[part.rows].flatten(0, 1)
            ours = _pull_back(c, _cut(grads[0], part), _cut(y, part), bounds, e, inverse, ends)
            pull[part.rows] = ends[0].view_as(pull[part.rows])
            for found, into in zip(ours, out, strict=True):
                if found is not None and into is not None:
                    _put(found, part, into if into.dim() == 4 else into.unsqueeze(-1))
        if log_decay is not None and out[4] is not None:
            silent = log_decay < math.log(torch.finfo(log_decay.dtype).eps)  # a past that is gone: nothing but rounding
            out[4].masked_fill_(silent, 0)
        return *out, pull, None


def _pull_back(
    c: _Chunks, given: Tensor, y: Tensor, bounds: Tensor, e: Tensor, inverse: Tensor, ends: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of q, k, v, beta and log_decay, (m, N, c, X) each, and of the states into `ends`, whose last is given.

    With Z that of e's right-hand side, every gradient is one of the rows [dy; -Z] with what q and k met.
    """
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
