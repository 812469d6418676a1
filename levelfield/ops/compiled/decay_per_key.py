"""Linear attention whose past fades channel by channel, as a compiled recurrence: one state, step by step, in cache.

A state of (V, K) numbers stays in the nearest cache while all steps of a head go by, sixteen key channels at a time, so
nothing is exponentiated between pairs of steps and nothing is kept for the backward, which runs the recurrence again.
There, with E the sum over value channels of a state's numbers times their gradients, a log-decay's gradient is the E of
its step less k dk, and goes on to the step before as E; at the end of every chunk E is summed anew, so that rounding
does not pile up.

All arrays are flat and of one type: q, k, decay (B, T, H, K), v, y (B, T, H, V), states (B, H, V, K), bonus (H, K), K a
multiple of 16. `early`: a step is read before it enters, through the bonus. A pair is a row of the batch and a head.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from levelfield.ops.compiled.simd import LANES, compiled, load, store, total

CHUNK = 64  # steps between two exact sums, and between two looks for what has faded
NEGLIGIBLE = 1e-19  # states below it are zero: what is made of them stays clear of slow subnormal numbers


@compiled
def _drop(x: Any, first: int, size: int) -> None:
    for i in range(first, first + size):
        if abs(x[i]) < NEGLIGIBLE:
            x[i] = 0


@compiled
def _weight(q: Any, k: Any, bonus: Any, at: int, own: int, keys: int) -> Any:
    """What a step read early makes of its own value: sum of q k bonus."""
    result = q[0] - q[0]
    for c in range(0, keys, LANES):
        result += total(load(q, at + c) * load(k, at + c) * load(bonus, own + c))
    return result


@compiled
def run(
    q: Any, k: Any, v: Any, decay: Any, bonus: Any, state: Any, y: Any, early: bool,
    sizes: tuple[int, int, int, int], pairs: tuple[int, int],
) -> None:  # fmt: skip
    """y, and the last state in place of the first. sizes: T, H, K, V."""
    steps, heads, keys, values = sizes
    for pair in range(pairs[0], pairs[1]):
        row, head, base = pair // heads, pair % heads, pair * keys * values
        for t in range(steps):
            step = (row * steps + t) * heads + head
            at, to = step * keys, step * values
            weight = _weight(q, k, bonus, at, head * keys, keys)
            if t % CHUNK == 0:
                _drop(state, base, keys * values)
            for r in range(values):
                value, place = v[to + r], base + r * keys
                seen = load(q, at) - load(q, at)
                for c in range(0, keys, LANES):
                    before = load(state, place + c)
                    after = before * load(decay, at + c) + load(k, at + c) * value
                    store(state, place + c, after)
                    seen = seen + (before if early else after) * load(q, at + c)
                y[to + r] = total(seen) + weight * value if early else total(seen)


@compiled
def _pull_queries(
    q: Any, k: Any, v: Any, decay: Any, state: Any, grad: Any, grad_q: Any, kept: Any, early: bool,
    sizes: tuple[int, int, int, int], pair: int,
) -> None:  # fmt: skip
    """Gradients of q, but for the bonus; kept: the states at the ends of chunks, one after another."""
    steps, heads, keys, values = sizes
    size = keys * values
    for t in range(steps):
        step = (pair // heads * steps + t) * heads + pair % heads
        at, to = step * keys, step * values
        if t % CHUNK == 0:
            _drop(state, 0, size)
        for c in range(0, keys, LANES):
            fading, entering = load(decay, at + c), load(k, at + c)
            result = entering - entering
            for r in range(values):
                before = load(state, r * keys + c)
                after = before * fading + entering * v[to + r]
                store(state, r * keys + c, after)
                result = result + (before if early else after) * grad[to + r]
            store(grad_q, at + c, result)
        if t % CHUNK == CHUNK - 1 or t == steps - 1:
            kept[t // CHUNK * size : (t // CHUNK + 1) * size] = state


@compiled
def _pull_values(
    q: Any, k: Any, v: Any, decay: Any, grad: Any, grad_k: Any, grad_v: Any, back: Any, first: int, early: bool,
    at: int, to: int, keys: int, values: int,
) -> None:  # fmt: skip
    """One step of the states' gradient against time, and those of k and v on its way, but for the bonus."""
    for c in range(at, at + keys):
        grad_k[c] = 0
    for r in range(values):
        value, given, place = v[to + r], grad[to + r], first + r * keys
        result = load(k, at) - load(k, at)
        for c in range(0, keys, LANES):
            read, pulled = load(q, at + c) * given, load(back, place + c)
            whole = pulled if early else pulled + read
            result = result + whole * load(k, at + c)
            store(grad_k, at + c, load(grad_k, at + c) + whole * value)
            earlier = whole * load(decay, at + c)
            store(back, place + c, earlier + read if early else earlier)
        grad_v[to + r] = total(result)


@compiled
def pull(
    q: Any, k: Any, v: Any, decay: Any, bonus: Any, start: Any, grad: Any,
    back: Any, grad_q: Any, grad_k: Any, grad_v: Any, grad_log: Any, grad_bonus: Any, early: bool,
    sizes: tuple[int, int, int, int], pairs: tuple[int, int],
) -> None:  # fmt: skip
    """All gradients; back: of the last state, then of the first; grad_bonus: (B, H, K), given as zeros."""
    steps, heads, keys, values = sizes
    size = keys * values
    kept, ends = np.empty((steps + CHUNK - 1) // CHUNK * size, q.dtype), np.empty(keys, q.dtype)
    for pair in range(pairs[0], pairs[1]):
        first = pair * size
        _pull_queries(q, k, v, decay, start[first : first + size].copy(), grad, grad_q, kept, early, sizes, pair)
        for t in range(steps - 1, -1, -1):
            step = (pair // heads * steps + t) * heads + pair % heads
            at, to, own = step * keys, step * values, pair % heads * keys
            if t % CHUNK == CHUNK - 1 or t == steps - 1:
                _drop(back, first, size)
                ends[:] = 0
                for i in range(size):
                    ends[i % keys] += back[first + i] * kept[t // CHUNK * size + i]
            _pull_values(q, k, v, decay, grad, grad_k, grad_v, back, first, early, at, to, keys, values)
            for c in range(0, keys, LANES):
                end, seen = load(ends, c), load(q, at + c) * load(grad_q, at + c)
                end = (end if early else end + seen) - load(k, at + c) * load(grad_k, at + c)
                store(grad_log, at + c, end)
                store(ends, c, end + seen if early else end)
            if early:
                weight, both = _weight(q, k, bonus, at, own, keys), v[to] - v[to]
                for r in range(values):
                    both += v[to + r] * grad[to + r]
                    grad_v[to + r] += weight * grad[to + r]
                for c in range(keys):
                    grad_q[at + c] += bonus[own + c] * k[at + c] * both
                    grad_k[at + c] += bonus[own + c] * q[at + c] * both
                    grad_bonus[pair * keys + c] += q[at + c] * k[at + c] * both
