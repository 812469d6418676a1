"""The short causal convolution in front of a recurrence: a few taps a channel, then SiLU.

    y_t = silu(bias + sum_j weight[:, j] x_{t - (W - 1) + j})

Channels stay last, so a tap is a product with a row, and blocks of steps stay in cache between the taps and SiLU. The
backward goes through the same blocks and computes what lies between x and y anew.

    y, tail = short_conv(x, weight, bias)              # tail: the last W - 1 inputs
    more, tail = short_conv(later, weight, bias, tail)

Letters: B batch, T steps, C channels, W taps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CPU_NUMBERS = 1 << 16  # of a block: 256 KiB of float32


def short_conv(x: Tensor, weight: Tensor, bias: Tensor | None, tail: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """x: (B, T, C), weight: (C, 1, W) as torch's Conv1d has it, bias: (C,), tail: (B, W - 1, C);
    both may be None for zeros.

    -> y (B, T, C) and the tail after the last step. Equal to `naive_short_conv`.
    """
    taps = weight.shape[2]
    if tail is None:
        tail = x.new_zeros(x.shape[0], taps - 1, x.shape[2])
    bias = x.new_zeros(x.shape[2]) if bias is None else bias
    y: Tensor = _ShortConv.apply(x, weight, bias, tail)  # pyright: ignore[reportAssignmentType]
    return y, torch.cat([tail, x[:, max(0, x.shape[1] - taps + 1) :]], 1)[:, -(taps - 1) :] if taps > 1 else tail


def naive_short_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, tail: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`short_conv` by torch's convolution."""
    taps = weight.shape[2]
    if tail is None:
        tail = x.new_zeros(x.shape[0], taps - 1, x.shape[2])
    whole = torch.cat([tail, x], 1)
    y = F.conv1d(whole.transpose(1, 2), weight, bias, groups=x.shape[2]).transpose(1, 2)
    return F.silu(y), whole[:, whole.shape[1] - taps + 1 :]


def _blocks(x: Tensor) -> list[tuple[int, int, int]]:
    """Row, first step and end of each block; on other devices than the CPU a block is a row."""
    batch, length, channels = x.shape
    steps = max(1, CPU_NUMBERS // channels) if x.device.type == "cpu" else length
    return [(row, start, min(length, start + steps)) for row in range(batch) for start in range(0, length, steps)]


def _window(x: Tensor, tail: Tensor, row: int, start: int, end: int) -> Tensor:
    """The inputs that steps start..end - 1 look at: (end - start + W - 1, C)."""
    reach = tail.shape[1]
    if start >= reach:
        return x[row, start - reach : end]
    return torch.cat([tail[row, start:], x[row, :end]])


def _taps(window: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """weight: (W, C)."""
    steps = window.shape[0] - weight.shape[0] + 1
    total = torch.addcmul(bias, window[:steps], weight[0])
    for tap in range(1, len(weight)):
        total.addcmul_(window[tap : tap + steps], weight[tap])
    return total


class _ShortConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, tail: Tensor) -> Tensor:
        rows, kind = weight[:, 0].T.contiguous().to(x.dtype), x.dtype
        y = torch.empty(x.shape, dtype=kind, device=x.device)
        for row, start, end in _blocks(x):
            torch.ops.aten.silu.out(
                _taps(_window(x, tail, row, start, end), rows, bias.to(kind)), out=y[row, start:end]
            )
        ctx.save_for_backward(x, weight, bias, tail)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, bias, tail = ctx.saved_tensors
        rows, shift = weight[:, 0].T.contiguous().to(x.dtype), bias.to(x.dtype)
        taps, length = len(rows), x.shape[1]
        grad_x, grad_tail = torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.zeros_like(tail)
        grad_rows, grad_bias = torch.zeros_like(rows), torch.zeros_like(shift)
        for row, start, end in _blocks(x):
            ahead = min(length, end + taps - 1)  # an input is seen by the next taps - 1 outputs too
            window = _window(x, tail, row, start, ahead)
            pull = torch.ops.aten.silu_backward(grads[0][row, start:ahead], _taps(window, rows, shift))
            own = pull[: end - start]
            grad_bias += own.sum(0)
            for tap in range(taps):
                grad_rows[tap] += (own * window[tap : tap + end - start]).sum(0)
            pull = F.pad(pull, (0, 0, 0, end - start + taps - 1 - len(pull)))
            total = torch.mul(pull[: end - start], rows[-1], out=grad_x[row, start:end])
            for tap in range(1, taps):
                total.addcmul_(pull[tap : tap + end - start], rows[-1 - tap])
            if start == 0:
                for tap in range(taps - 1):  # inputs before the first step
                    reached = min(taps - 1 - tap, len(pull))
                    grad_tail[row, tap : tap + reached] += pull[:reached] * rows[tap]
        return grad_x, grad_rows.T.unsqueeze(1).to(weight.dtype), grad_bias.to(bias.dtype), grad_tail
