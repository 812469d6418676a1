"""Computes `decayed_attention` with a decay for every key channel: gated linear attention, and RWKV-6 with `bonus`.

With L_i the sums of log-decays in a chunk, the score of steps j <= i is sum_k q_ik k_jk exp(L_ik - L_jk), which
`decayed_scores.py` computes without any exponent above 0; chunks are powers of two for its sake.

With `bonus` the sum is exclusive, that is, a step is read before it decays and enters the state: L_i is then the sum up
to the step before i, and the score of i = j is weighted by the bonus.

As in `decay_per_head.py`, dL_i = q_i dq_i - k_i dk_i, channel by channel, summed from the end of each chunk.
Letters: B batch, T steps, H heads, K and V channels, n rows, m chunks, N = n m H, c steps in a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.layers.underflow import decay_factor, forgets_all
from levelfield.ops.linear_attention.chunks import ChunkSpan, chunk_count, chunk_spans, from_chunks, to_chunks
from levelfield.ops.linear_attention.decay_per_key_cpu import attend_by_key_cpu
from levelfield.ops.linear_attention.decayed_scores import Pairs, pair_scores, pair_scores_backward

COMPILED = "cpu"  # the device that runs `attend_by_key_cpu` instead, while a head's state fits its cache
LARGEST = 1 << 15  # elements of such a state


class _Inputs(NamedTuple):
    q: Tensor  # (B, T, H, K)
    k: Tensor  # (B, T, H, K)
    v: Tensor  # (B, T, H, V)
    log_decay: Tensor  # (B, T, H, K)
    bonus: Tensor | None  # (H, K)


def attend_by_key(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, chunk: int, bonus: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The results, (B, T, H, V), and the state after the last step, (B, H, K, V).

    q, k, log_decay: (B, T, H, K); v: (B, T, H, V); state: (B, H, K, V); bonus: (H, K) or None. `chunk` is rounded up to
    a power of two; the compiled recurrence on a CPU does not use it.
    """
    if q.device.type == COMPILED and q.shape[3] * v.shape[3] <= LARGEST:
        return attend_by_key_cpu(q, k, v, log_decay, state=state, bonus=bonus)
    chunk, inputs = _power_of_two(chunk), _Inputs(q, k, v, log_decay, bonus)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (*inputs, state)):
        return _ByKey.apply(*inputs, state, chunk)  # pyright: ignore[reportReturnType]
    y, last, _ = _forward(inputs, state, chunk, keep=False)
    return y, last


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


class _Chunks(NamedTuple):
    """The chunks of a span side by side, with the decays between their steps and the states around them."""

    q: Tensor  # (N, c, K)
    k: Tensor  # (N, c, K)
    v: Tensor  # (N, c, V)
    gate: Tensor  # exp(log_decay): (N, c, K)
    log_read: Tensor  # float64 L with which q_i reads: (N, c, K)
    log_written: Tensor  # float64 L with which k_j is written: (N, c, K)
    before: Tensor  # exp(log_read): (N, c, K)
    after: Tensor  # exp(L_end - log_written): (N, c, K)
    whole: Tensor  # exp(L_end): (n, m, H, K, 1)

    @property
    def pairs(self) -> Pairs:
        return Pairs(self.q, self.k, gate=self.gate, log_read=self.log_read, log_written=self.log_written)

    @property
    def shape(self) -> torch.Size:
        """(n, m, H), whose product is N."""
        return self.whole.shape[:3]


def _chunks(span: ChunkSpan, inputs: _Inputs) -> _Chunks:
    cut = [to_chunks(x, span) for x in inputs[:4]]
    q, k, v, steps = (x.flatten(0, 2) for x in cut)
    log_written = steps.double().cumsum(1)
    log_read = log_written if inputs.bonus is None else log_written - steps
    end = log_written[:, -1:]
    return _Chunks(
        q=q,
        k=k,
        v=v,
        gate=decay_factor(steps, q.dtype),
        log_read=log_read,
        log_written=log_written,
        before=decay_factor(log_read, q.dtype),
        after=decay_factor(end - log_written, q.dtype),
        whole=decay_factor(end.squeeze(1), q.dtype).unflatten(0, cut[0].shape[:3]).unsqueeze(-1),
    )


def _bonuses(bonus: Tensor | None, span: ChunkSpan, rows: int) -> Tensor | None:
    """The bonus of every chunk's head: (H, K) -> (N, 1, K)."""
    return None if bonus is None else bonus.repeat(rows * span.chunks, 1).unsqueeze(1)


def _spans(inputs: _Inputs, chunk: int) -> list[ChunkSpan]:
    (batch, length, heads), wide = inputs.v.shape[:3], max(inputs.q.shape[3], inputs.v.shape[3])
    return chunk_spans((batch, length), chunk, heads * wide, inputs.v.device, _power_of_two)


def _forward(inputs: _Inputs, state: Tensor, chunk: int, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The results, the last state, and the states at the bounds of chunks, (B, chunks + 1, H, K, V), if `keep`."""
    v, bonus = inputs.v, inputs.bonus
    batch, length = v.shape[:2]
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    states = y.new_empty(batch, chunk_count(length, chunk) + 1 if keep else 0, *state.shape[1:])
    carry = state.clone()
    for span in _spans(inputs, chunk):
        c = _chunks(span, inputs)
        shape = (*c.shape, *state.shape[2:])
        bounds = y.new_empty(shape[0], span.chunks + 1, *shape[2:]) if not keep else states[span.rows, span.bounds]
        bounds[:, 0] = carry[span.rows]
        added = ((c.k * c.after).mT @ c.v).view(shape)
        for i in range(span.chunks):
            torch.addcmul(added[:, i], bounds[:, i], c.whole[:, i], out=bounds[:, i + 1])
        carry[span.rows] = bounds[:, -1]
        near = pair_scores(c.pairs, _bonuses(bonus, span, shape[0])) @ c.v
        near.baddbmm_(c.q * c.before, bounds[:, :-1].flatten(0, 2))
        from_chunks(near.unflatten(0, shape[:3]), span, y)
    return y, carry, states


class _ByKey(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_decay: Tensor,
        bonus: Tensor | None,
        state: Tensor,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        y, last, states = _forward(_Inputs(q, k, v, log_decay, bonus), state, chunk, keep=True)
        ctx.save_for_backward(q, k, v, log_decay, bonus, states)
        ctx.chunk = chunk
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *tensors, states = ctx.saved_tensors
        inputs = _Inputs(*tensors)
        grad_bonus = None if inputs.bonus is None else torch.zeros_like(inputs.bonus)
        out = _Inputs(
            *(torch.empty_like(x, memory_format=torch.contiguous_format) for x in tensors[:4]), bonus=grad_bonus
        )
        carry = grads[1].clone()
        for span in reversed(_spans(inputs, ctx.chunk)):
            bounds = states[span.rows, span.bounds]
            around = _Bounds(bounds, torch.empty_like(bounds))
            around.grads[:, -1] = carry[span.rows]
            _span_backward(span, inputs, to_chunks(grads[0], span).flatten(0, 2), around, out)
            carry[span.rows] = around.grads[:, 0]
        out.log_decay.masked_fill_(forgets_all(inputs.log_decay), 0)
        return *out, carry, None


class _Bounds(NamedTuple):
    """The states before, between and after the chunks of a span, and their gradients."""

    states: Tensor  # (n, m + 1, H, K, V)
    grads: Tensor  # (n, m + 1, H, K, V): the last is given, the others are written


def _span_backward(span: ChunkSpan, inputs: _Inputs, given: Tensor, around: _Bounds, out: _Inputs) -> None:
    """Writes the gradients of one span: those of the states to `around.grads`, those of the inputs to `out`.

    given: the gradient of y, (N, c, V). The gradient of the bonus is added to what `out` holds.
    """
    c, bonus, (bounds, grad_bounds) = _chunks(span, inputs), inputs.bonus, around
    shape, weights = c.shape, _bonuses(bonus, span, c.shape[0])
    back = ((c.q * c.before).mT @ given).view_as(bounds[:, 1:])
    for i in reversed(range(span.chunks)):
        torch.addcmul(back[:, i], grad_bounds[:, i + 1], c.whole[:, i], out=grad_bounds[:, i])
    ends = grad_bounds[:, 1:].flatten(0, 2)
    scores = given @ c.v.mT
    grad_q, grad_k = pair_scores_backward(c.pairs, scores, bonus is not None)
    grad_q.addcmul_(given @ bounds[:, :-1].flatten(0, 2).mT, c.before)
    grad_k.addcmul_(c.v @ ends.mT, c.after)
    grad_v = (c.k * c.after) @ ends + pair_scores(c.pairs, weights).mT @ given

    same = scores.diagonal(0, 1, 2).unsqueeze(-1)
    to_q, to_k = (same * x if weights is None else same * x * weights for x in (c.k, c.q))
    seen, entered = c.q * grad_q, c.k * grad_k  # without i = j, where the two would cancel
    slope = -entered
    slope[:, -1] += (bounds[:, 1:] * grad_bounds[:, 1:]).sum(-1).flatten(0, 2)
    if bonus is None:
        slope += seen
    else:
        slope[:, :-1] += seen[:, 1:]  # in the exclusive form a step is read without its own decay
    found = (grad_q + to_q, grad_k + to_k, grad_v, slope.flip(1).cumsum(1).flip(1))
    for grad, into in zip(found, out[:4], strict=True):
        from_chunks(grad.unflatten(0, shape), span, into)
    if out.bonus is not None:
        out.bonus.add_((same * c.q * c.k).sum(1).view(-1, *out.bonus.shape).sum(0))
