"""Convolves along the steps of (batch, steps, channels) by compiled FFTs of sixteen channels at a time.

FFT libraries transform rows, so a layer that keeps its channels last must transpose, pad, transform, multiply and undo
all that, each time through memory. Here a vector holds one step of sixteen channels, as they lie in memory. Nothing is
transposed or shuffled, and sixteen channels go through the whole convolution without leaving the second-level cache.
Three facts make the transforms short:

- No reordering is needed. Both spectra are in digit-reversed order, and a pointwise product does not depend on it.
- No padding to twice the length is needed. Modulo x^S = i, a real product of degree below 2 S carries what wraps around
  in its imaginary part. So the factors are multiplied by exp(i pi t / 2S) before a complex transform of S >= T steps,
  and the product by the conjugate after it (right-angle convolution).
- A tap at lag -1 - j is a coefficient of x^(-1-j) = -i x^(S-1-j), so two-sided kernels cost nothing more.

A work area is flat: row t is 16 real, then 16 imaginary parts. All functions take float32 and float64.
Letters: B batch, T steps, C channels, G kernels, K taps, S transform size.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from levelfield.ops.compiled.simd import (
    LANES,
    ROW,
    compiled,
    fetch,
    get,
    load,
    minus,
    plus,
    put,
    store,
    times,
    times_conjugate,
)

INNER = 64  # rows whose last stages run together: 8 KiB of float32, which stay in the first-level cache
AHEAD = 16  # steps prefetched ahead, because processors do not foresee accesses a page or so apart


class Plan(NamedTuple):
    """The tables of a transform of S steps, of one floating-point type."""

    stages: Any  # (stages, 5) int64: first row, last row, radix, rows of a part, first twiddle
    twiddles: Any  # flat: cos and sin of every stage's angles, one after another
    rotations: Any  # flat: cos and sin of pi t / 2S for every step t


def size_for(length: int) -> int:
    """The smallest 2^a or 3 * 2^a that is at least the length."""
    power = 1 << (length - 1).bit_length()
    return 3 * power // 4 if 3 * power // 4 >= length and power >= 4 else power


@cache
def plan(size: int, dtype: np.dtype[Any]) -> Plan:
    """The tables for transforms of `size` steps, 2^a or 3 * 2^a."""
    radices, rest = [3] if size % 3 == 0 else [], size // 3 if size % 3 == 0 else size
    while rest > 1:
        radices.append(2 if rest.bit_length() % 2 == 0 else 4)
        rest //= radices[-1]
    rows = size
    angles: list[Any] = [np.zeros(0)]
    for radix in radices:
        angles.append(-2 * np.pi / rows * np.outer(np.arange(rows // radix), np.arange(1, radix)).ravel())
        rows //= radix
    twiddles, rotations = (
        np.stack([np.cos(angle), np.sin(angle)], -1).astype(dtype).ravel()
        for angle in (np.concatenate(angles), np.pi / (2 * size) * np.arange(size))
    )
    return Plan(np.array(_stages(0, size, radices, 0), np.int64).reshape(-1, 5), twiddles, rotations)


def _stages(first: int, rows: int, radices: list[int], at: int) -> list[tuple[int, int, int, int, int]]:
    """The stages in the order in which they run: depth first while blocks are large, so that each stays in the nearest
    cache that holds it."""
    if not radices:
        return []
    radix = radices[0]
    part, then = rows // radix, at + 2 * (radix - 1) * (rows // radix)
    if rows > INNER:
        deeper = [stage for k in range(radix) for stage in _stages(first + k * part, part, radices[1:], then)]
    else:
        deeper = [(first, first + rows, *stage[2:]) for stage in _stages(first, part, radices[1:], then)]
    return [(first, first + rows, radix, part, at), *deeper]


@compiled
def _two(a: Any, b: Any) -> Any:
    """The transform of two: their sum and difference."""
    return plus(a, b), minus(a, b)


@compiled
def _three(a: Any, b: Any, c: Any, half: Any, root: Any) -> Any:
    """The transform of three. half: 1/2; root: sin(pi/3)."""
    sums, less = _two(b, c)
    middle, side = _two((a[0] - sums[0] * half, a[1] - sums[1] * half), (less[1] * root, less[0] * root))
    return (a[0] + sums[0], a[1] + sums[1]), (middle[0], side[1]), (side[0], middle[1])


@compiled
def _four(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The transform of four."""
    (even, less), (odd, turned) = _two(a, c), _two(b, d)
    (first, third), (second, fourth) = _two(even, odd), _two(less, (turned[1], turned[0]))
    return first, (second[0], fourth[1]), third, (fourth[0], second[1])


@compiled
def _forward_stage(work: Any, first: int, last: int, radix: int, rows: int, twiddles: Any, at: int) -> None:
    """One stage: replaces every block of radix * rows rows by `radix` parts of `rows` rows, times their twiddles."""
    gap, half, root = rows * ROW, twiddles.dtype.type(0.5), twiddles.dtype.type(0.75**0.5)
    for block in range(first, last, radix * rows):
        for p in range(rows):
            i, k = (block + p) * ROW, at + 2 * (radix - 1) * p
            if radix == 4:
                a, b, c, d = _four(get(work, i), get(work, i + gap), get(work, i + 2 * gap), get(work, i + 3 * gap))
                put(work, i + 3 * gap, times(d, (twiddles[k + 4], twiddles[k + 5])))
                put(work, i + 2 * gap, times(c, (twiddles[k + 2], twiddles[k + 3])))
            elif radix == 3:
                a, b, c = _three(get(work, i), get(work, i + gap), get(work, i + 2 * gap), half, root)
                put(work, i + 2 * gap, times(c, (twiddles[k + 2], twiddles[k + 3])))
            else:
                a, b = _two(get(work, i), get(work, i + gap))
            put(work, i, a)
            put(work, i + gap, times(b, (twiddles[k], twiddles[k + 1])))


@compiled
def _inverse_stage(work: Any, first: int, last: int, radix: int, rows: int, twiddles: Any, at: int) -> None:
    """The inverse of `_forward_stage`, up to a factor of radix."""
    gap, half, root = rows * ROW, twiddles.dtype.type(0.5), twiddles.dtype.type(0.75**0.5)
    for block in range(first, last, radix * rows):
        for p in range(rows):
            i, k = (block + p) * ROW, at + 2 * (radix - 1) * p
            a, b = get(work, i), times(get(work, i + gap), (twiddles[k], -twiddles[k + 1]))
            if radix == 4:
                c = times(get(work, i + 2 * gap), (twiddles[k + 2], -twiddles[k + 3]))
                d = times(get(work, i + 3 * gap), (twiddles[k + 4], -twiddles[k + 5]))
                a, d, c, b = _four(a, b, c, d)
                put(work, i + 3 * gap, d)
                put(work, i + 2 * gap, c)
            elif radix == 3:
                c = times(get(work, i + 2 * gap), (twiddles[k + 2], -twiddles[k + 3]))
                a, c, b = _three(a, b, c, half, root)
                put(work, i + 2 * gap, c)
            else:
                a, b = _two(a, b)
            put(work, i, a)
            put(work, i + gap, b)


@compiled
def forward_fft(work: Any, tables: Any) -> None:
    """Transforms all rows in place; the spectrum is in digit-reversed order. tables: `Plan`."""
    for first, last, radix, rows, at in tables.stages:
        _forward_stage(work, first, last, radix, rows, tables.twiddles, at)


@compiled
def inverse_fft(work: Any, tables: Any) -> None:
    """The inverse of `forward_fft`, up to a factor of S."""
    for first, last, radix, rows, at in tables.stages[::-1]:
        _inverse_stage(work, first, last, radix, rows, tables.twiddles, at)


@compiled
def _load_rotated(work: Any, u: Any, first: int, stride: int, length: int, rotations: Any) -> None:
    """Copies sixteen channels of u to the work area, step t times exp(i pi t / 2S), with zeros from `length` on."""
    for t in range(length):
        fetch(u, first + (t + AHEAD) * stride)
        value = load(u, first + t * stride)
        put(work, t * ROW, (value * rotations[2 * t], value * rotations[2 * t + 1]))
    work[length * ROW :] = 0


@compiled
def _store_rotated(work: Any, out: Any, first: int, stride: int, length: int, rotations: Any) -> None:
    """Rotates the rows back, and writes their real parts over S to sixteen channels of `out`."""
    scale = rotations.dtype.type(2 / len(rotations))
    for t in range(length):
        re, im = get(work, t * ROW)
        store(out, first + t * stride, re * (rotations[2 * t] * scale) + im * (rotations[2 * t + 1] * scale))


@compiled
def _add_backward_taps(work: Any, backward: Any, first: int, stride: int, rotations: Any) -> None:
    """Adds the taps of the backward kernels, times -i and rotated, to the rows from the last one on."""
    size = len(rotations) // 2
    for t in range(backward.shape[0]):
        row, value = size - 1 - t, load(backward, first + t * stride)
        put(work, row * ROW, plus(get(work, row * ROW), (value * rotations[2 * row + 1], value * -rotations[2 * row])))


@compiled
def _store_backward_taps(work: Any, backward: Any, first: int, stride: int, rotations: Any) -> None:
    """Writes the gradients of those taps: negative imaginary parts of the rows, rotated back, over S."""
    size = len(rotations) // 2
    scale = rotations.dtype.type(1 / size)
    for t in range(backward.shape[0]):
        row = size - 1 - t
        re, im = get(work, row * ROW)
        store(backward, first + t * stride, re * (rotations[2 * row + 1] * scale) - im * (rotations[2 * row] * scale))


@compiled
def convolve(u: Any, forward: Any, backward: Any, out: Any, tables: Any, blocks: tuple[int, int]) -> None:
    """Writes the convolution of u with both kernels to `out`, for a range of blocks of sixteen channels.

    u, out: (B, T, C); forward: (K, C); backward: (K', C); tables: `Plan` of at least T steps.
    """
    batch, length, channels = u.shape
    size = len(tables.rotations) // 2
    work, spectrum = np.empty(size * ROW, u.dtype), np.empty(size * ROW, u.dtype)
    for channel in range(blocks[0] * LANES, blocks[1] * LANES, LANES):
        _load_rotated(spectrum, forward, channel, channels, len(forward), tables.rotations)
        _add_backward_taps(spectrum, backward, channel, channels, tables.rotations)
        forward_fft(spectrum, tables)
        for first in range(channel, batch * length * channels, length * channels):
            _load_rotated(work, u, first, channels, length, tables.rotations)
            forward_fft(work, tables)
            for i in range(0, size * ROW, ROW):
                put(work, i, times(get(work, i), get(spectrum, i)))
            inverse_fft(work, tables)
            _store_rotated(work, out, first, channels, length, tables.rotations)


class Inputs(NamedTuple):
    """The inputs of a convolution, or their gradients."""

    u: Any  # (B, T, C)
    forward: Any  # (K, C)
    backward: Any  # (K', C)


@compiled
def convolve_backward(x: Any, grad: Any, grads: Any, tables: Any, blocks: tuple[int, int]) -> None:
    """Writes the gradients of `convolve` from that of its result, (B, T, C). x, grads: `Inputs`; tables: `Plan`."""
    batch, length, channels = x.u.shape
    size = len(tables.rotations) // 2
    work, moved = np.empty(size * ROW, x.u.dtype), np.empty(size * ROW, x.u.dtype)
    spectrum, total = np.empty(size * ROW, x.u.dtype), np.empty(size * ROW, x.u.dtype)
    for channel in range(blocks[0] * LANES, blocks[1] * LANES, LANES):
        _load_rotated(spectrum, x.forward, channel, channels, len(x.forward), tables.rotations)
        _add_backward_taps(spectrum, x.backward, channel, channels, tables.rotations)
        forward_fft(spectrum, tables)
        total[:] = 0
        for first in range(channel, batch * length * channels, length * channels):
            _load_rotated(moved, grad, first, channels, length, tables.rotations)
            forward_fft(moved, tables)
            _load_rotated(work, x.u, first, channels, length, tables.rotations)
            forward_fft(work, tables)
            for i in range(0, size * ROW, ROW):
                given = get(moved, i)
                put(total, i, plus(get(total, i), times_conjugate(given, get(work, i))))
                put(moved, i, times_conjugate(given, get(spectrum, i)))
            inverse_fft(moved, tables)
            _store_rotated(moved, grads.u, first, channels, length, tables.rotations)
        inverse_fft(total, tables)
        _store_rotated(total, grads.forward, channel, channels, len(x.forward), tables.rotations)
        _store_backward_taps(total, grads.backward, channel, channels, tables.rotations)
