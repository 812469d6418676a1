"""Computes decays per key channel on a CPU by a compiled recurrence in place of chunks, several times faster.

Chunks need a decay for every pair of steps, which costs a CPU more than the few multiplications per step of a state
that stays in cache (`levelfield.ops.compiled.decay_per_key`).
Letters: B batch, T steps, H heads, K and V channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from levelfield.ops.custom import custom_op
from levelfield.ops.layers.underflow import forgets_all


def attend_by_key_cpu(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, bonus: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`attend_by_key` without chunks, for float32 and float64: (B, T, H, V) and the last state, (B, H, K, V).

    q, k, log_decay: (B, T, H, K); v: (B, T, H, V); state: (B, H, K, V); bonus: (H, K) or None.
    """
    from levelfield.ops.compiled.simd import LANES

    keys, exclusive = q.shape[3], bonus is not None
    bonus = q.new_zeros(q.shape[2:]) if bonus is None else bonus
    *inputs, state = (F.pad(x.to(v.dtype), (0, -keys % LANES)) for x in (q, k, log_decay, bonus, state.mT))
    y, last = recurrence(*inputs, v, state, exclusive)
    return y, last[..., :keys].mT


@custom_op("decay_per_key", "cpu")
def recurrence(
    q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor, v: Tensor, state: Tensor, exclusive: bool
) -> tuple[Tensor, Tensor]:
    """The results, (B, T, H, V), and the last state, (B, H, V, K).

    q, k, log_decay: (B, T, H, K); bonus: (H, K); v: (B, T, H, V); state: (B, H, V, K). K is a multiple of 16.
    """
    from levelfield.ops.compiled import decay_per_key, simd

    y, last = v.new_empty(v.shape), state.clone(memory_format=torch.contiguous_format)
    inputs, sizes = _inputs(q, k, log_decay, bonus, v), _sizes(q, v)
    simd.parallel_for(decay_per_key.forward, len(q) * q.shape[2], inputs, *_flat(last, y), exclusive, sizes)
    return y, last


@custom_op("decay_per_key_backward", "cpu")
def recurrence_backward(
    q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor, v: Tensor, state: Tensor, exclusive: bool, grad_y: Tensor,
    grad_last: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k, log_decay, bonus, v and state, each of the same shape, from those of the two results."""
    from levelfield.ops.compiled import decay_per_key, simd

    grad_state = grad_last.clone(memory_format=torch.contiguous_format)
    grad_q, grad_k, grad_log, grad_v = (x.new_empty(x.shape) for x in (q, k, log_decay, v))
    grad_bonus = bonus.new_zeros(len(q), *bonus.shape)
    grads = decay_per_key.Gradients(*_flat(grad_q, grad_k, grad_log, grad_bonus, grad_v, grad_state))
    inputs, sizes = _inputs(q, k, log_decay, bonus, v), _sizes(q, v)
    pairs = len(q) * q.shape[2]
    simd.parallel_for(decay_per_key.backward, pairs, inputs, *_flat(state, grad_y), grads, exclusive, sizes)
    return grad_q, grad_k, grad_log.masked_fill_(forgets_all(log_decay), 0), grad_bonus.sum(0), grad_v, grad_state


def _inputs(q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor, v: Tensor) -> Any:
    from levelfield.ops.compiled import decay_per_key

    return decay_per_key.Inputs(*_flat(q, k, log_decay.exp(), bonus, v))


def _sizes(q: Tensor, v: Tensor) -> Any:
    from levelfield.ops.compiled import decay_per_key

    return decay_per_key.Sizes(steps=q.shape[1], heads=q.shape[2], keys=q.shape[3], values=v.shape[3])


def _flat(*tensors: Tensor) -> list[Tensor]:
    return [x.contiguous().view(-1) for x in tensors]


@recurrence.register_fake
def _(
    q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor, v: Tensor, state: Tensor, exclusive: bool
) -> tuple[Tensor, Tensor]:
    return v.new_empty(v.shape), state.new_empty(state.shape)


@recurrence_backward.register_fake
def _(
    q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor, v: Tensor, state: Tensor, exclusive: bool, grad_y: Tensor,
    grad_last: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    return tuple(x.new_empty(x.shape) for x in (q, k, log_decay, bonus, v, state))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.exclusive = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad_y: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
    return *recurrence_backward(*ctx.saved_tensors, ctx.exclusive, grad_y, grad_last), None


recurrence.register_autograd(_backward, setup_context=_keep)
