"""`chunked.decayed_attention` with a decay for every key channel: gated linear attention, and RWKV-6 with `bonus`.

With L_i the sums of log-decays in a chunk, the score of steps j <= i is sum_k q_ik k_jk exp(L_ik - L_jk). As a product
of q_i exp(L_i) and k_j exp(-L_j) it would overflow, so a chunk is halved until its blocks are SMALL (yang2024, section
4.3, has two levels of it):

    . . . .       the pairs between two halves meet at the border m between them,
    . . . .           (q_i exp(L_i - L_m)) . (k_j exp(L_m - L_j)),      no exponent above 0, one matrix product;
    x x . .       the pairs within a SMALL block (here of two) are taken by their distance: k_j decays step by step
    x x . .           on its way to q_i, and nothing is exponentiated.

With `bonus` a step is read before it decays and enters the state: L_i is then the sum up to the step before i, and the
score of i = j is weighted by the bonus instead.

As in `decay_by_head`, dL_i = q_i dq_i - k_i dk_i, channel by channel, summed from the end of each chunk.
Letters: B batch, T steps, H heads, K and V channels, n rows, m chunks, N = n m H, c steps in a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.linear_attention.chunks import Segment, count, pieces, place, segments
from levelfield.ops.linear_attention.decay_per_key_cpu import faded

COMPILED = "cpu"  # the device that runs `faded` instead, while a head's state fits its cache
LARGEST = 1 << 15  # numbers of such a state
SMALL = 8
GONE = -60.0  # a factor below e^-60 counts as that much: nothing, and CPUs are slow at numbers near the smallest ones


def attend_by_key(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, chunk: int, bonus: Tensor | None
) -> tuple[Tensor, Tensor]:
    """q, k, log_decay: (B, T, H, K); v: (B, T, H, V); state: (B, H, K, V); bonus: (H, K) or None.

    -> (B, T, H, V) and the state. `chunk` is rounded up to a power of two, and does not matter to `faded`.
    """
    if q.device.type == COMPILED and q.shape[3] * v.shape[3] <= LARGEST:
        return faded(q, k, v, log_decay, state, bonus)
    chunk = _power_of_two(chunk)
    inputs = (q, k, v, log_decay, state, bonus)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
        return _ByKey.apply(*inputs, chunk)  # pyright: ignore[reportReturnType]
    y, last, _ = _forward(q, k, v, log_decay, state, bonus, chunk, keep=False)
    return y, last


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


class _Chunks(NamedTuple):
    """The chunks of a part side by side, with the factors that link them to the states around."""

    q: Tensor  # (N, c, K)
    k: Tensor  # (N, c, K)
    v: Tensor  # (N, c, V)
    gate: Tensor  # exp(log_decay): (N, c, K)
    read: Tensor  # float64 L that q_i is read with: (N, c, K)
    kept: Tensor  # float64 L that k_j enters with: (N, c, K)
    before: Tensor  # exp(read): (N, c, K)
    after: Tensor  # exp(L_end - kept): (N, c, K)
    whole: Tensor  # exp(L_end): (n, m, H, K, 1)


def _chunks(part: Segment, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, early: bool) -> _Chunks:
    cut = [pieces(x, part) for x in (q, k, v, log_decay)]
    qs, ks, vs, steps = (x.flatten(0, 2) for x in cut)
    kept = steps.double().cumsum(1)
    read = kept - steps if early else kept
    before, after, whole = (_fading(x, qs.dtype) for x in (read, kept[:, -1:] - kept, kept[:, -1]))
    whole = whole.unflatten(0, cut[0].shape[:3]).unsqueeze(-1)
    return _Chunks(qs, ks, vs, _fading(steps, qs.dtype), read, kept, before, after, whole)


def _halves(c: _Chunks, half: int) -> tuple[Tensor, Tensor]:
    """exp(L_i - L_m) of second halves and exp(L_m - L_j) of first ones, blocks of 2 `half` steps: (N, g, half, K)."""
    read, kept = (x.unflatten(1, (-1, 2, half)) for x in (c.read, c.kept))
    border = kept[:, :, 0, -1:]
    late, early = read[:, :, 1] - border, border - kept[:, :, 0]
    return _fading(late, c.q.dtype), _fading(early, c.q.dtype)


def _fading(exponent: Tensor, kind: torch.dtype) -> Tensor:
    return exponent.to(kind).clamp(min=GONE).exp_()


def _levels(size: int) -> list[int]:
    """Halves of blocks in a chunk, down to SMALL."""
    return [1 << p for p in range(size.bit_length() - 2, SMALL.bit_length() - 2, -1)]


def _blocks(scores: Tensor, size: int) -> Tensor:
    """Those on the diagonal of (N, c, c), as a view (N, g, size, size)."""
    number = scores.shape[1] // size
    return scores.view(-1, number, size, number, size).diagonal(0, 1, 3).movedim(-1, 1)


def _travelling(x: Tensor, gate: Tensor, early: bool, forwards: bool) -> Iterator[Tensor]:
    """x (N, g, s, K) at distance 1, 2, ...: of step j as it has decayed at i = j + distance, or of i seen from j.

    Each has `distance` steps fewer, of i forwards and of j backwards.
    """
    size = x.shape[2]
    for distance in range(1, size):
        x = x[:, :, :-1] if forwards else x[:, :, 1:]
        if forwards:
            passed = gate[:, :, distance - early : size - early]
        else:
            passed = gate[:, :, 1 : size - distance + 1]
        # Read early, a neighbour has not decayed at all.
        if not early or distance > 1:
            x = x * passed
        yield x


def _scores(c: _Chunks, bonus: Tensor | None) -> Tensor:
    """(N, c, c), zero above the diagonal. bonus: (N, 1, K) or None."""
    size = c.q.shape[1]
    scores = c.q.new_zeros(c.q.shape[0], size, size)
    for half in _levels(size):
        late, early = _halves(c, half)
        qs, ks = c.q.unflatten(1, (-1, 2, half))[:, :, 1], c.k.unflatten(1, (-1, 2, half))[:, :, 0]
        _blocks(scores, 2 * half)[:, :, half:, :half] = (qs * late) @ (ks * early).mT
    small = min(SMALL, size)
    band = _blocks(scores, small)
    same = c.q * c.k if bonus is None else c.q * c.k * bonus
    scores.diagonal(0, 1, 2).copy_(same.sum(-1))
    qs, ks, gate = (x.unflatten(1, (-1, small)) for x in (c.q, c.k, c.gate))
    for distance, travelled in enumerate(_travelling(ks, gate, bonus is not None, True), 1):
        band.diagonal(-distance, 2, 3).copy_((qs[:, :, distance:] * travelled).sum(-1))
    return scores


def _scores_backward(c: _Chunks, grad: Tensor, early: bool) -> tuple[Tensor, Tensor]:
    """Gradients of q and k from that of the scores below the diagonal. grad: (N, c, c)."""
    size = c.q.shape[1]
    grad_q, grad_k = torch.zeros_like(c.q), torch.zeros_like(c.k)
    for half in _levels(size):
        late, fading = _halves(c, half)
        qs, ks, to_q, to_k = (x.unflatten(1, (-1, 2, half)) for x in (c.q, c.k, grad_q, grad_k))
        corner = _blocks(grad, 2 * half)[:, :, half:, :half]
        to_q[:, :, 1].addcmul_(corner @ (ks[:, :, 0] * fading), late)
        to_k[:, :, 0].addcmul_(corner.mT @ (qs[:, :, 1] * late), fading)
    small = min(SMALL, size)
    band = _blocks(grad, small)
    qs, ks, gate, to_q, to_k = (x.unflatten(1, (-1, small)) for x in (c.q, c.k, c.gate, grad_q, grad_k))
    both = zip(_travelling(ks, gate, early, True), _travelling(qs, gate, early, False), strict=True)
    for distance, (from_k, from_q) in enumerate(both, 1):
        pull = band.diagonal(-distance, 2, 3).unsqueeze(-1)
        to_q[:, :, distance:].addcmul_(pull, from_k)
        to_k[:, :, :-distance].addcmul_(pull, from_q)
    return grad_q, grad_k


def _bonuses(bonus: Tensor | None, part: Segment, rows: int) -> Tensor | None:
    """(H, K) -> (N, 1, K)."""
    return None if bonus is None else bonus.repeat(rows * part.chunks, 1).unsqueeze(1)


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor,
    bonus: Tensor | None,
    chunk: int,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, the last state, and with `keep` those before and after every chunk, (B, chunks + 1, H, K, V)."""
    batch, length, heads = v.shape[:3]
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    states = y.new_empty(batch, count(length, chunk) + 1 if keep else 0, *state.shape[1:])
    carry = state.clone()
    for part in segments(batch, length, chunk, heads * max(q.shape[3], v.shape[3]), v.device, _power_of_two):
        c = _chunks(part, q, k, v, log_decay, bonus is not None)
        shape = (*c.whole.shape[:3], *state.shape[2:])
        bounds = y.new_empty(shape[0], part.chunks + 1, *shape[2:]) if not keep else states[part.rows, part.bounds]
        bounds[:, 0] = carry[part.rows]
        added = ((c.k * c.after).mT @ c.v).view(shape)
        for i in range(part.chunks):
            torch.addcmul(added[:, i], bounds[:, i], c.whole[:, i], out=bounds[:, i + 1])
        carry[part.rows] = bounds[:, -1]
        near = _scores(c, _bonuses(bonus, part, shape[0])) @ c.v
        near.baddbmm_(c.q * c.before, bounds[:, :-1].flatten(0, 2))
        place(near.unflatten(0, shape[:3]), part, y)
    return y, carry, states


class _ByKey(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_decay: Tensor,
        state: Tensor,
        bonus: Tensor | None,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        y, last, states = _forward(q, k, v, log_decay, state, bonus, chunk, keep=True)
        ctx.save_for_backward(q, k, v, log_decay, bonus, states)
        ctx.chunk = chunk
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, log_decay, bonus, states = ctx.saved_tensors
        (batch, length, heads), wide = v.shape[:3], max(q.shape[3], v.shape[3])
        out = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, log_decay))
        grad_bonus = None if bonus is None else torch.zeros_like(bonus)
        carry = grads[1].clone()
        for part in reversed(segments(batch, length, ctx.chunk, heads * wide, v.device, _power_of_two)):
            c = _chunks(part, q, k, v, log_decay, bonus is not None)
            bounds, pull = states[part.rows, part.bounds], torch.empty_like(states[part.rows, part.bounds])
            pull[:, -1] = carry[part.rows]
            own = _pull_back(part, c, pieces(grads[0], part).flatten(0, 2), bounds, pull, bonus, out)
            carry[part.rows] = pull[:, 0]
            if grad_bonus is not None and own is not None:
                grad_bonus += own.view(-1, *grad_bonus.shape).sum(0)
        silent = log_decay < math.log(torch.finfo(log_decay.dtype).eps)  # a past that is gone: nothing but rounding
        return *out[:3], out[3].masked_fill_(silent, 0), carry, grad_bonus, None


def _pull_back(
    part: Segment,
    c: _Chunks,
    given: Tensor,
    bounds: Tensor,
    pull: Tensor,
    bonus: Tensor | None,
    out: tuple[Tensor, ...],
) -> Tensor | None:
    """Gradients of one part, into `out` (of q, k, v, log_decay) and `pull` (of the states, whose last is given).

    Returns each chunk's gradient of the bonus, (N, K), where there is one.
    """
    shape, weights = c.whole.shape[:3], _bonuses(bonus, part, c.whole.shape[0])
    back = ((c.q * c.before).mT @ given).view_as(bounds[:, 1:])
    for i in reversed(range(part.chunks)):
        torch.addcmul(back[:, i], pull[:, i + 1], c.whole[:, i], out=pull[:, i])
    ends = pull[:, 1:].flatten(0, 2)
    scores = given @ c.v.mT
    grad_q, grad_k = _scores_backward(c, scores, bonus is not None)
    grad_q.addcmul_(given @ bounds[:, :-1].flatten(0, 2).mT, c.before)
    grad_k.addcmul_(c.v @ ends.mT, c.after)
    grad_v = (c.k * c.after) @ ends + _scores(c, weights).mT @ given

    same = scores.diagonal(0, 1, 2).unsqueeze(-1)
    to_q, to_k = (same * x if weights is None else same * x * weights for x in (c.k, c.q))
    seen, entered = c.q * grad_q, c.k * grad_k  # without i = j, where the two would cancel
    slope = -entered
    slope[:, -1] += (bounds[:, 1:] * pull[:, 1:]).sum(-1).flatten(0, 2)
    if bonus is None:
        slope += seen
    else:
        slope[:, :-1] += seen[:, 1:]  # read early, a step does not see its own decay
    for number, grad in enumerate((grad_q + to_q, grad_k + to_k, grad_v, slope.flip(1).cumsum(1).flip(1))):
        place(grad.unflatten(0, shape), part, out[number])
    return None if bonus is None else (same * c.q * c.k).sum(1)
