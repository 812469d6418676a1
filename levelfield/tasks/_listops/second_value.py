"""Evaluates ListOps expressions from right to left, as an independent check of the labels.

    values(np.array([10, 2, 9, 12, 4, 7, 14, 0, 14], np.uint8), np.array([0, 9]))      # [MAX 2 9 [MIN 4 7 ] 0 ] -> [9]

`_listops/expressions.py` reads from the left and keeps open nodes on a stack. This reads from the right: digits and
closing brackets go on a stack, and an operator takes everything above the nearest bracket.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from levelfield.jit import compiled

MALFORMED = -1
_CLOSED = 255  # a closing bracket on the stack


@compiled
def values(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns the values of expressions, (N,) int64: -1 where brackets do not match or are empty.

    x: (total,) tokens, offsets: (N + 1,).
    """
    out = np.empty(len(offsets) - 1, np.int64)
    stack = np.empty(np.max(np.diff(offsets)) + 1, np.uint8)
    for row in range(len(out)):
        out[row] = _value(x[offsets[row] : offsets[row + 1]], stack)
    return out


@compiled
def _value(tokens: np.ndarray, stack: np.ndarray) -> Any:
    height = 0
    for at in range(len(tokens) - 1, -1, -1):
        token = tokens[at]
        if token < 10:
            stack[height] = token
            height += 1
        elif token == 14:
            stack[height] = _CLOSED
            height += 1
        else:
            first = height
            while first > 0 and stack[first - 1] != _CLOSED:
                first -= 1
            if first == 0 or first == height:
                return MALFORMED
            stack[first - 1] = _apply(token, np.sort(stack[first:height]))
            height = first
    return np.int64(stack[0]) if height == 1 and stack[0] != _CLOSED else MALFORMED


@compiled
def _apply(operator: int, ranked: np.ndarray) -> Any:
    """Evaluates an operator: 10 MAX, 11 MED, 12 MIN, 13 SM. ranked: (n,), its arguments in ascending order."""
    if operator == 10:
        return ranked[-1]
    if operator == 12:
        return ranked[0]
    if operator == 13:
        return np.sum(ranked.astype(np.int64)) % 10
    upper = len(ranked) // 2
    lower = (len(ranked) - 1) // 2
    return (np.int64(ranked[lower]) + np.int64(ranked[upper])) // 2
