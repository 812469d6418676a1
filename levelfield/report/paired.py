"""Computes how much more one model finds than another on the same questions, with an interval.

    span([1.0, 0.0, 0.0, -1.0])                     # one task: Span(mean=0.0, low=..., high=...)
    span([*differences of vt], [*differences of cwe])    # the average of two tasks

Where both were asked the same questions, what makes a question hard is the same for both, so the differences of single
questions are drawn anew (the bootstrap), those of each task for itself. Half an observation of each of the four
outcomes of two answers, right or wrong, is added to all tasks together, as Agresti and Min (2005) do, so that an
interval has a width even where no two answers differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

DRAWS = 10_000
ALPHA = 0.05
ADDED = (1.0, -1.0, 0.0, 0.0)  # both wrong or right: no difference; one right: a whole one
HALF = 0.5


class Span(NamedTuple):
    """A mean difference, and the ends of its interval."""

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """Returns 1 or -1 where all of the interval lies above or below 0, else 0."""
        return (self.low > 0) - (self.high < 0)


def span(*tasks: Sequence[float], alpha: float = ALPHA) -> Span:
    """Returns the mean over tasks of their mean differences, each from -1 to 1, with its 1 - alpha interval.

    tasks: at least one, each with the differences of at least one question.
    """
    rng = np.random.default_rng(0)
    drawn = sum((_means(rng, each, HALF / len(tasks)) for each in tasks), np.zeros(DRAWS)) / len(tasks)
    mean = float(np.mean([np.mean(each) for each in tasks]))
    low, high = (float(end) for end in np.quantile(drawn, (alpha / 2, 1 - alpha / 2)))
    return Span(mean, min(low, mean), max(high, mean))


def _means(rng: np.random.Generator, differences: Sequence[float], added: float) -> np.ndarray:
    """Draws means of as many questions, (DRAWS,). What has one value is drawn together, which comes to the same."""
    values, counts = np.unique([*differences, *ADDED], return_counts=True)
    weights = counts.astype(np.float64)
    for value in ADDED:
        weights[values == value] += added - 1
    times = rng.multinomial(len(differences), weights / weights.sum(), DRAWS)
    return times @ values / len(differences)
