"""Computes a short causal convolution of each channel and its gradients, with all channels of a step side by side.

There are only a few multiplications for every number read, so memory sets the time. The loops go through the steps in
order, so that the last few rows stay in the nearest cache and each number is read from memory once. All arrays are
contiguous and of one type, float32 or float64. Letters: B batch, T steps, C channels, K taps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from levelfield.ops.compiled.simd import compiled

PARTIAL = 64  # steps whose products are summed in the arrays' own type; these partial sums are summed in float64


@compiled
def _add_product(total: Any, a: Any, b: Any) -> None:
    for c in range(len(total)):
        total[c] += a[c] * b[c]


@compiled
def forward(x: Any, before: Any, weight: Any, bias: Any, y: Any, rows: tuple[int, int]) -> None:
    """Writes y[t] = bias + sum_j weight[K - 1 - j] x[t - j] for a range of rows of the batch.

    x, y: (B, T, C); before: (B, K - 1, C), the steps in front of x; weight: (K, C); bias: (C,).
    """
    reach = len(weight) - 1
    for i in range(rows[0], rows[1]):
        for t in range(x.shape[1]):
            here, now, result = x[i, t], weight[reach], y[i, t]
            for c in range(len(bias)):
                result[c] = bias[c] + now[c] * here[c]
            for tap in range(reach):
                seen = t + tap - reach
                _add_product(result, weight[tap], x[i, seen] if seen >= 0 else before[i, seen + reach])


@compiled
def backward(
    x: Any, before: Any, weight: Any, grad: Any, grad_x: Any, grad_before: Any, grad_rows: Any, rows: tuple[int, int]
) -> None:
    """Writes the gradients of `forward` from that of y, `grad`: (B, T, C).

    grad_x: (B, T, C); grad_before: (B, K - 1, C), given as zeros; grad_rows: (B, K + 1, C) float64, what each row of
    the batch contributes to the gradients of weight and, in the last place, of bias.
    """
    reach, length = len(weight) - 1, x.shape[1]
    sums = np.zeros((reach + 2, x.shape[2]), x.dtype)
    for i in range(rows[0], rows[1]):
        grad_rows[i] = 0
        for t in range(length):
            given, here, now, to_x, own = grad[i, t], x[i, t], weight[reach], grad_x[i, t], sums[reach]
            for c in range(len(given)):
                to_x[c] = now[c] * given[c]
                own[c] += here[c] * given[c]
            for tap in range(reach):
                seen = t + tap - reach
                inside = seen >= 0
                _add_product(grad_x[i, seen] if inside else grad_before[i, seen + reach], weight[tap], given)
                _add_product(sums[tap], x[i, seen] if inside else before[i, seen + reach], given)
            total = sums[reach + 1]
            for c in range(len(given)):
                total[c] += given[c]
            if t % PARTIAL == PARTIAL - 1 or t == length - 1:
                for tap in range(reach + 2):
                    for c in range(len(given)):
                        grad_rows[i, tap, c] += sums[tap, c]
                        sums[tap, c] = 0
