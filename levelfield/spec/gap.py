"""What tells how much better a model finds needles in the outer thirds of a text than in the middle third.

Gap(Share(0.9, 40, 11.4), Share(0.6, 10, 10.0), alike=0.5)
"""

from __future__ import annotations

from typing import NamedTuple


class Share(NamedTuple):
    """A mean score from 0 to 1, its number of answers, and how many independent ones tell as much."""

    mean: float
    n: int
    independent: float


class Gap(NamedTuple):
    """The match of both. alike: the correlation of the two means, -1 to 1; 0 where no sample has answers to both."""

    outer: Share
    inner: Share
    alike: float = 0.0
