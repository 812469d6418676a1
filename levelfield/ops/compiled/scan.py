"""Runs first-order linear recurrences and their gradients, with all channels of a step side by side.

A scan does one multiplication per number that it reads, so memory sets the time on a CPU. The loops go through the
steps in order, one row of channels after another: each number is read and written once, and the state stays in the
nearest cache. Complex numbers lie as torch has them, and take no more time per byte.

All arrays are of one type, real or complex. The recurrence runs from the first step to the last or, with `forwards`
false, from the last to the first. Coefficients are rows: one per batch row and step, or a single row for all.
Letters: B batch, T steps, N channels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from levelfield.ops.compiled.simd import compiled


@compiled
def forward(a: Any, b: Any, initial: Any, h: Any, forwards: bool, rows: tuple[int, int]) -> None:
    """Writes h[t] = a[t] h[t - 1] + b[t] for a range of rows of the batch.

    a: (B T or 1, N); b, h: (B, T, N); initial: (B, N).
    """
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


class Gradients(NamedTuple):
    a: Any  # (B T, N), or (B, N) of zeros where there is a single row of a
    b: Any  # (B, T, N)
    initial: Any  # (B, N)


@compiled
def backward(a: Any, h: Any, initial: Any, grad: Any, grads: Any, forwards: bool, rows: tuple[int, int]) -> None:
    """Writes the gradients of `forward` to `grads`, `Gradients`, from that of h, `grad`: (B, T, N)."""
    length, varies = h.shape[1], 1 if len(a) > 1 else 0
    for i in range(rows[0], rows[1]):
        carried = grads.initial[i]
        carried[:] = 0
        for k in range(length):
            t, before = (length - 1 - k, length - 2 - k) if forwards else (k, k + 1)
            past = initial[i] if k == length - 1 else h[i, before]
            row = (i * length + t) * varies
            factor, given, to_b = a[row], grad[i, t], grads.b[i, t]
            if varies:
                own = grads.a[row]
                for n in range(len(carried)):
                    g = given[n] + carried[n]
                    to_b[n] = g
                    own[n] = g * np.conj(past[n])
                    carried[n] = g * np.conj(factor[n])
            else:
                own = grads.a[i]
                for n in range(len(carried)):
                    g = given[n] + carried[n]
                    to_b[n] = g
                    own[n] += g * np.conj(past[n])
                    carried[n] = g * np.conj(factor[n])
