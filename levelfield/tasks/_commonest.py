"""The commonest value of a text, which a rule may answer that does not read what is asked, and how often it is right.

commonest_before(x, 8, 16)   # the commonest of the symbols 8 to 23 before each step
commonest_share(2, 16)       # 0.531: of two that are drawn uniformly, two alike, or either one
commonest_share(15, 16)      # 0.197
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

NEGLIGIBLE = 1e-12
AT_ONCE = 1 << 22  # counts of values: a split may have many rows, and a step many values


def commonest_before(x: np.ndarray, first: int, values: int) -> np.ndarray:
    """Returns the commonest value before each step: (N, T) int64, from 0 on; of several, the least; 0 where none was.

    x: (N, T) symbols, of which `values` from `first` on are values.
    """
    found = np.empty(x.shape, np.int64)
    rows = max(1, AT_ONCE // max(1, x.shape[1] * values))
    for begin in range(0, len(x), rows):
        here = x[begin : begin + rows, :, None] == np.arange(first, first + values)
        found[begin : begin + rows] = (np.cumsum(here, axis=1, dtype=np.int32) - here).argmax(-1)
    return found


@cache
def commonest_share(count: int, values: int) -> float:
    """Returns the expected share of the commonest value among `count` uniform draws of `values` values.

    The mean of the largest count is the sum over m = 0, 1, ... of the probability that it exceeds m.
    """
    mean = 0.0
    for most in range(count):
        if (exceeds := 1 - _none_above(most, count, values)) < NEGLIGIBLE:
            break
        mean += exceeds
    return mean / count


def _none_above(most: int, count: int, values: int) -> float:
    """Returns the probability that no value is drawn more than `most` times.

    Counts are those of independent Poisson laws, given their sum: the laws are cut off at `most`, their sum's is a
    power of one Fourier transform, and its value at `count` is divided by that of laws that are not cut off.
    """
    if most * values < count:
        return 0.0
    rate = count / values
    law = [math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(most + 1)]
    size = most * values + 1
    turns = np.exp(2j * np.pi * (np.arange(size) * count % size) / size)
    cut_off = float(np.mean(np.fft.fft(law, size) ** values * turns).real)
    whole = math.exp(count * math.log(count) - count - math.lgamma(count + 1))
    return cut_off / whole
