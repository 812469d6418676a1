"""Computes how far a number may be off: intervals over test examples, over seeds, and over both.

    wilson(0.0, 250)                        # (0.0, 0.0151): none right of 250 may still be 1.5 %
    newcombe((0.9, 1000), (0.5, 40))        # (0.25, 0.54): a difference of two shares

Shares lie in 0..1. `alpha` is always two-sided: 0.05 makes a 95 % interval. No interval of a share has zero width or
leaves 0..1. Sources: Wilson (1927); Newcombe (1998), method 10, and his method 10 for pairs; Zou and Donner (2008) for
joining what is independent.
"""

from __future__ import annotations

import math

from levelfield.spec.quantiles import z_quantile


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
