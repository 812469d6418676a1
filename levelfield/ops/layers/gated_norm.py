"""Computes a root-mean-square norm with a SiLU gate before or after it, the end of a recurrent layer.

    gated_norm(y, gate, weight, first=True)      # Mamba-2:  norm(y silu(gate)) weight
    gated_norm(y, gate, weight, first=False)     # GLA:      norm(y) weight silu(gate)

Each value is read once, in blocks that stay in a CPU's cache; the backward pass recomputes intermediate values.
Letters: N rows, H heads or groups, W channels that are normalised together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from levelfield.ops.opaque import opaque

CPU_BLOCK_ELEMENTS = 1 << 16  # in a block: 256 KiB of float32


@opaque
def gated_norm(y: Tensor, gate: Tensor, weight: Tensor, first: bool, eps: float = 1e-5) -> Tensor:
    """The gated norm of y, (..., H, W), in float32 or wider. Equal to `naive_gated_norm`.

    gate: (..., H, W); weight: (H, W) or (W,); first: whether the gate comes before the norm.
    """
    wide = torch.promote_types(y.dtype, torch.float32)
    with torch.autocast(y.device.type, enabled=False):
        out: Tensor = _GatedNorm.apply(  # pyright: ignore[reportAssignmentType]
            y.to(wide).reshape(-1, *y.shape[-2:]), gate.to(wide).reshape(-1, *y.shape[-2:]), weight.to(wide), first, eps
        )
    return out.view(y.shape)


def naive_gated_norm(y: Tensor, gate: Tensor, weight: Tensor, first: bool, eps: float = 1e-5) -> Tensor:
    """`gated_norm` in torch's own operations: y, (..., H, W) -> the same shape."""
    if first:
        return F.rms_norm(y * F.silu(gate), y.shape[-1:], None, eps) * weight
    return F.rms_norm(y, y.shape[-1:], None, eps) * weight * F.silu(gate)


def _steps(x: Tensor) -> int:
    """The number of rows in a block of x, (N, H, W)."""
    return max(1, CPU_BLOCK_ELEMENTS // x[0].numel()) if x.device.type == "cpu" and len(x) else max(1, len(x))


class _GatedNorm(torch.autograd.Function):
    """The gated norm of flat rows, a block at a time: y and gate, (N, H, W) each."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, gate: Tensor, weight: Tensor, first: bool, eps: float) -> Tensor:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
        for a, z, to in zip(*(x.split(_steps(y)) for x in (y, gate, out)), strict=True):
            open_ = F.silu(z)
            if first:
                inner = a * open_
                torch.mul(inner.mul_(_scale(inner, eps)), weight, out=to)
            else:
                torch.mul(a, _scale(a, eps), out=to).mul_(weight).mul_(open_)
        ctx.save_for_backward(y, gate, weight)
        ctx.first, ctx.eps = first, eps
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        y, gate, weight = ctx.saved_tensors
        grad_y, grad_gate = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (y, gate))
        grad_weight = torch.zeros_like(weight)
        blocks = (x.split(_steps(y)) for x in (y, gate, grads[0], grad_y, grad_gate))
        for a, z, given, to_y, to_gate in zip(*blocks, strict=True):
            open_ = F.silu(z)
            inner = a * open_ if ctx.first else a
            scale = _scale(inner, ctx.eps)
            normed = inner * scale
            grad_normed = given if ctx.first else given * open_
            grad_weight += (grad_normed * normed).sum_to_size(weight.shape)
            grad_normed = grad_normed * weight
            if not ctx.first:
                torch.ops.aten.silu_backward.grad_input(given * normed * weight, z, grad_input=to_gate)
            grad_normed = grad_normed.addcmul_(normed, (grad_normed * normed).mean(-1, keepdim=True), value=-1).mul_(
                scale
            )
            if ctx.first:
                torch.ops.aten.silu_backward.grad_input(grad_normed * a, z, grad_input=to_gate)
                torch.mul(grad_normed, open_, out=to_y)
            else:
                to_y.copy_(grad_normed)
        return grad_y, grad_gate, grad_weight, None, None


def _scale(x: Tensor, eps: float) -> Tensor:
    """The inverse of the root mean square over the last axis: (..., W) -> (..., 1)."""
    return x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
