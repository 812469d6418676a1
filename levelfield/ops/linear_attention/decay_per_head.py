"""`chunked.decayed_attention` with one decay a head and step: the state-space duality of Mamba-2.

With L_i the sum of log-decays from a chunk's first step through its step i (dao2024, section 6):

    y_i  = sum_{j <= i} exp(L_i - L_j) (q_i . k_j) v_j  +  exp(L_i) q_i S_before
    S_after = exp(L_end) S_before  +  sum_j exp(L_end - L_j) k_j v_j^T

The scores q_i . k_j, the state's products and their gradients are taken once for all heads that share q and k.

The gradient of the log-decays needs no gradient of the decays between pairs: L_i enters y_i like a factor of q_i, and
-L_j like one of k_j, so that dL_i = dy_i . y_i - dv_i . v_i, and a decay's gradient is the sum of those after it, begun
anew in each chunk from what the state at its end says, so that rounding does not pile up.
Letters: B batch, T steps, H heads, G groups, R = H / G, K and V channels, n rows, m chunks, c steps in a chunk.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.linear_attention.chunks import Segment, count, pieces, place, segments

GONE = -60.0  # a factor below e^-60 counts as that much: nothing, and CPUs are slow at numbers near the smallest ones


def attend_by_head(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """q, k: (B, T, G, K); v: (B, T, H, V); log_decay: (B, T, H); state: (B, H, K, V) -> (B, T, H, V) and the state."""
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, log_decay, state)):
        return _ByHead.apply(q, k, v, log_decay, state, chunk)  # pyright: ignore[reportReturnType]
    y, last, _ = _forward(q, k, v, log_decay, state, chunk, keep=False)
    return y, last


class _Decays(NamedTuple):
    """Factors within a chunk, none above 1."""

    before: Tensor  # exp(L_i): (n, m, c, H, 1)
    after: Tensor  # exp(L_end - L_j): (n, m, c, H, 1)
    whole: Tensor  # exp(L_end): (n, m, G, 1, R, 1)
    pairs: Tensor  # exp(L_i - L_j) for j <= i, else 0: (n, m, G, R, c, c)


def _decays(log_decay: Tensor, part: Segment, groups: int) -> _Decays:
    """Sums in float64: differences of large ones must not lose the small steps between them."""
    total = log_decay[part.rows, part.steps].unflatten(1, (part.chunks, part.size)).double().cumsum(2)
    end, kind = total[:, :, -1:], log_decay.dtype
    rows = total.transpose(2, 3).unflatten(2, (groups, -1)).contiguous()  # (n, m, G, R, c)
    lower = torch.ones(part.size, part.size, dtype=kind, device=total.device).tril_()
    # Above the diagonal exponents are positive: held at 0, and struck out.
    pairs = (rows.unsqueeze(-1) - rows.unsqueeze(-2)).to(kind).clamp_(GONE, 0).exp_().mul_(lower)
    before, after = (x.to(kind).clamp(min=GONE).exp_().unsqueeze(-1) for x in (total, end - total))
    return _Decays(before, after, before[:, :, -1].unflatten(2, (groups, 1, -1)), pairs)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, chunk: int, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """y, the last state, and with `keep` those before and after every chunk, (B, chunks + 1, G, K, R, V)."""
    (batch, length, heads, values), groups = v.shape, q.shape[2]
    carry = _grouped(state, groups)
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    states = y.new_empty(batch, count(length, chunk) + 1 if keep else 0, *carry.shape[1:])
    if keep:
        states[:, 0] = carry
    for part in segments(batch, length, chunk, heads * values, v.device):
        d = _decays(log_decay, part, groups)
        qs, ks, vs = pieces(q, part), pieces(k, part), pieces(v, part)
        bounds = states[part.rows, part.bounds] if keep else y.new_empty(qs.shape[0], part.chunks + 1, *carry.shape[1:])
        bounds[:, 0] = carry[part.rows]
        added = ks.mT @ _by_group(vs.transpose(2, 3) * d.after, groups)
        _pass_on(bounds, added.view_as(bounds[:, 1:]), d.whole)
        carry[part.rows] = bounds[:, -1]
        read = qs @ bounds[:, :-1].flatten(-2)  # (n, m, G, c, R V)
        weights = ((qs @ ks.mT).unsqueeze(3) * d.pairs).flatten(2, 3)  # (n, m, H, c, c)
        here = y[part.rows, part.steps].unflatten(1, (part.chunks, part.size))
        torch.mul(_by_head(read, heads), d.before, out=here)
        here += (weights @ vs).transpose(2, 3)
    return y, carry.transpose(2, 3).flatten(1, 2), states


def _pass_on(bounds: Tensor, added: Tensor, whole: Tensor) -> None:
    """bounds[:, i + 1] = whole_i bounds[:, i] + added_i, in place. (n, m + 1, ...), (n, m, ...) and factors of it."""
    for i in range(added.shape[1]):
        torch.addcmul(added[:, i], bounds[:, i], whole[:, i], out=bounds[:, i + 1])


def _grouped(state: Tensor, groups: int) -> Tensor:
    """A copy, (B, H, K, V) -> (B, G, K, R, V)."""
    return state.unflatten(1, (groups, -1)).transpose(2, 3).clone(memory_format=torch.contiguous_format)


def _by_group(x: Tensor, groups: int) -> Tensor:
    """(n, m, c, H, V) -> (n, m, G, c, R V)."""
    return x.unflatten(3, (groups, -1)).transpose(2, 3).flatten(-2)


def _by_head(x: Tensor, heads: int) -> Tensor:
    """(n, m, G, c, R V) -> (n, m, c, H, V)."""
    return x.transpose(2, 3).reshape(*x.shape[:2], x.shape[3], heads, -1)


class _ByHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        y, last, states = _forward(q, k, v, log_decay, state, chunk, keep=True)
        ctx.save_for_backward(q, k, v, log_decay, y, states)
        ctx.chunk = chunk
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, log_decay, y, states = ctx.saved_tensors
        (batch, length, heads, values), groups = v.shape, q.shape[2]
        out = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, log_decay))
        carry = _grouped(grads[1], groups)
        for part in reversed(segments(batch, length, ctx.chunk, heads * values, v.device)):
            bounds = states[part.rows, part.bounds]
            pull = torch.empty_like(bounds)
            pull[:, -1] = carry[part.rows]
            _pull_back(part, (q, k, v, log_decay), grads[0], y, bounds, pull, out)
            carry[part.rows] = pull[:, 0]
        silent = log_decay < math.log(torch.finfo(log_decay.dtype).eps)  # a past that is gone: nothing but rounding
        return *out[:3], out[3].masked_fill_(silent, 0), carry.transpose(2, 3).flatten(1, 2), None


def _pull_back(
    part: Segment,
    inputs: tuple[Tensor, ...],
    grad: Tensor,
    y: Tensor,
    bounds: Tensor,
    pull: Tensor,
    out: tuple[Tensor, ...],
) -> None:
    """Gradients of one part, into `out` (of q, k, v, log_decay) and `pull` (of the states, whose last is given)."""
    q, k, v, log_decay = inputs
    groups, heads = q.shape[2], v.shape[2]
    d = _decays(log_decay, part, groups)
    qs, ks, vs, given = (pieces(x, part) for x in (q, k, v, grad))
    # Products with a transposed right side run at half speed on a CPU: the smaller factor is turned in memory.
    faded = _by_group(given.transpose(2, 3) * d.before, groups)  # (n, m, G, c, R V)
    entered = _by_group(vs.transpose(2, 3) * d.after, groups).mT.contiguous()
    back = (qs.mT @ faded).view_as(bounds[:, 1:])
    for i in reversed(range(part.chunks)):
        torch.addcmul(back[:, i], pull[:, i + 1], d.whole[:, i], out=pull[:, i])
    ends = pull[:, 1:].flatten(-2)  # (n, m, G, K, R V)

    scores = (given @ vs.mT).unflatten(2, (groups, -1)).mul_(d.pairs).sum(3)  # (n, m, G, c, c)
    weights = d.pairs.mul_((qs @ ks.mT).unsqueeze(3)).flatten(2, 3)
    place(scores @ ks + (bounds[:, :-1].flatten(-2) @ faded.mT.contiguous()).mT, part, out[0])
    place(scores.mT @ qs + (ends @ entered).mT, part, out[1])
    grad_v = _by_head(ks @ ends, heads).mul_(d.after).add_((weights.mT @ given).transpose(2, 3))
    place(grad_v.transpose(2, 3), part, out[2])

    read = grad[part.rows, part.steps] * y[part.rows, part.steps]
    slope = read.sum(-1).unflatten(1, (part.chunks, part.size)) - (grad_v * vs.transpose(2, 3)).sum(-1)
    slope[:, :, -1] += (bounds[:, 1:] * pull[:, 1:]).sum((3, 5)).flatten(2)
    place(slope.flip(2).cumsum(2).flip(2).transpose(2, 3).unsqueeze(-1), part, out[3].unsqueeze(-1))
