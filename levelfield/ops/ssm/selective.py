"""Computes the selective scan of Mamba, a diagonal state space whose step, input and output vary over the steps.

    h_t = exp(dt_t a) h_{t-1} + dt_t x_t b_t,     y_t = h_t c_t               h: (E, N)

    y, state = selective_scan(x, dt, a, b, c)
    more, state = selective_scan(*later, state)

Each of the E channels has N states with decays of their own, so that, unlike with decays per head, this is not a matrix
product: it is elementwise work on B T E N numbers. They exist for one block of steps at a time, in a CPU's cache. The
forward pass keeps the states between blocks, and the backward pass recomputes the rest.
Letters: B batch, T steps, E channels, N states, L steps and R rows of a block.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.custom import custom_op
from levelfield.ops.layers.underflow import LOG_UNDERFLOW
from levelfield.ops.opaque import opaque
from levelfield.ops.vendor.dispatch import try_kernel

CPU_BLOCK_ELEMENTS = 1 << 17  # states in a block: 512 KiB of float32
DEVICE_BLOCK_ELEMENTS = 1 << 26
STEPS = 64  # the most steps of a block on a CPU


class _Inputs(NamedTuple):
    x: Tensor  # (B, T, E)
    dt: Tensor  # (B, T, E)
    a: Tensor  # (E, N)
    b: Tensor  # (B, T, N)
    c: Tensor  # (B, T, N)


@opaque
def selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The outputs, (B, T, E), and the state after the last step, (B, E, N), in float32 or wider.

    x, dt: (B, T, E), dt >= 0; a: (E, N), <= 0; b, c: (B, T, N); state: (B, E, N), or None for zeros. See gu2023,
    algorithm 2; b is discretised by Euler's rule, as in its code. Equal to `naive_selective_scan`.
    """
    given = try_kernel("selective_scan", naive_selective_scan, (x, dt, a, b, c, state))
    if given is not None:
        return given
    wide = torch.promote_types(x.dtype, torch.float32)
    x, dt, a, b, c = (part.to(wide) for part in (x, dt, a, b, c))
    state = x.new_zeros(x.shape[0], *a.shape) if state is None else state.to(wide)
    with torch.autocast(x.device.type, enabled=False):
        inputs = (x, dt, a, b, c, state)
        if torch.is_grad_enabled() and any(part.requires_grad for part in inputs):
            return _Selective.apply(*inputs)  # pyright: ignore[reportReturnType]
        return _forward(_Inputs(x, dt, a, b, c), state, None)


def naive_selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`selective_scan` by its equation, step by step. Arguments and results have the same shapes."""
    state = x.new_zeros(x.shape[0], *a.shape) if state is None else state
    out = []
    for t in range(x.shape[1]):
        step = dt[:, t, :, None]
        state = torch.exp(step * a) * state + step * x[:, t, :, None] * b[:, t, None, :]
        out.append((state @ c[:, t, :, None]).squeeze(-1))
    return torch.stack(out, 1), state


def step_bias(count: int, low: float, high: float, generator: Generator) -> Tensor:
    """A bias, (count,), whose softplus is log-uniform in [low, high], and at least 1e-4 as in the authors' code."""
    dt = torch.empty(count).uniform_(math.log(low), math.log(high), generator=generator).exp().clamp(min=1e-4)
    return dt + torch.log(-torch.expm1(-dt))


Block = tuple[slice, slice]


def _block_size(x: Tensor, states: int) -> tuple[int, int]:
    """The numbers of rows and of steps in a block. x: (B, T, E)."""
    batch, length, channels = x.shape
    cpu = x.device.type == "cpu"
    budget = max(1, (CPU_BLOCK_ELEMENTS if cpu else DEVICE_BLOCK_ELEMENTS) // (channels * states))
    rows = min(batch, max(1, budget // min(length, STEPS)))
    return rows, max(1, min(STEPS if cpu else length, budget // rows))


def _blocks(x: Tensor, states: int) -> list[Block]:
    """The rows and steps of each block; blocks of the same rows come in order of time."""
    (batch, length, _), (rows, steps) = x.shape, _block_size(x, states)
    return [
        (slice(top, min(batch, top + rows)), slice(start, min(length, start + steps)))
        for top in range(0, batch, rows)
        for start in range(0, length, steps)
    ]


def _states(block: Block, inputs: _Inputs, start: Tensor) -> tuple[Tensor, Tensor]:
    """The decays exp(dt a) and the states h of a block, (L, R, E, N) each. start: the state before it, (R, E, N)."""
    x, dt, b = (part[block].transpose(0, 1) for part in (inputs.x, inputs.dt, inputs.b))
    decay = (dt.unsqueeze(-1) * inputs.a).clamp_(min=LOG_UNDERFLOW).exp_()
    h = (dt * x).unsqueeze(-1) * b.unsqueeze(-2)
    before = start
    for here, factor in zip(h.unbind(0), decay.unbind(0), strict=True):
        before = here.addcmul_(factor, before)
    return decay, h


def _forward(inputs: _Inputs, state: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """The outputs and the last state. The states before each block are written to `kept`, (blocks, B, E, N)."""
    x, _, a, _, c = inputs
    y, carry = torch.empty(x.shape, dtype=x.dtype, device=x.device), state.clone()
    _, steps = _block_size(x, a.shape[1])
    for block in _blocks(x, a.shape[1]):
        start = carry[block[0]]
        if kept is not None:
            kept[block[1].start // steps, block[0]] = start
        h = _states(block, inputs, start)[1]
        y[block] = (h @ c[block].transpose(0, 1).unsqueeze(-1)).squeeze(-1).transpose(0, 1)
        carry[block[0]] = h[-1]
    return y, carry


# Custom operators, because passes that count work run them without values, where a loop over steps takes minutes.
@custom_op("selective")
def _scan(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, (B, T, E), the last state, and the states before each block of steps: (blocks, B, E, N)."""
    kept = _bounds(x, state)
    return *_forward(_Inputs(x, dt, a, b, c), state, kept), kept


@custom_op("selective_backward")
def _scan_backward(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, kept: Tensor, grad: Tensor, grad_last: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, dt, a, b, c and the state, in their shapes, from those of the outputs and the last state."""
    inputs, carry = _Inputs(x, dt, a, b, c), grad_last.clone()
    out = _Inputs(*(torch.empty(part.shape, dtype=part.dtype, device=part.device) for part in inputs))
    out.a.zero_()
    _, steps = _block_size(x, a.shape[1])
    for block in reversed(_blocks(x, a.shape[1])):
        given, start = grad[block].transpose(0, 1), kept[block[1].start // steps, block[0]]
        _block_backward(block, inputs, given, start, carry[block[0]], out=out)
    return out.x, out.dt, out.a, out.b, out.c, carry


def _bounds(x: Tensor, state: Tensor) -> Tensor:
    """An empty array for the states before each block of steps: (blocks, B, E, N)."""
    return state.new_empty(-(-x.shape[1] // _block_size(x, state.shape[2])[1]), *state.shape)


@_scan.register_fake
def _(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), state.new_empty(state.shape), _bounds(x, state)


@_scan_backward.register_fake
def _(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, kept: Tensor, grad: Tensor, grad_last: Tensor
) -> tuple[Tensor, ...]:
    return tuple(part.new_empty(part.shape) for part in (x, dt, a, b, c, grad_last))


class _Selective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        y, last, kept = _scan(x, dt, a, b, c, state=state)
        ctx.save_for_backward(x, dt, a, b, c, kept)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _scan_backward(*ctx.saved_tensors, *grads)


def _block_backward(
    block: Block, inputs: _Inputs, given: Tensor, start: Tensor, carry: Tensor, *, out: _Inputs
) -> None:
    """Writes the gradients of a block to `out`, and takes `carry`, that of the state, (R, E, N), to the block's start.

    given: the gradient of y, (L, R, E); start: the state before the block, (R, E, N). That of a is added up.
    """
    decay, h = _states(block, inputs, start)
    xs, steps, bs, cs = (part[block].transpose(0, 1) for part in (inputs.x, inputs.dt, inputs.b, inputs.c))
    grad_h = given.unsqueeze(-1) * cs.unsqueeze(-2)  # (L, R, E, N)
    after = carry
    for here, factor in zip(reversed(grad_h.unbind(0)), reversed(decay.unbind(0)), strict=True):
        here += after
        after = here * factor
    carry.copy_(after)
    entered = (grad_h @ bs.unsqueeze(-1)).squeeze(-1)  # gradient of dt x
    out.x[block] = (entered * steps).transpose(0, 1)
    out.b[block] = ((steps * xs).unsqueeze(-2) @ grad_h).squeeze(-2).transpose(0, 1)
    out.c[block] = (given.unsqueeze(-2) @ h).squeeze(-2).transpose(0, 1)
    exponent = grad_h.mul_(decay)  # gradient of dt a
    exponent[1:] *= h[:-1]
    exponent[0] *= start
    torch.mul(exponent, inputs.a, out=h)
    out.dt[block] = torch.addcmul(h.sum(-1), entered, xs).transpose(0, 1)
    out.a.add_(exponent.mul_(steps.unsqueeze(-1)).sum((0, 1)))
