"""The output half of a state-space layer: GELU, a linear map to twice the width, and the gate over it.

    out = GLU(W gelu(v) + b),    GLU([p, q]) = p sigmoid(q)

Convolution by FFT leaves (batch, channels, steps); a layer's output is (batch, steps, channels). On a CPU a product
reads either layout at the same speed, so nothing need be transposed, neither here nor in the convolution's backward,
and going through the steps in blocks keeps in cache what lies between v and out.
Letters: B batch, C channels, T steps, D outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CPU_BLOCK = 1024  # steps at a time: 2 MiB of gate inputs at width 256
SHORT = 256  # sequences below this many steps are too small a block each; a whole batch of them fits the cache better


def gelu_glu(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """v: (B, C, T), weight: (2D, C), bias: (2D,) -> (B, T, D). Equal to `naive_gelu_glu`, which other devices run."""
    if v.device.type != "cpu" or v.shape[2] < SHORT or torch.is_autocast_enabled("cpu"):
        return naive_gelu_glu(v, weight, bias)
    return _GeluGlu.apply(v, weight, bias)  # pyright: ignore[reportReturnType]


def naive_gelu_glu(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`gelu_glu` in torch's own operations."""
    return F.glu(F.linear(F.gelu(v).transpose(1, 2), weight, bias), dim=-1)


class _GeluGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        gates = v.new_empty(v.shape[0], v.shape[2], weight.shape[0])
        out = v.new_empty(v.shape[0], v.shape[2], weight.shape[0] // 2)
        for b, steps in _blocks(v):
            torch.addmm(bias, F.gelu(v[b, :, steps]).T, weight.T, out=gates[b, steps])
            torch.ops.aten.glu.out(gates[b, steps], 1, out=out[b, steps])
        ctx.save_for_backward(v, weight, gates)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grads
        v, weight, gates = ctx.saved_tensors
        grad_v, grad_weight, grad_bias = v.new_empty(v.shape), torch.zeros_like(weight), v.new_zeros(weight.shape[0])
        for b, steps in _blocks(v):
            here = v[b, :, steps]
            pull = torch.ops.aten.glu_backward(grad[b, steps], gates[b, steps], 1)  # (t, 2D)
            grad_weight.addmm_(pull.T, F.gelu(here).T)
            grad_bias += pull.sum(0)
            grad_v[b, :, steps] = torch.ops.aten.gelu_backward(weight.T @ pull.T, here)
        return grad_v, grad_weight, grad_bias


def _blocks(v: Tensor) -> Iterator[tuple[int, slice]]:
    for b in range(v.shape[0]):
        for start in range(0, v.shape[2], CPU_BLOCK):
            yield b, slice(start, min(start + CPU_BLOCK, v.shape[2]))
