"""The selective scan of Mamba: a diagonal state space whose step, input and output change from step to step.

    h_t = exp(dt_t a) h_{t-1} + dt_t x_t b_t,     y_t = h_t c_t               h: (E, N)

    y, state = selective_scan(x, dt, a, b, c)
    more, state = selective_scan(*later, state)

Each of the E channels has N states with decays of their own, so unlike decays per head this is no matrix product: the
work is B T E N numbers, elementwise. They exist for a block of steps only, in a CPU's cache. The forward keeps the
states between blocks, and the backward computes the rest again.
Letters: B batch, T steps, E channels, N states, L steps and R rows of a block.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.vendor.dispatch import attempt

CPU_NUMBERS = 1 << 17  # states in a block: 512 KiB of float32
DEVICE_NUMBERS = 1 << 26
STEPS = 64  # at most so many in a block on a CPU
GONE = -60.0  # a factor below e^-60 counts as that much: nothing, and CPUs are slow at numbers near the smallest ones


def selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x, dt: (B, T, E), dt >= 0; a: (E, N) <= 0; b, c: (B, T, N); state: (B, E, N) or None for zeros.

    -> y (B, T, E) and the state after the last step, in float32 or wider (gu2023, algorithm 2; b is stepped by Euler's
    rule as in its code). Equal to `naive_selective_scan`.
    """
    given = attempt("selective_scan", naive_selective_scan, (x, dt, a, b, c, state))
    if given is not None:
        return given
    wide = torch.promote_types(x.dtype, torch.float32)
    x, dt, a, b, c = (part.to(wide) for part in (x, dt, a, b, c))
    state = x.new_zeros(x.shape[0], *a.shape) if state is None else state.to(wide)
    with torch.autocast(x.device.type, enabled=False):
        inputs = (x, dt, a, b, c, state)
        if torch.is_grad_enabled() and any(part.requires_grad for part in inputs):
            return _Selective.apply(*inputs)  # pyright: ignore[reportReturnType]
        return _forward(*inputs, None)


def naive_selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`selective_scan` step by step, as its equation says."""
    state = x.new_zeros(x.shape[0], *a.shape) if state is None else state
    out = []
    for t in range(x.shape[1]):
        step = dt[:, t, :, None]
        state = torch.exp(step * a) * state + step * x[:, t, :, None] * b[:, t, None, :]
        out.append((state @ c[:, t, :, None]).squeeze(-1))
    return torch.stack(out, 1), state


def step_bias(count: int, low: float, high: float, generator: Generator) -> Tensor:
    """(count,): softplus of it is log-uniform in [low, high], and at least 1e-4 as in the authors' code."""
    dt = torch.empty(count).uniform_(math.log(low), math.log(high), generator=generator).exp().clamp(min=1e-4)
    return dt + torch.log(-torch.expm1(-dt))


Block = tuple[slice, slice]


def _block_size(x: Tensor, states: int) -> tuple[int, int]:
    """Rows and steps of a block."""
    batch, length, channels = x.shape
    cpu = x.device.type == "cpu"
    budget = max(1, (CPU_NUMBERS if cpu else DEVICE_NUMBERS) // (channels * states))
    rows = min(batch, max(1, budget // min(length, STEPS)))
    return rows, max(1, min(STEPS if cpu else length, budget // rows))


def _blocks(x: Tensor, states: int) -> list[Block]:
    """Rows and steps of each block, those of the same rows in order of time."""
    (batch, length, _), (rows, steps) = x.shape, _block_size(x, states)
    return [
        (slice(top, min(batch, top + rows)), slice(start, min(length, start + steps)))
        for top in range(0, batch, rows)
        for start in range(0, length, steps)
    ]


def _states(block: Block, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """exp(dt a) and h of a block, (L, R, E, N) both."""
    x, dt, b = (part[block].transpose(0, 1) for part in (x, dt, b))
    decay = (dt.unsqueeze(-1) * a).clamp_(min=GONE).exp_()
    h = (dt * x).unsqueeze(-1) * b.unsqueeze(-2)
    before = start
    for here, fading in zip(h.unbind(0), decay.unbind(0), strict=True):
        before = here.addcmul_(fading, before)
    return decay, h


def _forward(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor, kept: Tensor | None
) -> tuple[Tensor, Tensor]:
    """y and the last state; the states before each block are put into `kept`."""
    y, carry = torch.empty(x.shape, dtype=x.dtype, device=x.device), state.clone()
    _, steps = _block_size(x, a.shape[1])
    for block in _blocks(x, a.shape[1]):
        start = carry[block[0]]
        if kept is not None:
            kept[block[1].start // steps, block[0]] = start
        h = _states(block, x, dt, a, b, start)[1]
        y[block] = (h @ c[block].transpose(0, 1).unsqueeze(-1)).squeeze(-1).transpose(0, 1)
        carry[block[0]] = h[-1]
    return y, carry


# Operators of our own, because passes that count work run them without values, where a loop over steps takes minutes.
@torch.library.custom_op("levelfield::selective", mutates_args=())
def _run(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y, the last state, and the states before each block of steps: (blocks, B, E, N)."""
    kept = _room(x, state)
    return *_forward(x, dt, a, b, c, state, kept), kept


@torch.library.custom_op("levelfield::selective_backward", mutates_args=())
def _pull(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, kept: Tensor, grad: Tensor, grad_last: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, dt, a, b, c and the state from those of y and the last state."""
    out = tuple(torch.empty(part.shape, dtype=part.dtype, device=part.device) for part in (x, dt, b, c))
    grad_a, carry = torch.zeros_like(a), grad_last.clone()
    _, steps = _block_size(x, a.shape[1])
    for block in reversed(_blocks(x, a.shape[1])):
        given, start = grad[block].transpose(0, 1), kept[block[1].start // steps, block[0]]
        _pull_back(block, (x, dt, a, b, c), given, start, carry[block[0]], grad_a, out)
    return out[0], out[1], grad_a, out[2], out[3], carry


def _room(x: Tensor, state: Tensor) -> Tensor:
    return state.new_empty(-(-x.shape[1] // _block_size(x, state.shape[2])[1]), *state.shape)


@_run.register_fake
def _(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), state.new_empty(state.shape), _room(x, state)


@_pull.register_fake
def _(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, kept: Tensor, grad: Tensor, grad_last: Tensor
) -> tuple[Tensor, ...]:
    return tuple(part.new_empty(part.shape) for part in (x, dt, a, b, c, grad_last))


class _Selective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        y, last, kept = _run(x, dt, a, b, c, state)
        ctx.save_for_backward(x, dt, a, b, c, kept)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _pull(*ctx.saved_tensors, *grads)


def _pull_back(
    block: Block,
    inputs: tuple[Tensor, ...],
    given: Tensor,
    start: Tensor,
    carry: Tensor,
    grad_a: Tensor,
    out: tuple[Tensor, ...],
) -> None:
    """Gradients of a block: added to `grad_a`, written to `out` (of x, dt, b, c), and `carry`, of the state, moved."""
    x, dt, a, b, c = inputs
    decay, h = _states(block, x, dt, a, b, start)
    xs, steps, bs, cs = (part[block].transpose(0, 1) for part in (x, dt, b, c))
    pull = given.unsqueeze(-1) * cs.unsqueeze(-2)  # gradient of h, (L, R, E, N)
    after = carry
    for here, fading in zip(reversed(pull.unbind(0)), reversed(decay.unbind(0)), strict=True):
        here += after
        after = here * fading
    carry.copy_(after)
    entered = (pull @ bs.unsqueeze(-1)).squeeze(-1)  # gradient of dt x
    out[0][block] = (entered * steps).transpose(0, 1)
    out[2][block] = ((steps * xs).unsqueeze(-2) @ pull).squeeze(-2).transpose(0, 1)
    out[3][block] = (given.unsqueeze(-2) @ h).squeeze(-2).transpose(0, 1)
    exponent = pull.mul_(decay)  # gradient of dt a
    exponent[1:] *= h[:-1]
    exponent[0] *= start
    torch.mul(exponent, a, out=h)
    out[1][block] = torch.addcmul(h.sum(-1), entered, xs).transpose(0, 1)
    grad_a += exponent.mul_(steps.unsqueeze(-1)).sum((0, 1))
