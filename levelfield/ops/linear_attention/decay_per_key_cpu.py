"""`decay_by_key` on a CPU: a compiled recurrence (`levelfield.ops.compiled.decay_per_key`) in place of chunks,
several times faster.

Products between pairs of steps need decays between them, which cost a CPU more than the few multiplications per step
that a state in cache does. Letters: B batch, T steps, H heads, K and V channels.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def faded(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor, bonus: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`attend_by_key` without chunks, for float32 and float64."""
    from levelfield.ops.compiled.simd import LANES

    keys, early = q.shape[3], bonus is not None
    bonus = q.new_zeros(q.shape[2:]) if bonus is None else bonus
    *inputs, state = (F.pad(x.to(v.dtype), (0, -keys % LANES)) for x in (q, k, log_decay, bonus, state.mT))
    y, last = recurrence(*inputs, v, state, early)
    return y, last[..., :keys].mT


@torch.library.custom_op("levelfield::faded", mutates_args=(), device_types="cpu")
def recurrence(
    q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor, v: Tensor, state: Tensor, early: bool
) -> tuple[Tensor, Tensor]:
    """q, k, log_decay: (B, T, H, K); bonus: (H, K); v: (B, T, H, V); state: (B, H, V, K), K a multiple of 16."""
    from levelfield.ops.compiled import decay_per_key, simd

    y, last = v.new_empty(v.shape), state.clone(memory_format=torch.contiguous_format)
    arrays = _flat(q, k, v, log_decay.exp(), bonus, last, y)
    simd.spread(decay_per_key.run, len(q) * q.shape[2], *arrays, early, (*q.shape[1:], v.shape[3]))
    return y, last


@torch.library.custom_op("levelfield::faded_backward", mutates_args=(), device_types="cpu")
def pull(
    q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor, v: Tensor, state: Tensor, early: bool, y: Tensor,
    last: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k, log_decay, bonus, v and state from those of `recurrence`."""
    from levelfield.ops.compiled import decay_per_key, simd

    back = last.clone(memory_format=torch.contiguous_format)
    grad_q, grad_k, grad_log, grad_v = (x.new_empty(x.shape) for x in (q, k, log_decay, v))
    grad_bonus = bonus.new_zeros(len(q), *bonus.shape)
    arrays = _flat(q, k, v, log_decay.exp(), bonus, state, y, back, grad_q, grad_k, grad_v, grad_log, grad_bonus)
    simd.spread(decay_per_key.pull, len(q) * q.shape[2], *arrays, early, (*q.shape[1:], v.shape[3]))
    silent = log_decay < math.log(torch.finfo(log_decay.dtype).eps)  # a past that is gone: nothing but rounding
    return grad_q, grad_k, grad_log.masked_fill_(silent, 0), grad_bonus.sum(0), grad_v, back


def _flat(*tensors: Tensor) -> list[Tensor]:
    return [x.contiguous().view(-1) for x in tensors]


@recurrence.register_fake
def _(
    q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor, v: Tensor, state: Tensor, early: bool
) -> tuple[Tensor, Tensor]:
    return v.new_empty(v.shape), state.new_empty(state.shape)


@pull.register_fake
def _(
    q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor, v: Tensor, state: Tensor, early: bool, y: Tensor,
    last: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    q, k, log_decay, bonus, v, state = (x.new_empty(x.shape) for x in (q, k, log_decay, bonus, v, state))
    return q, k, log_decay, bonus, v, state


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.early = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, y: Tensor, last: Tensor) -> tuple[Tensor | None, ...]:
    return *pull(*ctx.saved_tensors, ctx.early, y, last), None


recurrence.register_autograd(_backward, setup_context=_keep)
