"""Computes convolution kernels of state-space models by running their recurrence, sixteen channels side by side.

The state of a channel is a few dozen numbers, so the states and parameters of sixteen channels stay in the first-level
cache while all steps go by. A step costs a few hundred instructions for all sixteen, less than methods with fewer
operations, which must move tables through memory. Backward passes keep nothing: they run the recurrence again, and keep
the states of one chunk at a time.

Arrays of states are (blocks of sixteen channels, ..., N, 2, 16), as `to_simd_layout` makes them. Kernels are (S, T, C),
where T is a multiple of CHUNK. Letters: S kernels per channel, N complex states, T steps, C channels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from levelfield.ops.compiled.simd import LANES, ROW, compiled, get, load, plus, put, store, times, times_conjugate
from levelfield.ops.layers.underflow import UNDERFLOW

CHUNK = 64  # steps between two exact powers, and between two states kept in the backward pass


class LowRank(NamedTuple):
    """A recurrence x[t + 1] = x + change x - left (right . x), x[0] = input_vector, or the gradients of its parts."""

    change: Any  # (blocks, N, 2, 16): a complex product for each state
    left: Any  # (blocks, N, 2, 16)
    right: Any  # (blocks, N, 2, 16)
    input_vector: Any  # (blocks, N, 2, 16)
    output_vector: Any  # (blocks, S, N, 2, 16): out[t] = output_vector . x[t]


def whole(length: int) -> int:
    """Steps of the whole chunks that `length` steps fill, the last one perhaps in part."""
    return -(-length // CHUNK) * CHUNK


@compiled
def _round_power(power: Any, here: Any) -> None:
    """Rounds the power at a chunk's first step into `here`, and flushes what is negligible to zero."""
    for i in range(power.size):
        if abs(power[i]) < UNDERFLOW:
            power[i] = 0
        here[i] = power[i]


@compiled
def _next_power(power: Any, jump: Any) -> None:
    """Multiplies each complex power by its jump, in their own precision."""
    for n in range(jump.shape[0]):
        i = n * ROW
        put(power, i, times(get(power, i), get(jump, i)))


@compiled
def _ones(power: Any) -> None:
    for i in range(power.size):
        power[i] = 1 if i % ROW < LANES else 0


@compiled
def diagonal(step: Any, jump: Any, weight: Any, out: Any, blocks: tuple[int, int]) -> None:
    """Writes out[t] = Re sum_n weight step^t, (S, T, C).

    step: (blocks, N, 2, 16); jump: its CHUNK-th power in float64; weight: (blocks, S, N, 2, 16).
    """
    kinds, length, channels = out.shape
    states = step.shape[1]
    power, here, sums = (
        np.empty(states * ROW, jump.dtype),
        np.empty(states * ROW, step.dtype),
        np.empty(CHUNK * LANES, step.dtype),
    )
    for block in range(blocks[0], blocks[1]):
        _ones(power)
        for first in range(0, length, CHUNK):
            _round_power(power, here)
            _next_power(power, jump[block])
            for s in range(kinds):
                sums[:] = 0
                for n in range(states):
                    a = get(step, (block * states + n) * ROW)
                    x = times(get(weight, ((block * kinds + s) * states + n) * ROW), get(here, n * ROW))
                    y, twice = times(x, a), times(a, a)  # even and odd steps: two chains hide the latency of one
                    for i in range(0, CHUNK * LANES, ROW):
                        store(sums, i, load(sums, i) + x[0])
                        store(sums, i + LANES, load(sums, i + LANES) + y[0])
                        x, y = times(x, twice), times(y, twice)
                for t in range(CHUNK):
                    store(out, (s * length + first + t) * channels + block * LANES, load(sums, t * LANES))


@compiled
def moments(step: Any, jump: Any, grad: Any, plain_sum: Any, timed_sum: Any, blocks: tuple[int, int]) -> None:
    """Adds sum_t grad step^t to `plain_sum` and sum_t t grad step^t to `timed_sum`, (blocks, S, N, 2, 16) each.

    grad: (S, T, C); step and jump as for `diagonal`.
    """
    kinds, length, channels = grad.shape
    states = step.shape[1]
    power, here = np.empty(states * ROW, jump.dtype), np.empty(states * ROW, step.dtype)
    given, timed = np.empty(CHUNK * LANES, step.dtype), np.empty(CHUNK * LANES, step.dtype)
    for block in range(blocks[0], blocks[1]):
        _ones(power)
        for first in range(0, length, CHUNK):
            _round_power(power, here)
            _next_power(power, jump[block])
            for s in range(kinds):
                for t in range(CHUNK):
                    value = load(grad, (s * length + first + t) * channels + block * LANES)
                    store(given, t * LANES, value)
                    store(timed, t * LANES, value * step.dtype.type(first + t))
                for n in range(states):
                    at = ((block * kinds + s) * states + n) * ROW
                    a, x = get(step, (block * states + n) * ROW), get(here, n * ROW)
                    y, twice = times(x, a), times(a, a)
                    sum0, sum1 = get(plain_sum, at), get(timed_sum, at)
                    for i in range(0, CHUNK * LANES, ROW):
                        g, h, tg, th = load(given, i), load(given, i + LANES), load(timed, i), load(timed, i + LANES)
                        sum0 = sum0[0] + x[0] * g + y[0] * h, sum0[1] + x[1] * g + y[1] * h
                        sum1 = sum1[0] + x[0] * tg + y[0] * th, sum1[1] + x[1] * tg + y[1] * th
                        x, y = times(x, twice), times(y, twice)
                    put(plain_sum, at, sum0)
                    put(timed_sum, at, sum1)


@compiled
def _dot(x: Any, at: int, gap: int, y: Any, base: int, states: int) -> Any:
    """The real inner product of N pairs, those of x lying `gap` apart."""
    a, b = get(x, at), get(y, base)
    even, odd = a[0] * b[0], a[1] * b[1]
    for n in range(1, states):
        a, b = get(x, at + n * gap), get(y, base + n * ROW)
        even, odd = even + a[0] * b[0], odd + a[1] * b[1]
    return even + odd


@compiled
def _step(x: Any, at: int, to: int, gap: int, dot: Any, system: Any, base: int, states: int) -> Any:
    """Writes x[to] = x[at] + change x[at] - left dot, where dot = right . x[at]; returns right . x[to]."""
    even = odd = dot - dot
    for n in range(states):
        i = base + n * ROW
        z, c, r = get(x, at + n * gap), get(system.left, i), get(system.right, i)
        re, im = times(z, get(system.change, i))
        z = z[0] + (re - c[0] * dot), z[1] + (im - c[1] * dot)
        put(x, to + n * gap, z)
        even, odd = even + z[0] * r[0], odd + z[1] * r[1]
    return even + odd


@compiled
def _step_backward(grads: Any, to: int, gap: int, dot: Any, system: Any, base: int, states: int) -> None:
    """Takes the states' gradients, which lie in `grads` one after another, one step back: `_step` transposed."""
    for n in range(states):
        i = base + n * ROW
        p, r = get(grads, to + ROW + n * gap), get(system.right, i)
        re, im = times_conjugate(p, get(system.change, i))
        put(grads, to + n * gap, (p[0] + (re - r[0] * dot), p[1] + (im - r[1] * dot)))


@compiled
def _copy(to: Any, first: int, gap: int, source: Any, start: int, stride: int, states: int) -> None:
    for n in range(states):
        put(to, first + n * gap, get(source, start + n * stride))


@compiled
def _flush(x: Any) -> None:
    """Sets to zero what would lead to subnormal numbers."""
    for i in range(x.size):
        if abs(x[i]) < UNDERFLOW:
            x[i] = 0


@compiled
def low_rank(system: Any, out: Any, blocks: tuple[int, int]) -> None:
    """Writes out[t] = output_vector . x[t], (S, T, C), of the recurrence `LowRank`."""
    kinds, length, channels = out.shape
    states = system.change.shape[1]
    x = np.empty(states * ROW, system.change.dtype)
    for block in range(blocks[0], blocks[1]):
        base = block * states * ROW
        _copy(x, 0, ROW, system.input_vector, base, ROW, states)
        for first in range(0, length, CHUNK):
            _flush(x)
            dot = _dot(x, 0, ROW, system.right, base, states)
            for t in range(first, first + CHUNK):
                for s in range(kinds):
                    value = _dot(x, 0, ROW, system.output_vector, (block * kinds + s) * states * ROW, states)
                    store(out, (s * length + t) * channels + block * LANES, value)
                dot = _step(x, 0, 0, ROW, dot, system, base, states)


@compiled
def _states_at_chunks(system: Any, kept: Any, here: Any, block: int) -> None:
    """Runs the recurrence and writes the state at the start of each chunk to `kept`, one after another."""
    states, size = system.change.shape[1], here.size
    base = block * size
    _copy(here, 0, ROW, system.input_vector, base, ROW, states)
    for chunk in range(kept.size // size):
        _flush(here)
        _copy(kept, chunk * size, ROW, here, 0, ROW, states)
        dot = _dot(here, 0, ROW, system.right, base, states)
        for _ in range(CHUNK):
            dot = _step(here, 0, 0, ROW, dot, system, base, states)


@compiled
def _add_parameter_gradients(system: Any, grads: Any, x: Any, grad_x: Any, dots: Any, grad_dots: Any, at: int) -> None:
    """Adds a chunk's gradients of change, left and right. x, grad_x: (N, CHUNK + 1, 2, 16), of the chunk's states."""
    states, gap = system.change.shape[1], (CHUNK + 1) * ROW
    for n in range(states):
        i = at + n * ROW
        change, left, right = get(grads.change, i), get(grads.left, i), get(grads.right, i)
        for j in range(CHUNK):
            z, p = get(x, n * gap + j * ROW), get(grad_x, n * gap + (j + 1) * ROW)
            dot, grad_dot = load(dots, j * LANES), load(grad_dots, j * LANES)
            change = plus(change, times_conjugate(p, z))
            left = left[0] - p[0] * dot, left[1] - p[1] * dot
            right = right[0] - z[0] * grad_dot, right[1] - z[1] * grad_dot
        put(grads.change, i, change)
        put(grads.left, i, left)
        put(grads.right, i, right)


@compiled
def _add_output_gradients(grads: Any, x: Any, grad: Any, chunk: int, block: int) -> None:
    """Adds a chunk's gradient of the output vectors. x: (N, CHUNK + 1, 2, 16), its states; grad: (S, T, C)."""
    kinds, length, channels = grad.shape
    states, gap = grads.change.shape[1], (CHUNK + 1) * ROW
    for n in range(states):
        for s in range(kinds):
            at, first = ((block * kinds + s) * states + n) * ROW, s * length + chunk * CHUNK
            total = get(grads.output_vector, at)
            for j in range(CHUNK):
                z, g = get(x, n * gap + j * ROW), load(grad, (first + j) * channels + block * LANES)
                total = total[0] + z[0] * g, total[1] + z[1] * g
            put(grads.output_vector, at, total)


@compiled
def low_rank_backward(system: Any, grad: Any, grads: Any, blocks: tuple[int, int]) -> None:
    """Adds the gradients of `low_rank` to `grads`, a `LowRank` of zeros, from that of its result: (S, T, C)."""
    kinds, length, channels = grad.shape
    states = system.change.shape[1]
    size, chunks, gap, kind = states * ROW, length // CHUNK, (CHUNK + 1) * ROW, system.change.dtype
    kept, here, carry = np.empty(chunks * size, kind), np.empty(size, kind), np.empty(size, kind)
    x, grad_x = np.empty(states * gap, kind), np.empty(states * gap, kind)  # (N, CHUNK + 1, 2, 16)
    dots, grad_dots = np.empty(CHUNK * LANES, kind), np.empty(CHUNK * LANES, kind)
    for block in range(blocks[0], blocks[1]):
        base = block * size
        _states_at_chunks(system, kept, here, block)
        carry[:] = 0
        for chunk in range(chunks - 1, -1, -1):
            _copy(x, 0, gap, kept, chunk * size, ROW, states)
            dot = _dot(x, 0, gap, system.right, base, states)
            for j in range(CHUNK):
                store(dots, j * LANES, dot)
                dot = _step(x, j * ROW, (j + 1) * ROW, gap, dot, system, base, states)
            _flush(carry)
            _copy(grad_x, CHUNK * ROW, gap, carry, 0, ROW, states)
            for j in range(CHUNK - 1, -1, -1):
                grad_dot = _dot(grad_x, (j + 1) * ROW, gap, system.left, base, states)
                store(grad_dots, j * LANES, grad_dot)
                _step_backward(grad_x, j * ROW, gap, grad_dot, system, base, states)
                for s in range(kinds):
                    g = load(grad, (s * length + chunk * CHUNK + j) * channels + block * LANES)
                    end = (block * kinds + s) * size
                    for n in range(states):
                        p, e = get(grad_x, j * ROW + n * gap), get(system.output_vector, end + n * ROW)
                        put(grad_x, j * ROW + n * gap, (p[0] + e[0] * g, p[1] + e[1] * g))
            _copy(carry, 0, ROW, grad_x, 0, gap, states)
            _add_parameter_gradients(system, grads, x, grad_x, dots, grad_dots, base)
            _add_output_gradients(grads, x, grad, chunk, block)
        _copy(grads.input_vector, base, ROW, carry, 0, ROW, states)
