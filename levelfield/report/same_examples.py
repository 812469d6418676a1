"""Measures how far a weighted sum of arms may be off because of its test examples, where arms answered the same ones.

    a, b = (Right.of([hits_of(row) for row in rows]) for rows in (rows_of_s4, rows_of_attention))
    reach([(1.0, a), (-1.0, b)], examples=5_000, alpha=0.05, up=True)       # 0.7 points, where each alone has 1.4

An easy example is easy for both arms, so that much of what one test set has by luck cancels in their difference. Of
every example the weighted sum of the arms, each the mean over its seeds, is one number, and the interval is that of
their mean. Half an example at each end of what the sum may be, and one between, are added for the interval alone, as
Agresti and Min (2005) do for two arms: so it has a width even where no two arms differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from levelfield.runs.hits import Hits
from levelfield.spec.quantiles import z_quantile


@dataclass(frozen=True, eq=False)
class Right:
    """Says which test examples the seeds of an arm have right.

    exam: arms of one were asked the same examples. seeds: (seeds, n), bool.
    """

    exam: str
    seeds: np.ndarray

    @cached_property
    def share(self) -> np.ndarray:
        """The share of seeds that have each example right, (n,): every question about the arm asks for it."""
        return self.seeds.mean(0)

    @classmethod
    def of(cls, hits: Sequence[Hits | None]) -> Right | None:
        """Returns those of all seeds, in order; None where that of some seed is not known or is of another exam."""
        known = [each for each in hits if each is not None]
        if not known or len(known) < len(hits) or len({(each.exam, each.n) for each in known}) > 1:
            return None
        return cls(known[0].exam, np.stack([each.right for each in known]))

    def only(self, places: Sequence[int]) -> Right:
        """Returns those of the seeds at these places alone."""
        return Right(self.exam, self.seeds[list(places)])


def reach(terms: Sequence[tuple[float, Right]], examples: float, alpha: float, *, up: bool) -> float:
    """Returns how far the upper or lower limit over test examples lies from the weighted sum, in points.

    terms: weights and arms of one exam. examples: independent ones that the exam amounts to, n where none come in
    groups.
    """
    each = np.sum([weight * arm.share for weight, arm in terms], axis=0)
    mean, square = float(each.mean()), float((each**2).mean())
    most = max(sum(max(0.0, sign * weight) for weight, _ in terms) for sign in (1, -1))
    count = examples + 2
    middle = examples * mean / count
    error = math.sqrt(max(0.0, (examples * square + most**2) / count - middle**2) / count)
    shift = middle - mean if up else mean - middle
    return 100 * max(0.0, z_quantile(alpha) * error + shift)
