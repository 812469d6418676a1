"""Computes how far a number may be off: intervals over test examples, over seeds, and over both.

    wilson(0.0, 250)                        # (0.0, 0.0151): none right of 250 may still be 1.5 %
    newcombe((0.9, 1000), (0.5, 40))        # (0.25, 0.54): a difference of two shares
    t_quantile(0.05, 2)                     # 4.303: Student's t, two-sided, two degrees of freedom

Shares lie in 0..1. `alpha` is always two-sided: 0.05 makes a 95 % interval. No interval of a share has zero width or
leaves 0..1. Sources: Wilson (1927); Newcombe (1998), method 10, and his method 10 for pairs; Zou and Donner (2008) for
joining what is independent;
Press et al., Numerical Recipes, section 6.4 for the incomplete beta function.
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


def wilson(share: float, n: float, alpha: float = 0.05) -> tuple[float, float]:
    """The interval of a share of n examples. It holds, and is too wide, for means of scores between 0 and 1."""
    z = z_quantile(alpha)
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return max(0.0, min(low, share)), min(1.0, max(high, share))


def newcombe(
    first: tuple[float, float], second: tuple[float, float], alpha: float = 0.05, alike: float = 0.0
) -> tuple[float, float]:
    """The interval of the first share minus the second, each with its number of examples.

    alike: the correlation of the two, which is 0 where they are of different examples.
    """
    (a, n), (b, m) = first, second
    (a_low, a_high), (b_low, b_high) = wilson(a, n, alpha), wilson(b, m, alpha)
    return a - b - _third_side(a - a_low, b_high - b, alike), a - b + _third_side(a_high - a, b - b_low, alike)


def _third_side(one: float, other: float, cosine: float) -> float:
    """Returns the side of a triangle that lies opposite the angle between two others."""
    return math.hypot(one - cosine * other, other * math.sqrt(1 - cosine**2))
