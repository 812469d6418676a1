"""Estimates how much runs differ between seeds from all arms of a task together, since one arm has so few.

Scatter.pooled([(58.1, 59.6, 60.2), (47.9, 48.3, 50.0)])       # Scatter(deviation=1.09, degrees=4.0)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import variance


@dataclass(frozen=True, order=True)
class Scatter:
    """How much arms that are asked the same differ between seeds: a standard deviation in points, and the degrees of
    freedom with which it is known."""

    deviation: float = 0.0
    degrees: float = 0.0

    @staticmethod
    def pooled(groups: Iterable[Sequence[float]]) -> Scatter:
        """Returns the scatter of all groups together, each of the scores of one arm over its seeds.

        It is the root of the mean of their variances. The degrees of freedom are Satterthwaite's (1946): those of all
        groups together where they scatter alike, and those of one alone where it scatters far more than the others.
        """
        spreads = [(variance(values), len(values) - 1) for values in groups if len(values) > 1]
        squares = sum(spread**2 / count for spread, count in spreads)
        if not squares:
            return Scatter()
        total = sum(spread for spread, _ in spreads)
        return Scatter(math.sqrt(total / len(spreads)), total**2 / squares)


UNKNOWN = Scatter()
"""Of no other arms: each is then taken to scatter as its own seeds do."""
