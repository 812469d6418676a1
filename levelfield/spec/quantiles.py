"""Computes quantiles of the normal distribution and of Student's t, without SciPy.

    z_quantile(0.05)                        # 1.960: two-sided, so of a 95 % interval
    t_quantile(0.05, 2)                     # 4.303: two degrees of freedom

`alpha` is always two-sided. Source: Press et al., Numerical Recipes, section 6.4, for the incomplete beta function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from statistics import NormalDist

ROUNDS = 200  # of a continued fraction or a bisection, far more than either takes


@cache
def z_quantile(alpha: float) -> float:
    """Returns the two-sided quantile of the normal distribution: 1.96 at 0.05."""
    return -NormalDist().inv_cdf(alpha / 2)


def t_tail(t: float, degrees: float) -> float:
    """Two-sided probability that Student's t of `degrees` > 0, not always whole, lies beyond t >= 0."""
    if math.isinf(degrees):
        return math.erfc(t / math.sqrt(2))
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


@cache
def t_quantile(alpha: float, degrees: float) -> float:
    """Returns the t at which `t_tail` is alpha; with infinite degrees, that of the normal distribution."""
    if math.isinf(degrees):
        return z_quantile(alpha)
    high = 1.0
    while t_tail(high, degrees) > alpha:
        high *= 2
    return falling_root(lambda t: t_tail(t, degrees) - alpha, 0.0, high)


def falling_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Finds by bisection where a function that falls from `low` to `high` crosses zero."""
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _beta_fraction(a, b, x) / a
    return 1 - math.exp(log_front) * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Computes the continued fraction of the incomplete beta function by Lentz's method."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, ROUNDS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = value
        for step in (even, odd):
            d, c = 1 / (1 + step * d), 1 + step / c
            value *= d * c
        if abs(value - before) < 1e-15 * abs(value):
            break
    return value
