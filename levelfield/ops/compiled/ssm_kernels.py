"""Convolution kernels of state-space models by running their recurrence, compiled: sixteen channels side by side.

A channel's state is a few dozen numbers, so sixteen channels' states and parameters stay in the first-level cache while
all steps go by; a step costs a few hundred instructions for all sixteen, less than the cleverer ways, which must move
tables through memory. Backward passes keep nothing: they run the recurrence again, the states of one chunk at a time.

Arrays of states are (blocks of sixteen channels, ..., N, 2, 16), as `to_blocks` makes them, and kernels (S, T, C), T a
multiple of CHUNK. Letters: S kernels per channel, N complex states, T steps, C channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from levelfield.ops.compiled.simd import LANES, ROW, compiled, get, load, plus, put, store, times, times_conjugate

CHUNK = 64  # steps between two exact powers, and between two states kept in the backward
NEGLIGIBLE = 1e-19  # states below it are zero: what is made of them stays clear of slow subnormal numbers


def whole(length: int) -> int:
    """Steps in whole chunks."""
    return -(-length // CHUNK) * CHUNK


@compiled
def _begin(power: Any, here: Any) -> None:
    """The power to begin a chunk with, rounded into `here` and without what is negligible."""
    for i in range(power.size):
        if abs(power[i]) < NEGLIGIBLE:
            power[i] = 0
        here[i] = power[i]


@compiled
def _advance(power: Any, jump: Any) -> None:
    """power *= jump, complex, in their own precision."""
    for n in range(jump.shape[0]):
        i = n * ROW
        put(power, i, times(get(power, i), get(jump, i)))


@compiled
def _ones(power: Any) -> None:
    for i in range(power.size):
        power[i] = 1 if i % ROW < LANES else 0


@compiled
def diagonal(step: Any, jump: Any, weight: Any, out: Any, blocks: tuple[int, int]) -> None:
    """out = Re sum_n weight step^t. step: (blocks, N, 2, 16); jump, float64: its CHUNK-th power; weight: by S too."""
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
            _begin(power, here)
            _advance(power, jump[block])
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
    """sum_t grad step^t and sum_t t grad step^t. grad: (S, T, C); both sums: (blocks, S, N, 2, 16)."""
    kinds, length, channels = grad.shape
    states = step.shape[1]
    power, here = np.empty(states * ROW, jump.dtype), np.empty(states * ROW, step.dtype)
    given, timed = np.empty(CHUNK * LANES, step.dtype), np.empty(CHUNK * LANES, step.dtype)
    for block in range(blocks[0], blocks[1]):
        _ones(power)
        for first in range(0, length, CHUNK):
            _begin(power, here)
            _advance(power, jump[block])
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
    """Real inner product of N pairs, those of x `gap` apart."""
    a, b = get(x, at), get(y, base)
    even, odd = a[0] * b[0], a[1] * b[1]
    for n in range(1, states):
        a, b = get(x, at + n * gap), get(y, base + n * ROW)
        even, odd = even + a[0] * b[0], odd + a[1] * b[1]
    return even + odd


@compiled
def _step(
    x: Any, at: int, to: int, gap: int, dot: Any, change: Any, column: Any, row: Any, base: int, states: int
) -> Any:
    """x[to] = x[at] + change x[at] - column dot, where dot = row . x[at]; returns row . x[to]."""
    even = odd = dot - dot
    for n in range(states):
        i = base + n * ROW
        z, c, r = get(x, at + n * gap), get(column, i), get(row, i)
        re, im = times(z, get(change, i))
        z = z[0] + (re - c[0] * dot), z[1] + (im - c[1] * dot)
        put(x, to + n * gap, z)
        even, odd = even + z[0] * r[0], odd + z[1] * r[1]
    return even + odd


@compiled
def _step_back(
    pulls: Any, to: int, gap: int, back: Any, change: Any, column: Any, row: Any, base: int, states: int
) -> None:
    """One step against time of the states' gradients, which lie in pulls one after another: `_step` transposed."""
    for n in range(states):
        i = base + n * ROW
        p, r = get(pulls, to + ROW + n * gap), get(row, i)
        re, im = times_conjugate(p, get(change, i))
        put(pulls, to + n * gap, (p[0] + (re - r[0] * back), p[1] + (im - r[1] * back)))


@compiled
def _copy(to: Any, first: int, gap: int, source: Any, start: int, stride: int, states: int) -> None:
    for n in range(states):
        put(to, first + n * gap, get(source, start + n * stride))


@compiled
def _drop(x: Any) -> None:
    for i in range(x.size):
        if abs(x[i]) < NEGLIGIBLE:
            x[i] = 0


@compiled
def low_rank(change: Any, column: Any, row: Any, start: Any, ends: Any, out: Any, blocks: tuple[int, int]) -> None:
    """out[t] = ends . x[t] with x[0] = start, x[t + 1] = x + change x - column (row . x)."""
    kinds, length, channels = out.shape
    states = change.shape[1]
    x = np.empty(states * ROW, change.dtype)
    for block in range(blocks[0], blocks[1]):
        base = block * states * ROW
        _copy(x, 0, ROW, start, base, ROW, states)
        for first in range(0, length, CHUNK):
            _drop(x)
            dot = _dot(x, 0, ROW, row, base, states)
            for t in range(first, first + CHUNK):
                for s in range(kinds):
                    value = _dot(x, 0, ROW, ends, (block * kinds + s) * states * ROW, states)
                    store(out, (s * length + t) * channels + block * LANES, value)
                dot = _step(x, 0, 0, ROW, dot, change, column, row, base, states)


@compiled
def low_rank_pull(
    change: Any, column: Any, row: Any, start: Any, ends: Any, grad: Any,
    grad_change: Any, grad_column: Any, grad_row: Any, grad_start: Any, grad_ends: Any, blocks: tuple[int, int],
) -> None:  # fmt: skip
    """Gradients of `low_rank`, added to what is given as zero, from grad: (S, T, C)."""
    kinds, length, channels = grad.shape
    states = change.shape[1]
    size, chunks, gap = states * ROW, length // CHUNK, (CHUNK + 1) * ROW
    kept, here, pull = np.empty(chunks * size, change.dtype), np.empty(size, change.dtype), np.empty(size, change.dtype)
    x, pulls = np.empty(states * gap, change.dtype), np.empty(states * gap, change.dtype)  # (N, CHUNK + 1, 2, 16)
    dots, backs = np.empty(CHUNK * LANES, change.dtype), np.empty(CHUNK * LANES, change.dtype)
    for block in range(blocks[0], blocks[1]):
        base = block * size
        _copy(here, 0, ROW, start, base, ROW, states)
        for chunk in range(chunks):
            _drop(here)
            _copy(kept, chunk * size, ROW, here, 0, ROW, states)
            dot = _dot(here, 0, ROW, row, base, states)
            for _ in range(CHUNK):
                dot = _step(here, 0, 0, ROW, dot, change, column, row, base, states)
        pull[:] = 0
        for chunk in range(chunks - 1, -1, -1):
            _copy(x, 0, gap, kept, chunk * size, ROW, states)
            dot = _dot(x, 0, gap, row, base, states)
            for j in range(CHUNK):
                store(dots, j * LANES, dot)
                dot = _step(x, j * ROW, (j + 1) * ROW, gap, dot, change, column, row, base, states)
            _drop(pull)
            _copy(pulls, CHUNK * ROW, gap, pull, 0, ROW, states)
            for j in range(CHUNK - 1, -1, -1):
                back = _dot(pulls, (j + 1) * ROW, gap, column, base, states)
                store(backs, j * LANES, back)
                _step_back(pulls, j * ROW, gap, back, change, column, row, base, states)
                for s in range(kinds):
                    g = load(grad, (s * length + chunk * CHUNK + j) * channels + block * LANES)
                    end = (block * kinds + s) * size
                    for n in range(states):
                        p, e = get(pulls, j * ROW + n * gap), get(ends, end + n * ROW)
                        put(pulls, j * ROW + n * gap, (p[0] + e[0] * g, p[1] + e[1] * g))
            _copy(pull, 0, ROW, pulls, 0, gap, states)
            for n in range(states):
                i = base + n * ROW
                turn, out, into = get(grad_change, i), get(grad_column, i), get(grad_row, i)
                for j in range(CHUNK):
                    z, p = get(x, n * gap + j * ROW), get(pulls, n * gap + (j + 1) * ROW)
                    dot, back = load(dots, j * LANES), load(backs, j * LANES)
                    turn = plus(turn, times_conjugate(p, z))
                    out = out[0] - p[0] * dot, out[1] - p[1] * dot
                    into = into[0] - z[0] * back, into[1] - z[1] * back
                put(grad_change, i, turn)
                put(grad_column, i, out)
                put(grad_row, i, into)
                for s in range(kinds):
                    end, first = ((block * kinds + s) * states + n) * ROW, s * length + chunk * CHUNK
                    total = get(grad_ends, end)
                    for j in range(CHUNK):
                        z, g = get(x, n * gap + j * ROW), load(grad, (first + j) * channels + block * LANES)
                        total = total[0] + z[0] * g, total[1] + z[1] * g
                    put(grad_ends, end, total)
        _copy(grad_start, base, ROW, pull, 0, ROW, states)
