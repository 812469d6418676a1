"""First-order linear recurrences and their gradients as compiled loops, all channels of a step side by side.

A scan does one multiplication per number it reads, so a CPU spends its time on memory: going through the steps in
order, one row of channels after another, reads and writes each number once and keeps the state in the nearest cache.
Complex numbers lie as torch has them, and cost no more per byte.

All functions take arrays of one type, real or complex, and go from the first step to the last or, with `forwards`
false, the other way. Coefficients are rows: one per batch row and step, or a single one for all.
Letters: B batch, T steps, N channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from levelfield.ops.compiled.simd import compiled


@compiled
def run(a: Any, b: Any, initial: Any, h: Any, forwards: bool, rows: tuple[int, int]) -> None:
    """h[t] = a[t] h[t - 1] + b[t] for some rows of the batch. a: (B T or 1, N), b, h: (B, T, N), initial: (B, N)."""
    length, varies = b.shape[1], 1 if len(a) > 1 else 0
    state = np.empty(b.shape[2], b.dtype)
    for i in range(rows[0], rows[1]):
        state[:] = initial[i]
        for k in range(length):
            t = k if forwards else length - 1 - k
            factor, given, result = a[(i * length + t) * varies], b[i, t], h[i, t]
            for n in range(len(state)):
                state[n] = factor[n] * state[n] + given[n]
                result[n] = state[n]


@compiled
def pull(
    a: Any, h: Any, initial: Any, grad: Any, grad_a: Any, grad_b: Any, grad_initial: Any,
    forwards: bool, rows: tuple[int, int],
) -> None:  # fmt: skip
    """Gradients of `run` from that of h: grad_a is (B T, N), or (B, N) of zeros where there is one row of a."""
    length, varies = h.shape[1], 1 if len(a) > 1 else 0
    for i in range(rows[0], rows[1]):
        carried = grad_initial[i]
        carried[:] = 0
        for k in range(length):
            t, before = (length - 1 - k, length - 2 - k) if forwards else (k, k + 1)
            past = initial[i] if k == length - 1 else h[i, before]
            row = (i * length + t) * varies
            factor, given, pulled = a[row], grad[i, t], grad_b[i, t]
            if varies:
                own = grad_a[row]
                for n in range(len(carried)):
                    g = given[n] + carried[n]
                    pulled[n] = g
                    own[n] = g * np.conj(past[n])
                    carried[n] = g * np.conj(factor[n])
            else:
                own = grad_a[i]
                for n in range(len(carried)):
                    g = given[n] + carried[n]
                    pulled[n] = g
                    own[n] += g * np.conj(past[n])
                    carried[n] = g * np.conj(factor[n])
