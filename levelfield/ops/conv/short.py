"""Computes the short causal convolution in front of a recurrence: a few taps per channel, then SiLU.

    y_t = silu(bias + sum_j weight[:, j] x_{t - (W - 1) + j})

Channels stay last, as in `depthwise_conv`. The backward pass keeps only x, and recomputes the values before SiLU.

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

from levelfield.ops.conv.depthwise import depthwise_conv, depthwise_conv_backward
from levelfield.ops.opaque import opaque
from levelfield.ops.vendor.dispatch import try_kernel


@opaque
def short_conv(x: Tensor, weight: Tensor, bias: Tensor | None, tail: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The outputs, (B, T, C), and the tail after the last step, (B, W - 1, C).

    x: (B, T, C); weight: (C, 1, W), as torch's Conv1d has it; bias: (C,); tail: (B, W - 1, C), the inputs before x.
    bias and tail may be None for zeros. Equal to `naive_short_conv`.
    """
    given = try_kernel("short_conv", naive_short_conv, (x, weight, bias, tail))
    if given is not None:
        return given
    taps = weight.shape[2]
    if tail is None:
        tail = x.new_zeros(x.shape[0], taps - 1, x.shape[2])
    bias = x.new_zeros(x.shape[2]) if bias is None else bias
    inputs = (part.to(x.dtype) for part in (weight[:, 0].T, bias, tail))
    y: Tensor = _ShortConv.apply(x, *inputs)  # pyright: ignore[reportAssignmentType]
    return y, torch.cat([tail, x[:, max(0, x.shape[1] - taps + 1) :]], 1)[:, -(taps - 1) :] if taps > 1 else tail


def naive_short_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, tail: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`short_conv` by torch's convolution. Arguments and results have the same shapes."""
    taps = weight.shape[2]
    if tail is None:
        tail = x.new_zeros(x.shape[0], taps - 1, x.shape[2])
    whole = torch.cat([tail, x], 1)
    y = F.conv1d(whole.transpose(1, 2), weight, bias, groups=x.shape[2]).transpose(1, 2)
    return F.silu(y), whole[:, whole.shape[1] - taps + 1 :]


class _ShortConv(torch.autograd.Function):
    """The plain operator: x, (B, T, C), weight, (W, C), bias, (C,), and tail, (B, W - 1, C), all of one type."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, tail: Tensor) -> Tensor:
        ctx.save_for_backward(x, tail, weight, bias)
        return F.silu(depthwise_conv(x, tail, weight, bias), inplace=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, tail, weight, bias = ctx.saved_tensors
        inner = depthwise_conv(x, tail, weight, bias)
        slope = torch.ops.aten.silu_backward.grad_input(grads[0], inner, grad_input=inner)
        grad_x, grad_tail, grad_weight, grad_bias = depthwise_conv_backward(x, tail, weight, slope)
        return grad_x, grad_weight, grad_bias, grad_tail
