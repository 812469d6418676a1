"""Computes convolution kernels of diagonal state-space models by products of small real matrices.

The kernel is a sum of exponentials, k[t] = Re sum_n c_n exp(a_n t). Computed directly it takes N x T complex
exponentials, which are slow. With t = i J + j they factor, exp(a t) = exp(a i J) exp(a j), so that N (I + J)
exponentials and one real product suffice:

    k as an I x J table  =  (I x 2N: c exp(a i J))  @  (2N x J: exp(a j)),        I J >= T,  I, J near sqrt(T)

    log_a = torch.complex(-0.5 * dt, 3.0 * dt)                    # (H, N)
    k = diagonal_kernel(log_a, weight, 4096)                      # weight: (S, H, N) complex; k: (S, H, 4096)

log_a may be float64 while the weight is float32. Phases are then formed and reduced modulo 2 pi in float64, and only
the factors are rounded, so that step 60,000 is as exact as step 6. On a CPU, where every channel has states of its own,
the compiled recurrence runs instead, from an exact power every 64 steps (`levelfield.ops.compiled.ssm_kernels`).
Letters: S kernels per channel (2 for two directions), H channels, N states, T steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.custom import custom_op
from levelfield.ops.layers.underflow import LOG_FACTOR_UNDERFLOW
from levelfield.ops.opaque import opaque

COMPILED = "cpu"  # the device whose diagonal kernel is compiled
CPU_BLOCK_ELEMENTS = 1 << 16  # of one factor, made at a time: 256 KiB of float32
SHARED_TABLE = 1 << 21  # elements of the shared table of exponentials held at a time: 8 MiB of float32


@opaque
def diagonal_kernel(log_a: Tensor, weight: Tensor, length: int) -> Tensor:
    """Re sum_n weight[s, h, n] exp(log_a[h, n] t) for t < length: (S, H, T) in the weight's precision.

    log_a: (H, N) complex, real part <= 0; weight: (S, H, N) complex. The kernel of S4D (gu2022, section 3.2).
    Equal to `naive_diagonal_kernel`.
    """
    if weight.device.type == COMPILED:
        from levelfield.ops.compiled.simd import to_simd_layout

        out: Tensor = _Recurrence.apply(to_simd_layout(log_a.to(torch.cdouble)), to_simd_layout(weight), length)  # pyright: ignore[reportAssignmentType]
        return out[:, :length, : weight.shape[1]].transpose(1, 2)
    parts = (torch.view_as_real(z.resolve_conj()) for z in (log_a, weight.transpose(0, 1)))
    kernel: Tensor = _Diagonal.apply(*parts, length)  # pyright: ignore[reportAssignmentType]
    return kernel.transpose(0, 1)


def naive_diagonal_kernel(log_a: Tensor, weight: Tensor, length: int) -> Tensor:
    """`diagonal_kernel` or `shared_kernel` by the recurrence x <- exp(log_a) x, step by step: (S, H, T)."""
    state, out = weight, []
    for _ in range(length):
        out.append(state.real.sum(-1))
        state = state * torch.exp(log_a)
    return torch.stack(out, dim=-1)


@opaque
def shared_kernel(log_a: Tensor, weight: Tensor, length: int) -> Tensor:
    """`diagonal_kernel` where all channels share the states: (S, H, T), as in DLR (amos2025, equation 3).

    log_a: (N,) complex; weight: (S, H, N). It is one real product (S H x 2N) @ (2N x T), whose right factor is made a
    block of steps at a time, in the backward pass too, so that memory does not grow with N x T.
    """
    kinds, channels, states = weight.shape
    flat = torch.cat([weight.real, -weight.imag], dim=-1).reshape(kinds * channels, 2 * states)
    kernel: Tensor = _Shared.apply(log_a.real, log_a.imag, flat, length)  # pyright: ignore[reportAssignmentType]
    return kernel.view(kinds, channels, length)


def columns_for(length: int) -> int:
    """J, the smallest power of two that is at least sqrt(T), so that I = ceil(T / J) is near sqrt(T) too."""
    return 1 << max(0, math.ceil(math.log2(length) / 2))


@custom_op("diagonal", "cpu")
def _diagonal(step: Tensor, jump: Tensor, weight: Tensor, length: int) -> Tensor:
    from levelfield.ops.compiled import simd, ssm_kernels

    out = weight.new_empty(weight.shape[1], ssm_kernels.whole(length), len(weight) * simd.LANES)
    simd.parallel_for(ssm_kernels.diagonal, len(weight), step, jump, weight, out)
    return out


@custom_op("moments", "cpu")
def _moments(step: Tensor, jump: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of g a^t and of t g a^t, of the same shape as weight."""
    from levelfield.ops.compiled import simd, ssm_kernels

    plain, timed = torch.zeros_like(weight), torch.zeros_like(weight)
    simd.parallel_for(ssm_kernels.moments, len(weight), step, jump, grad, plain, timed)
    return plain, timed


@_diagonal.register_fake
def _(step: Tensor, jump: Tensor, weight: Tensor, length: int) -> Tensor:
    from levelfield.ops.compiled import simd, ssm_kernels

    return weight.new_empty(weight.shape[1], ssm_kernels.whole(length), len(weight) * simd.LANES)


@_moments.register_fake
def _(step: Tensor, jump: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(weight), torch.empty_like(weight)


class _Recurrence(torch.autograd.Function):
    """The kernel by the compiled recurrence: (S, T in whole chunks, 16 blocks).

    log_a: (blocks, N, 2, 16) float64; weight: (blocks, S, N, 2, 16).
    """

    @staticmethod
    def forward(ctx: Any, log_a: Tensor, weight: Tensor, length: int) -> Tensor:
        from levelfield.ops.compiled import ssm_kernels

        step, jump = _polar(log_a).to(weight.dtype), _polar(ssm_kernels.CHUNK * log_a)
        ctx.save_for_backward(step, jump, weight)
        return _diagonal(step, jump, weight, length)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        step, jump, weight = ctx.saved_tensors
        plain, timed = _moments(step, jump, weight, grads[0].contiguous())
        (re, im), (w, v) = timed.unbind(-2), weight.unbind(-2)
        slope = torch.stack([w * re - v * im, -w * im - v * re], -2).sum(1)
        return slope.double(), torch.stack([plain[..., 0, :], -plain[..., 1, :]], -2), None


def _polar(log: Tensor) -> Tensor:
    """The exponential of complex numbers, given and returned as (..., 2, 16), real and imaginary parts."""
    re, im = log.unbind(-2)
    return re.exp().unsqueeze(-2) * torch.stack([im.cos(), im.sin()], -2)


class _Diagonal(torch.autograd.Function):
    """The kernel by two factors, some channels at a time: real views (H, N, 2) and (H, S, N, 2) -> (H, S, T)."""

    @staticmethod
    def forward(ctx: Any, log_a: Tensor, weight: Tensor, length: int) -> Tensor:
        ctx.save_for_backward(log_a, weight)
        out = weight.new_empty(*weight.shape[:2], length)
        for block, (fine, coarse) in _factors(log_a, length, weight.dtype):
            left = _times(weight[block].unsqueeze(2), coarse.unsqueeze(1))  # (h, S, I, N, 2)
            left[..., 1].neg_()
            table = torch.bmm(left.flatten(3).flatten(1, 2), fine.flatten(2).transpose(1, 2))  # (h, S I, J)
            out[block] = table.view(table.shape[0], weight.shape[1], -1)[..., :length]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grads
        log_a, weight = ctx.saved_tensors
        grad_log_a, grad_weight = torch.empty_like(log_a), weight.new_empty(weight.shape)
        length, columns = grad.shape[2], columns_for(grad.shape[2])
        for block, (fine, coarse) in _factors(log_a, length, weight.dtype):
            w, rows = weight[block].unsqueeze(2), coarse.shape[1]
            table = torch.nn.functional.pad(grad[block], (0, rows * columns - length)).reshape(w.shape[0], -1, columns)
            # The table is Re(left fine) = left conj(conj(fine)), so these are gradients of the conjugated factors.
            left = _times(w, coarse.unsqueeze(1))
            left[..., 1].neg_()
            grad_left = torch.bmm(table, fine.flatten(2)).view_as(left)
            grad_left[..., 1].neg_()
            grad_fine = torch.bmm(table.transpose(1, 2), left.flatten(3).flatten(1, 2)).view_as(fine)
            grad_coarse = _times(w, grad_left, conjugate=True).sum(1)
            grad_weight[block] = _times(coarse.unsqueeze(1), grad_left, conjugate=True).sum(2)
            grad_log_a[block] = _slope(fine, grad_fine, 1) + _slope(coarse, grad_coarse, columns)
        return grad_log_a, grad_weight, None


def _factors(log_a: Tensor, length: int, dtype: torch.dtype) -> Iterator[tuple[slice, tuple[Tensor, Tensor]]]:
    """Yields blocks of channels with their factors exp(log_a j), (h, J, N, 2), and exp(log_a i J), (h, I, N, 2)."""
    channels, states = log_a.shape[:2]
    columns = columns_for(length)
    step = max(1, CPU_BLOCK_ELEMENTS // (2 * states * columns)) if log_a.device.type == "cpu" else channels
    near = torch.arange(columns, device=log_a.device)
    far = columns * torch.arange(-(-length // columns), device=log_a.device)
    for start in range(0, channels, step):
        block = slice(start, start + step)
        yield block, (_exponentials(log_a[block], near, dtype), _exponentials(log_a[block], far, dtype))


def _exponentials(log_a: Tensor, steps: Tensor, dtype: torch.dtype) -> Tensor:
    """The exponentials exp(log_a t), real and imaginary parts last: (..., N, 2) and steps, (L,) -> (..., L, N, 2).

    The phase is reduced modulo 2 pi before it is rounded to `dtype`.
    """
    times = steps.to(log_a.dtype).unsqueeze(-1)
    turns = (log_a[..., 1] / (2 * math.pi)).unsqueeze(-2) * times
    phase = turns.sub_(torch.round(turns)).mul_(2 * math.pi).to(dtype)
    decay = (log_a[..., 0].unsqueeze(-2) * times).to(dtype)
    size = torch.exp(decay).masked_fill_(decay < LOG_FACTOR_UNDERFLOW, 0)
    out = size.new_empty(*size.shape, 2)
    torch.mul(size, torch.cos(phase), out=out[..., 0])
    torch.mul(size, phase.sin_(), out=out[..., 1])
    return out


def _times(a: Tensor, b: Tensor, conjugate: bool = False) -> Tensor:
    """The complex product a b, or conj(a) b, of real views (..., 2)."""
    first = torch.view_as_complex(a)
    return torch.view_as_real((first.conj() if conjugate else first) * torch.view_as_complex(b))


def _slope(power: Tensor, grad: Tensor, stride: int) -> Tensor:
    """The gradient of log_a, (h, N, 2), through power = exp(log_a stride l), (h, L, N, 2), from that of power."""
    times = stride * torch.arange(power.shape[1], device=power.device).to(power.dtype)
    product = _times(power, grad, conjugate=True)
    return torch.einsum("l,hlnr->hnr", times, product)


class _Shared(torch.autograd.Function):
    """The kernel of shared states: decay and angle, (N,) each, and weight, (R, 2N) -> (R, T)."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, angle: Tensor, weight: Tensor, length: int) -> Tensor:
        ctx.save_for_backward(decay, angle, weight)
        out = weight.new_empty(weight.shape[0], length)
        for start, table in _tables(decay, angle, length, weight.dtype):
            out[:, start : start + table.shape[1]] = weight @ table
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grads
        decay, angle, weight = ctx.saved_tensors
        states = decay.shape[0]
        grad_weight = torch.zeros_like(weight)
        slope = decay.new_zeros(2, states)
        for start, table in _tables(decay, angle, grad.shape[1], weight.dtype):
            part = grad[:, start : start + table.shape[1]]
            grad_weight.addmm_(part, table.T)
            grad_table = weight.T @ part
            times = torch.arange(start, start + table.shape[1], device=part.device).to(part.dtype)
            re, im = table[:states], table[states:]
            grad_re, grad_im = grad_table[:states], grad_table[states:]
            slope[0] += (grad_re * re).addcmul_(grad_im, im) @ times
            slope[1] += (grad_im * re).addcmul_(grad_re, im, value=-1) @ times
        return slope[0], slope[1], grad_weight, None


def _tables(decay: Tensor, angle: Tensor, length: int, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """Yields blocks of the table exp(log_a t) over consecutive steps: the first step, and (2N, block).

    Real parts stand above imaginary parts.
    """
    states = decay.shape[0]
    block = min(length, max(1, SHARED_TABLE // (2 * states)))
    log_a = torch.stack([decay, angle], dim=-1)
    re, im = _exponentials(log_a, torch.arange(block, device=decay.device), dtype).permute(2, 1, 0).contiguous()
    turns = _exponentials(log_a, torch.arange(0, length, block, device=decay.device), dtype)  # (starts, N, 2)
    table = re.new_empty(2 * states, block)
    for i, start in enumerate(range(0, length, block)):
        c, s = turns[i].T.unsqueeze(-1)
        torch.mul(re, c, out=table[:states]).addcmul_(im, s, value=-1)
        torch.mul(re, s, out=table[states:]).addcmul_(im, c)
        yield start, table[:, : min(block, length - start)]
