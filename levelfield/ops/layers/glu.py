"""Computes the output half of a state-space layer: GELU, a linear map to twice the width, and a gated linear unit.

    out = GLU(W gelu(v) + b),    GLU([p, q]) = p sigmoid(q)

On a CPU the steps are computed in blocks, so that intermediate values stay in cache, and the forward pass keeps the
sigmoid for the backward pass.
Letters: B batch, C channels, T steps, D outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from levelfield.ops.conv.fft import fft_conv
from levelfield.ops.opaque import opaque

CPU_BLOCK_STEPS = 512  # steps computed at a time: 1 MiB of gate inputs at width 256


def conv_glu(
    x: Tensor, mask: Tensor | None, kernel: Callable[[int], Tensor], skip: Tensor, output: nn.Linear
) -> Tensor:
    """A state-space layer given its kernel, GLU(W gelu(k * x + skip x) + b): (B, T, D) -> (B, T, D).

    mask: (B, T) bool, True at real steps, or None; kernel: maps T to the kernel of T steps, (1 or 2, D, T), forwards
    and backwards; skip: (D,). Kernel and convolution run in float32 or wider, under autocast too.
    """
    if mask is not None:
        x = x.masked_fill(~mask.unsqueeze(-1), 0)
    with torch.autocast(x.device.type, enabled=False):
        taps = kernel(x.shape[1])
        taps[0, :, 0] += skip  # the skip connection is a tap at lag 0
        # The directions are separated with channels last, as the compiled kernels lie in memory.
        y = fft_conv(x.transpose(1, 2), *(way.T for way in taps.transpose(1, 2).unbind(0)))
    return gelu_glu(y, output.weight, output.bias)


@opaque
def gelu_glu(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """GELU, the linear map and the gate: v, (B, C, T), weight, (2D, C), and bias, (2D,) -> (B, T, D).

    Equal to `naive_gelu_glu`, which other devices run. It is fastest with channels last in memory, as `fft_conv`
    returns them.
    """
    if v.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return naive_gelu_glu(v, weight, bias)
    rows = v.transpose(1, 2)
    out: Tensor = _GeluGlu.apply(rows.reshape(-1, v.shape[1]), weight, bias)  # pyright: ignore[reportAssignmentType]
    return out.view(*rows.shape[:2], -1)


def naive_gelu_glu(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`gelu_glu` in torch's own operations: (B, C, T) -> (B, T, D)."""
    return F.glu(F.linear(F.gelu(v).transpose(1, 2), weight, bias), dim=-1)


class _GeluGlu(torch.autograd.Function):
    """The same for flat rows, a block at a time: v, (N, C) -> (N, D)."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        width = weight.shape[0] // 2
        gates, out = v.new_empty(v.shape[0], 2 * width), v.new_empty(v.shape[0], width)
        for here, both, product in zip(*(x.split(CPU_BLOCK_STEPS) for x in (v, gates, out)), strict=True):
            torch.addmm(bias, F.gelu(here), weight.T, out=both)
            torch.mul(both[:, :width], both[:, width:].sigmoid_(), out=product)
        ctx.save_for_backward(v, weight, gates)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        v, weight, gates = ctx.saved_tensors
        width = weight.shape[0] // 2
        grad_v, grad_weight, grad_bias = torch.empty_like(v), torch.zeros_like(weight), v.new_zeros(2 * width)
        blocks = zip(*(x.split(CPU_BLOCK_STEPS) for x in (v, gates, grads[0], grad_v)), strict=True)
        for here, both, given, result in blocks:
            value, gate = both.split(width, dim=1)
            grad_both = torch.empty_like(both)
            inner = torch.mul(given, gate, out=grad_both[:, :width])
            torch.mul(inner, torch.addcmul(value, value, gate, value=-1), out=grad_both[:, width:])
            grad_weight.addmm_(grad_both.T, F.gelu(here))
            grad_bias += grad_both.sum(0)
            torch.ops.aten.gelu_backward.grad_input(grad_both @ weight, here, grad_input=result)
        return grad_v, grad_weight, grad_bias
