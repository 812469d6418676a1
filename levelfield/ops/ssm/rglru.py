"""Computes the real-gated linear recurrent unit, a diagonal recurrence whose decay and input are gated by the input.

    r_t = sigmoid(recurrence gate),  i_t = sigmoid(input gate),  a_t = exp(-rate r_t)
    h_t = a_t h_{t-1} + sqrt(1 - a_t^2) (i_t u_t)                       (de2024, equations 1-4; rate = c softplus)

Everything is elementwise, so with autograd some nine arrays (B, T, N) would be kept for the backward pass. Here it
keeps u, the gates and h, and recomputes the rest. As in the released RecurrentGemma, the first step of a sequence
enters with weight one, and the slope of the square root is at most 1000, where a_t is near one.
Letters: B batch, T steps, N channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.opaque import opaque
from levelfield.ops.ssm.scan import states, states_backward

CPU_BLOCK_ELEMENTS = 1 << 16  # of one array, computed at a time: 256 KiB of float32
LEAST_GAIN = 5e-4  # d sqrt(x) / dx = 1 / (2 sqrt(x)) stays below 1000


@opaque
def gated_scan(
    u: Tensor, input_gate: Tensor, recurrence_gate: Tensor, rate: Tensor, initial: Tensor | None = None
) -> Tensor:
    """The states h: (B, T, N).

    u and the gates before their sigmoids: (B, T, N); rate: (N,) >= 0; initial: the state before the first step, (B, N),
    or None at the start of the sequences. All are float32 or all float64. Equal to `naive_gated_scan`.
    """
    starts = initial is None
    initial = u.new_zeros(u.shape[0], u.shape[2]) if initial is None else initial
    gates = (u.contiguous(), input_gate.contiguous(), recurrence_gate.contiguous())
    return _Gated.apply(*gates, rate, initial, starts)  # pyright: ignore[reportReturnType]


def naive_gated_scan(
    u: Tensor, input_gate: Tensor, recurrence_gate: Tensor, rate: Tensor, initial: Tensor | None = None
) -> Tensor:
    """`gated_scan` by its equations, step by step. Arguments and result have the same shapes."""
    steps, state = [], initial
    for t in range(u.shape[1]):
        a = torch.exp(-rate * torch.sigmoid(recurrence_gate[:, t]))
        entering = torch.sigmoid(input_gate[:, t]) * u[:, t]
        state = entering if state is None else a * state + torch.sqrt(1 - a**2) * entering
        steps.append(state)
    return torch.stack(steps, 1)


class _Gated(torch.autograd.Function):
    """The recurrence and its gradient, a block of rows of the flat arrays (B T, N) at a time; row r is step r % T."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, input_gate: Tensor, recurrence_gate: Tensor, rate: Tensor, initial: Tensor, starts: bool
    ) -> Tensor:
        a, b = torch.empty_like(u), torch.empty_like(u)
        for first, here, opening, closing, decay, entering in _blocks(u, input_gate, recurrence_gate, a, b):
            log_a = torch.mul(torch.sigmoid(closing), -rate, out=decay)
            gain = _gain(log_a, first if starts else None)
            torch.mul(gain.mul_(torch.sigmoid(opening)), here, out=entering)
            log_a.exp_()
        h = states(a, b, initial, False)
        ctx.save_for_backward(u, input_gate, recurrence_gate, rate, initial, h)
        ctx.starts = starts
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        u, input_gate, recurrence_gate, rate, initial, h = ctx.saved_tensors
        a = torch.empty_like(u)
        for _, closing, decay in _blocks(recurrence_gate, a):
            torch.mul(torch.sigmoid(closing), -rate, out=decay).exp_()
        grad_a, grad_b, grad_initial = states_backward(a, h, initial, grads[0], False)
        grad_input, grad_recurrence, grad_rate = torch.empty_like(u), a, torch.zeros_like(rate)
        for first, here, opening, closing, decay, to_a, to_b, to_input in _blocks(
            u, input_gate, recurrence_gate, a, grad_a, grad_b, grad_input
        ):
            opened, recurs = torch.sigmoid(opening), torch.sigmoid(closing)
            gain = _gain(recurs * -rate, first if ctx.starts else None)
            entering = opened * here
            # d gain / d log a = -a^2 / gain, and none where the gain is fixed.
            slope = torch.square(decay).div_(gain.clamp(min=LEAST_GAIN)).mul_(entering).mul_(to_b)
            if ctx.starts:
                slope[first] = 0
            grad_log_a = to_a.mul_(decay).sub_(slope)
            grad_entering = to_b.mul_(gain)
            torch.mul(grad_entering, entering, out=to_input).mul_(1 - opened)
            to_b.mul_(opened)
            grad_rate.sub_(torch.mul(grad_log_a, recurs, out=slope).sum(0))
            torch.mul(slope, recurs.sub_(1).mul_(rate), out=decay)
        return grad_b, grad_input, grad_recurrence, grad_rate, grad_initial, None


def _blocks(*arrays: Tensor) -> Iterator[tuple[Any, ...]]:
    """Yields blocks of rows, (rows, N), of contiguous (B, T, N) arrays.

    Before them stands a slice of the rows that are the first steps of sequences.
    """
    _, length, channels = arrays[0].shape
    flat = [x.view(-1, channels) for x in arrays]
    step = max(1, CPU_BLOCK_ELEMENTS // channels) if arrays[0].device.type == "cpu" else len(flat[0])
    for start in range(0, len(flat[0]), step):
        yield slice(-start % length, None, length), *(x[start : start + step] for x in flat)


def _gain(log_a: Tensor, first: slice | None) -> Tensor:
    """The gain sqrt(1 - a^2), exact where a is near one, and 1 in the rows `first`: the same shape as log_a."""
    gain = torch.mul(log_a, 2).expm1_().neg_().sqrt_()
    if first is not None:
        gain[first] = 1
    return gain
