"""Convolution along the steps of (batch, steps, channels), compiled: sixteen channels at a time, kept in cache.

FFT libraries transform rows, so a layer that keeps its channels last must transpose, pad, transform, multiply and undo
all that, each time through memory. Here a register holds one step of sixteen channels, as they lie in memory: nothing
is transposed or shuffled, and a block goes through all of it without leaving the second-level cache. Three facts make
the transforms short:

- Orders cancel. `_down` leaves the spectrum in digit-reversed order and `_up` expects it so; products do not mind.
- No padding to twice the length. Modulo x^S = i, a real product of degree below 2 S has what wrapped around in its
  imaginary part. Its factors are turned by exp(i pi t / 2S) before a complex transform of S >= T steps, and the
  product is turned back (right-angle convolution).
- A tap at lag -1 - j is a coefficient of x^(-1-j) = -i x^(S-1-j): two-sided kernels cost nothing more.

A work area is flat: row t is 16 real, then 16 imaginary parts. All functions take float32 and float64.
Letters: B batch, T steps, C channels, G kernels, K taps, S transform size.
"""

from __future__ import annotations

from functools import cache
from typing import Any

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

INNER = 64  # rows whose last stages are done together: 8 KiB of float32 stay in the first-level cache
AHEAD = 16  # steps asked for ahead: they lie a page or so apart, which no processor foresees


def size_for(length: int) -> int:
    """The smallest 2^a or 3 * 2^a that is not below the length."""
    power = 1 << (length - 1).bit_length()
    return 3 * power // 4 if 3 * power // 4 >= length and power >= 4 else power


@cache
def plan(size: int, dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stages in order, as `_down` takes them; turns of all stages and of the steps, (cos, sin) one after another."""
    radices, rest = [3] if size % 3 == 0 else [], size // 3 if size % 3 == 0 else size
    while rest > 1:
        radices.append(2 if rest.bit_length() % 2 == 0 else 4)
        rest //= radices[-1]
    rows = size
    angles: list[Any] = [np.zeros(0)]
    for radix in radices:
        angles.append(-2 * np.pi / rows * np.outer(np.arange(rows // radix), np.arange(1, radix)).ravel())
        rows //= radix
    turns, steps = (
        np.stack([np.cos(angle), np.sin(angle)], -1).astype(dtype).ravel()
        for angle in (np.concatenate(angles), np.pi / (2 * size) * np.arange(size))
    )
    return np.array(_stages(0, size, radices, 0), np.int64).reshape(-1, 5), turns, steps


def _stages(first: int, rows: int, radices: list[int], at: int) -> list[tuple[int, int, int, int, int]]:
    """Depth first while blocks are large, so that each stays in the nearest cache that holds it."""
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
    """Sum and difference: the transform of two."""
    return plus(a, b), minus(a, b)


@compiled
def _three(a: Any, b: Any, c: Any, half: Any, root: Any) -> Any:
    """The transform of three; half and root are 1/2 and sin(pi/3)."""
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
def _down(work: Any, first: int, last: int, radix: int, rows: int, turns: Any, at: int) -> None:
    """A stage: every block of radix x rows rows becomes its radix transforms, turned, of rows rows each."""
    gap, half, root = rows * ROW, turns.dtype.type(0.5), turns.dtype.type(0.75**0.5)
    for block in range(first, last, radix * rows):
        for p in range(rows):
            i, k = (block + p) * ROW, at + 2 * (radix - 1) * p
            if radix == 4:
                a, b, c, d = _four(get(work, i), get(work, i + gap), get(work, i + 2 * gap), get(work, i + 3 * gap))
                put(work, i + 3 * gap, times(d, (turns[k + 4], turns[k + 5])))
                put(work, i + 2 * gap, times(c, (turns[k + 2], turns[k + 3])))
            elif radix == 3:
                a, b, c = _three(get(work, i), get(work, i + gap), get(work, i + 2 * gap), half, root)
                put(work, i + 2 * gap, times(c, (turns[k + 2], turns[k + 3])))
            else:
                a, b = _two(get(work, i), get(work, i + gap))
            put(work, i, a)
            put(work, i + gap, times(b, (turns[k], turns[k + 1])))


@compiled
def _up(work: Any, first: int, last: int, radix: int, rows: int, turns: Any, at: int) -> None:
    """`_down` undone, but for a factor of radix: turned back, then the inverse transform, which is in other order."""
    gap, half, root = rows * ROW, turns.dtype.type(0.5), turns.dtype.type(0.75**0.5)
    for block in range(first, last, radix * rows):
        for p in range(rows):
            i, k = (block + p) * ROW, at + 2 * (radix - 1) * p
            a, b = get(work, i), times(get(work, i + gap), (turns[k], -turns[k + 1]))
            if radix == 4:
                c = times(get(work, i + 2 * gap), (turns[k + 2], -turns[k + 3]))
                d = times(get(work, i + 3 * gap), (turns[k + 4], -turns[k + 5]))
                a, d, c, b = _four(a, b, c, d)
                put(work, i + 3 * gap, d)
                put(work, i + 2 * gap, c)
            elif radix == 3:
                c = times(get(work, i + 2 * gap), (turns[k + 2], -turns[k + 3]))
                a, c, b = _three(a, b, c, half, root)
                put(work, i + 2 * gap, c)
            else:
                a, b = _two(a, b)
            put(work, i, a)
            put(work, i + gap, b)


@compiled
def transform(work: Any, stages: Any, turns: Any) -> None:
    """The spectrum of all rows, in place, in digit-reversed order."""
    for first, last, radix, rows, at in stages:
        _down(work, first, last, radix, rows, turns, at)


@compiled
def restore(work: Any, stages: Any, turns: Any) -> None:
    """`transform` undone, but for a factor of S."""
    for first, last, radix, rows, at in stages[::-1]:
        _up(work, first, last, radix, rows, turns, at)


@compiled
def _enter(work: Any, u: Any, first: int, stride: int, length: int, size: int, steps: Any) -> None:
    """Sixteen channels of u into the work area: step t turned by exp(i pi t / 2S), zero from `length` on."""
    for t in range(length):
        fetch(u, first + (t + AHEAD) * stride)
        value = load(u, first + t * stride)
        put(work, t * ROW, (value * steps[2 * t], value * steps[2 * t + 1]))
    work[length * ROW : size * ROW] = 0


@compiled
def _leave(work: Any, out: Any, first: int, stride: int, length: int, size: int, steps: Any) -> None:
    """Real parts, turned back, into sixteen channels of out."""
    scale = steps.dtype.type(1 / size)
    for t in range(length):
        re, im = get(work, t * ROW)
        store(out, first + t * stride, re * (steps[2 * t] * scale) + im * (steps[2 * t + 1] * scale))


@compiled
def _enter_backward(work: Any, backward: Any, first: int, stride: int, size: int, steps: Any) -> None:
    """Taps of the backward kernels, times -i, onto the rows from the end."""
    for t in range(backward.shape[0]):
        row, value = size - 1 - t, load(backward, first + t * stride)
        put(work, row * ROW, plus(get(work, row * ROW), (value * steps[2 * row + 1], value * -steps[2 * row])))


@compiled
def _leave_backward(work: Any, backward: Any, first: int, stride: int, size: int, steps: Any) -> None:
    """Their gradients: negative imaginary parts, turned back, of the rows from the end."""
    scale = steps.dtype.type(1 / size)
    for t in range(backward.shape[0]):
        row = size - 1 - t
        re, im = get(work, row * ROW)
        store(backward, first + t * stride, re * (steps[2 * row + 1] * scale) - im * (steps[2 * row] * scale))


@compiled
def convolve(
    u: Any,
    forward: Any,
    backward: Any,
    out: Any,
    size: int,
    stages: Any,
    turns: Any,
    steps: Any,
    blocks: tuple[int, int],
) -> None:
    """u, out: (B, T, C), forward: (K, C), backward: (K', C), for the blocks of sixteen channels from one to another."""
    batch, length, channels = u.shape
    work, spectrum = np.empty(size * ROW, u.dtype), np.empty(size * ROW, u.dtype)
    for channel in range(blocks[0] * LANES, blocks[1] * LANES, LANES):
        _enter(spectrum, forward, channel, channels, len(forward), size, steps)
        _enter_backward(spectrum, backward, channel, channels, size, steps)
        transform(spectrum, stages, turns)
        for first in range(channel, batch * length * channels, length * channels):
            _enter(work, u, first, channels, length, size, steps)
            transform(work, stages, turns)
            for i in range(0, size * ROW, ROW):
                put(work, i, times(get(work, i), get(spectrum, i)))
            restore(work, stages, turns)
            _leave(work, out, first, channels, length, size, steps)


@compiled
def pull(
    u: Any, forward: Any, backward: Any, grad: Any, grad_u: Any, grad_forward: Any, grad_backward: Any,
    size: int, stages: Any, turns: Any, steps: Any, blocks: tuple[int, int],
) -> None:  # fmt: skip
    """Gradients of `convolve` from that of its result: (B, T, C), (K, C) and (K', C)."""
    batch, length, channels = u.shape
    work, moved = np.empty(size * ROW, u.dtype), np.empty(size * ROW, u.dtype)
    spectrum, total = np.empty(size * ROW, u.dtype), np.empty(size * ROW, u.dtype)
    for channel in range(blocks[0] * LANES, blocks[1] * LANES, LANES):
        _enter(spectrum, forward, channel, channels, len(forward), size, steps)
        _enter_backward(spectrum, backward, channel, channels, size, steps)
        transform(spectrum, stages, turns)
        total[:] = 0
        for first in range(channel, batch * length * channels, length * channels):
            _enter(moved, grad, first, channels, length, size, steps)
            transform(moved, stages, turns)
            _enter(work, u, first, channels, length, size, steps)
            transform(work, stages, turns)
            for i in range(0, size * ROW, ROW):
                given = get(moved, i)
                put(total, i, plus(get(total, i), times_conjugate(given, get(work, i))))
                put(moved, i, times_conjugate(given, get(spectrum, i)))
            restore(moved, stages, turns)
            _leave(moved, grad_u, first, channels, length, size, steps)
        restore(total, stages, turns)
        _leave(total, grad_forward, channel, channels, len(forward), size, steps)
        _leave_backward(total, grad_backward, channel, channels, size, steps)
