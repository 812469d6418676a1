"""Computes long convolutions along the sequence by FFT, one-sided or two-sided.

    y[t] = sum over j >= 0 of  forward[j] u[t - j]  +  backward[j] u[t + 1 + j]

The forward kernel begins at lag 0 and the backward kernel at lag -1, so no lag is counted twice. A convolution layer is
limited by memory: autograd's own backward pass would keep the input's spectrum, about twice the size of the input. Here
the backward pass keeps only the input and transforms it again. On a CPU both passes are compiled; they stay in cache
and transpose nothing (`levelfield.ops.compiled.fft`), which is about five times faster than torch's own operations.

    u = torch.randn(8, 4096, 256).transpose(1, 2)       # (batch, channels, steps), channels last in memory
    y = fft_conv(u, torch.randn(256, 4096))             # causal, one kernel per channel
    y = fft_conv(u, torch.randn(2, 31), torch.randn(2, 30))   # two-sided, two kernels for 256 channels

Letters: B batch, C channels, T steps, G kernels, K taps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from levelfield.ops.custom import custom_op
from levelfield.ops.opaque import opaque

COMPILED = "cpu"  # the device whose convolution is compiled; others use torch's transforms
BLOCK = 1 << 27  # padded elements that those transform at a time, which bounds their memory


@opaque
def fft_conv(u: Tensor, forward: Tensor, backward: Tensor | None = None) -> Tensor:
    """Convolves u, (B, C, T), with forward, (G, K), and, where given, backward, (G, K'): (B, C, T).

    Channel c uses kernel c % G, so G must divide C. Kernels may be shorter or longer than T; taps that reach no step
    are ignored. u is converted to the kernels' type (float32 or float64). On a CPU both u and y have channels last in
    memory, so that (B, T, C) can be passed in by `.transpose(1, 2)` without a copy. Raises ValueError if the sizes do
    not fit. Equal to `naive_conv`.
    """
    if u.ndim != 3 or forward.ndim != 2 or u.shape[1] % forward.shape[0] or u.shape[2] == 0 or forward.shape[1] == 0:
        raise ValueError(f"u must be (B, C, T) and forward (G, K) with G dividing C: {u.shape} and {forward.shape}.")
    if backward is not None and (backward.ndim != 2 or backward.shape[0] != forward.shape[0]):
        raise ValueError(f"forward and backward must have as many kernels: {forward.shape} and {backward.shape}.")
    u, copies, length = u.to(forward.dtype), u.shape[1] // forward.shape[0], u.shape[2]
    backward = forward[:, :0] if backward is None else backward
    if copies > 1:
        forward, backward = forward.repeat(copies, 1), backward.repeat(copies, 1)
    if u.device.type != COMPILED:
        return _Transformed.apply(u, forward[:, :length], backward[:, : length - 1])  # pyright: ignore[reportReturnType]
    kernels = _channels_last(forward)[:length], _channels_last(backward)[: length - 1]
    y: Tensor = _Compiled.apply(_channels_last(u), *kernels)  # pyright: ignore[reportAssignmentType]
    return y[..., : u.shape[1]].transpose(1, 2)


def conv_last(u: Tensor, forward: Tensor, steps: int) -> Tensor:
    """The last `steps` of `fft_conv(u, forward)`: (B, C, steps), for generation from all inputs so far.

    u: (B, C, T); forward: (G, K). A single step is one sum over the taps, which costs far less than a transform.
    """
    if steps > 1:
        return fft_conv(u, forward)[..., -steps:]
    taps = forward[:, : u.shape[2]].flip(-1).repeat(u.shape[1] // forward.shape[0], 1)
    return (u[..., -taps.shape[1] :].to(taps.dtype) * taps).sum(-1, keepdim=True)


def _channels_last(x: Tensor) -> Tensor:
    """(..., C, T) -> (..., T, C) in memory, with C padded by zeros to whole vectors."""
    from levelfield.ops.compiled.simd import LANES

    more = -x.shape[-2] % LANES
    return (F.pad(x.transpose(-1, -2), (0, more)) if more else x.transpose(-1, -2)).contiguous()


def naive_conv(u: Tensor, forward: Tensor, backward: Tensor | None = None) -> Tensor:
    """`fft_conv` by its equation, one term per tap: (B, C, T) -> (B, C, T)."""
    copies, length = u.shape[1] // forward.shape[0], u.shape[2]
    total = torch.zeros_like(u)
    for lag in range(min(forward.shape[1], length)):
        shifted = torch.nn.functional.pad(u, (lag, 0))[..., :length]
        total = total + shifted * forward[:, lag].repeat(copies)[:, None]
    for lag in range(min(0 if backward is None else backward.shape[1], length - 1)):
        shifted = torch.nn.functional.pad(u, (0, lag + 1))[..., lag + 1 :]
        total = total + shifted * backward[:, lag].repeat(copies)[:, None]  # pyright: ignore[reportOptionalSubscript]
    return total


def transform_size(least: int) -> int:
    """The smallest even 2^a 3^b 5^c >= least with b <= 2, c <= 1: lengths that FFT libraries transform quickly."""
    return min(odd << max(1, (-(-least // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15, 45))


@custom_op("convolve", "cpu")
def _convolve(u: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    from levelfield.ops.compiled import fft, simd

    out, plan = torch.empty_like(u), fft.plan(fft.size_for(u.shape[1]), u.numpy().dtype)
    simd.parallel_for(fft.convolve, u.shape[2] // simd.LANES, u, forward, backward, out, plan)
    return out


@custom_op("convolve_backward", "cpu")
def _convolve_backward(u: Tensor, forward: Tensor, backward: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from levelfield.ops.compiled import fft, simd

    inputs, grads = (
        fft.Inputs(u, forward, backward),
        fft.Inputs(torch.empty_like(u), torch.empty_like(forward), torch.empty_like(backward)),
    )
    plan = fft.plan(fft.size_for(u.shape[1]), grad.numpy().dtype)
    simd.parallel_for(fft.convolve_backward, u.shape[2] // simd.LANES, inputs, grad, grads, plan)
    return tuple(grads)


@_convolve.register_fake
def _(u: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    return torch.empty_like(u)


@_convolve_backward.register_fake
def _(u: Tensor, forward: Tensor, backward: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(u), torch.empty_like(forward), torch.empty_like(backward)


class _Compiled(torch.autograd.Function):
    """The compiled convolution: u, (B, T, C), with forward, (K <= T, C), and backward, (K' <= T - 1, C): (B, T, C).

    C is a multiple of LANES.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
        ctx.save_for_backward(u, forward, backward)
        return _convolve(u, forward, backward)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs: tuple[Tensor, ...] = ctx.saved_tensors
        return _convolve_backward(*inputs, grads[0].contiguous())


class _Transformed(torch.autograd.Function):
    """The convolution in torch's operations, for other devices: u, (B, C, T) -> (B, C, T), for any C."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
        ctx.save_for_backward(u, forward, backward)
        size, spectrum = _circular_spectrum(u, forward, backward)
        out = torch.empty_like(u)
        for rows in _batches(u, size):
            out[rows] = torch.fft.irfft(torch.fft.rfft(u[rows], n=size).mul_(spectrum), n=size)[..., : u.shape[2]]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        u, forward, backward = ctx.saved_tensors
        size, spectrum = _circular_spectrum(u, forward, backward)
        conjugate, total, grad_u = spectrum.conj_physical(), torch.zeros_like(spectrum), torch.empty_like(u)
        for rows in _batches(u, size):
            moved = torch.fft.rfft(grads[0][rows], n=size)
            total += (torch.fft.rfft(u[rows], n=size).conj_physical_() * moved).sum(0)
            grad_u[rows] = torch.fft.irfft(moved.mul_(conjugate), n=size)[..., : u.shape[2]]
        taps = torch.fft.irfft(total, n=size)
        return grad_u, taps[:, : forward.shape[1]], taps[:, size - backward.shape[1] :].flip(-1)


def _circular_spectrum(u: Tensor, forward: Tensor, backward: Tensor) -> tuple[int, Tensor]:
    """The size of the transforms, and the spectrum of both kernels as one circular kernel: (C, size // 2 + 1) complex.

    The backward kernel's taps lie at the end, in reverse.
    """
    # The size must tell apart all lags modulo itself: T - 1 forwards and K' backwards.
    size = transform_size(u.shape[2] + max(forward.shape[1] - 1, backward.shape[1]))
    gap = forward.new_zeros(len(forward), size - forward.shape[1] - backward.shape[1])
    return size, torch.fft.rfft(torch.cat([forward, gap, backward.flip(-1)], dim=1))


def _batches(u: Tensor, size: int) -> Iterator[slice]:
    step = max(1, BLOCK // (u.shape[1] * size))
    for start in range(0, u.shape[0], step):
        yield slice(start, start + step)
