"""Runs linear attention with a decay per key channel as a compiled recurrence, whose state stays in cache.

A state of (V, K) numbers stays in the nearest cache while all steps of a head go by, sixteen key channels at a time.
Nothing is exponentiated between pairs of steps, and nothing is kept for the backward pass, which runs the recurrence
again.

The gradient of the log-decays follows from E, the product of the state and its gradient summed over value channels.
From a step to the one before it, E loses k dk and gains q dq; the gradient of the log-decay is E in between. At the end
of every chunk E is computed afresh from the state, so that rounding errors do not accumulate.

All arrays are flat and of one type. K is a multiple of 16. In the exclusive form a step is read before it enters the
state, with the weight `bonus`. A pair is a row of the batch and a head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from levelfield.ops.compiled.simd import LANES, compiled, load, store, total
from levelfield.ops.layers.underflow import UNDERFLOW

CHUNK = 64  # steps between two exact sums, and between two flushes of what is negligible


class Inputs(NamedTuple):
    q: Any  # (B, T, H, K)
    k: Any  # (B, T, H, K)
    decay: Any  # exp(log_decay): (B, T, H, K)
    bonus: Any  # (H, K)
    v: Any  # (B, T, H, V)


class Gradients(NamedTuple):
    q: Any  # (B, T, H, K)
    k: Any  # (B, T, H, K)
    log_decay: Any  # (B, T, H, K)
    bonus: Any  # (B, H, K), given as zeros
    v: Any  # (B, T, H, V)
    state: Any  # (B, H, V, K): given for the state after the last step, returned for that before the first


class Sizes(NamedTuple):
    steps: int
    heads: int
    keys: int
    values: int


@compiled
def _flush(x: Any, first: int, size: int) -> None:
    """Sets to zero what would lead to subnormal numbers."""
    for i in range(first, first + size):
        if abs(x[i]) < UNDERFLOW:
            x[i] = 0


@compiled
def _own_weight(x: Any, at: int, own: int, keys: int) -> Any:
    """The weight of a step's own value in the exclusive form: the sum of q k bonus."""
    result = x.q[0] - x.q[0]
    for c in range(0, keys, LANES):
        result += total(load(x.q, at + c) * load(x.k, at + c) * load(x.bonus, own + c))
    return result


@compiled
def forward(x: Any, state: Any, y: Any, exclusive: bool, sizes: Any, pairs: tuple[int, int]) -> None:
    """Writes y, (B, T, H, V), and the state after the last step over the state before the first, (B, H, V, K).

    x: `Inputs`; sizes: `Sizes`.
    """
    steps, heads, keys, values = sizes
    for pair in range(pairs[0], pairs[1]):
        row, head, base = pair // heads, pair % heads, pair * keys * values
        for t in range(steps):
            step = (row * steps + t) * heads + head
            at, to = step * keys, step * values
            weight = _own_weight(x, at, head * keys, keys)
            if t % CHUNK == 0:
                _flush(state, base, keys * values)
            for r in range(values):
                value, place = x.v[to + r], base + r * keys
                seen = load(x.q, at) - load(x.q, at)
                for c in range(0, keys, LANES):
                    before = load(state, place + c)
                    after = before * load(x.decay, at + c) + load(x.k, at + c) * value
                    store(state, place + c, after)
                    seen = seen + (before if exclusive else after) * load(x.q, at + c)
                y[to + r] = total(seen) + weight * value if exclusive else total(seen)


@compiled
def _backward_queries(
    x: Any, state: Any, grad: Any, grad_q: Any, kept: Any, exclusive: bool, sizes: Any, pair: int
) -> None:
    """Writes the gradient of q, without the bonus's part, and to `kept` the states at the ends of chunks in order."""
    steps, heads, keys, values = sizes
    size = keys * values
    for t in range(steps):
        step = (pair // heads * steps + t) * heads + pair % heads
        at, to = step * keys, step * values
        if t % CHUNK == 0:
            _flush(state, 0, size)
        for c in range(0, keys, LANES):
            decay, entering = load(x.decay, at + c), load(x.k, at + c)
            result = entering - entering
            for r in range(values):
                before = load(state, r * keys + c)
                after = before * decay + entering * x.v[to + r]
                store(state, r * keys + c, after)
                result = result + (before if exclusive else after) * grad[to + r]
            store(grad_q, at + c, result)
        if t % CHUNK == CHUNK - 1 or t == steps - 1:
            kept[t // CHUNK * size : (t // CHUNK + 1) * size] = state


@compiled
def _backward_values(x: Any, grad: Any, grads: Any, first: int, exclusive: bool, at: int, to: int, sizes: Any) -> None:
    """Takes the gradient of the state one step back, and writes those of k and v there, without the bonus's part."""
    keys, values = sizes.keys, sizes.values
    for c in range(at, at + keys):
        grads.k[c] = 0
    for r in range(values):
        value, given, place = x.v[to + r], grad[to + r], first + r * keys
        result = load(x.k, at) - load(x.k, at)
        for c in range(0, keys, LANES):
            read, later = load(x.q, at + c) * given, load(grads.state, place + c)
            whole = later if exclusive else later + read
            result = result + whole * load(x.k, at + c)
            store(grads.k, at + c, load(grads.k, at + c) + whole * value)
            earlier = whole * load(x.decay, at + c)
            store(grads.state, place + c, earlier + read if exclusive else earlier)
        grads.v[to + r] = total(result)


@compiled
def _backward_bonus(x: Any, grad: Any, grads: Any, pair: int, at: int, to: int, sizes: Any) -> None:
    """Adds what the bonus contributes to the gradients of one step."""
    own = pair % sizes.heads * sizes.keys
    weight, both = _own_weight(x, at, own, sizes.keys), x.v[to] - x.v[to]
    for r in range(sizes.values):
        both += x.v[to + r] * grad[to + r]
        grads.v[to + r] += weight * grad[to + r]
    for c in range(sizes.keys):
        grads.q[at + c] += x.bonus[own + c] * x.k[at + c] * both
        grads.k[at + c] += x.bonus[own + c] * x.q[at + c] * both
        grads.bonus[pair * sizes.keys + c] += x.q[at + c] * x.k[at + c] * both


@compiled
def backward(x: Any, state: Any, grad: Any, grads: Any, exclusive: bool, sizes: Any, pairs: tuple[int, int]) -> None:
    """Writes all gradients from `grad`, that of y: (B, T, H, V).

    x: `Inputs`; state: before the first step, (B, H, V, K); grads: `Gradients`; sizes: `Sizes`.
    """
    steps, heads, keys, values = sizes
    size = keys * values
    kept, ends = np.empty((steps + CHUNK - 1) // CHUNK * size, x.q.dtype), np.empty(keys, x.q.dtype)
    for pair in range(pairs[0], pairs[1]):
        first = pair * size
        _backward_queries(x, state[first : first + size].copy(), grad, grads.q, kept, exclusive, sizes, pair)
        for t in range(steps - 1, -1, -1):
            step = (pair // heads * steps + t) * heads + pair % heads
            at, to = step * keys, step * values
            if t % CHUNK == CHUNK - 1 or t == steps - 1:
                _flush(grads.state, first, size)
                ends[:] = 0
                for i in range(size):
                    ends[i % keys] += grads.state[first + i] * kept[t // CHUNK * size + i]
            _backward_values(x, grad, grads, first, exclusive, at, to, sizes)
            for c in range(0, keys, LANES):
                end, seen = load(ends, c), load(x.q, at + c) * load(grads.q, at + c)
                end = (end if exclusive else end + seen) - load(x.k, at + c) * load(grads.k, at + c)
                store(grads.log_decay, at + c, end)
                store(ends, c, end + seen if exclusive else end)
            if exclusive:
                _backward_bonus(x, grad, grads, pair, at, to, sizes)
