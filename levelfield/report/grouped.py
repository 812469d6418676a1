"""Computes how far a mean score may be off where test examples come in groups, such as those of one patient.

    independent(scores, groups)     # 37.2: Wilson's interval is that of so many independent examples
    limits(errors, groups)          # (0.21, 0.39): where the mean of squared errors may lie

The variance of a mean is that of the jackknife which leaves out a group at a time. It is known from few groups only,
and by fewer the fewer of them hold what decides: the errors, where nearly all is right. So intervals have Student's t,
whose degrees of freedom are counted from the groups (`degrees`). Scores of 0 to 1 that are alike within groups tell at
least as much as so many equally large groups, which no interval is wider than. Squared errors have a lower end near 0
and a long upper tail; the interval is one of the logarithm of their mean.

`benchmarks/audit_intervals.py` simulates how often such intervals hold the truth. What no group shows they cannot know:
where one patient in twenty is wrong throughout, a third of all samples of twenty patients has none such.

Sources: Mancl and DeRouen (2001), Biometrics 57, and Cameron and Miller (2015), A practitioner's guide to
cluster-robust inference, for the jackknife; Korn and Graubard (1998), Survey Methodology 24, for as many fewer examples
as Student's t is wider; degrees of freedom by kurtosis as in Satterthwaite (1946), Biometrics Bulletin 2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from levelfield.report.intervals import t_quantile, z_quantile
from levelfield.spec.groups import equal_groups

ALPHA = 0.05
FEWEST_DEGREES = 1.0
ALIKE = 1e-12  # variance of scores up to which they are all the same


def independent(scores: np.ndarray, groups: np.ndarray) -> float:
    """Returns of how many independent examples Wilson's interval is that of a mean score, 1 to N.

    Examples that each have a group of their own are all independent. Where all scores are equal, as many are as the
    groups amount to, since nothing tells how alike their scores would be. scores: (N,), each 0 to 1. groups: (N,), the
    number of each example's group.
    """
    found, equal = _Groups.of(scores, groups), equal_groups(groups)
    if found.alone <= ALIKE * len(scores) or len(found.apart) < 2:
        return equal
    rarer = scores if scores.mean() < 0.5 else 1 - scores
    t = t_quantile(ALPHA, degrees(found.sums(rarer), found.apart, equal))
    effect = max(1.0, found.together / found.alone)
    return max(equal, len(scores) / effect * (z_quantile(ALPHA) / t) ** 2)


def limits(errors: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % interval of the mean of errors that are 0 or more, such as squared ones, (N,).

    Of a single group nothing tells more than one example does. groups: (N,), the number of each example's group.
    """
    mean, found = float(errors.mean()), _Groups.of(errors, groups)
    if found.alone <= ALIKE * len(errors) * mean**2:
        return mean, mean
    several = len(found.apart) > 1
    variance = max(found.alone, found.together) / len(errors) ** 2 if several else found.alone / len(errors)
    free = degrees(found.sums(errors), found.apart, equal_groups(groups)) if several else FEWEST_DEGREES
    factor = math.exp(t_quantile(ALPHA, free) * math.sqrt(variance) / mean)
    return mean / factor, mean * factor


def degrees(held: np.ndarray, apart: np.ndarray, equal: float) -> float:
    """Returns the degrees of freedom that a variance over groups has, FEWEST_DEGREES at least.

    They are no more than those of equally large groups, than the equal groups that what decides amounts to, and than
    those of a normal sample whose variance is as uncertain as the kurtosis of these groups makes it. held: what decides
    in each group, (K,), such as its errors. apart: how far each group moves the mean, (K,), not all 0. equal: how many
    equally large groups they amount to.
    """
    kurtosis = len(apart) * float((apart**4).sum()) / float(np.square(apart).sum()) ** 2
    of_kurtosis = 2 * len(apart) / max(kurtosis - 1, 1e-9)
    deciding = float(held.sum()) ** 2 / float(np.square(held).sum())
    return max(FEWEST_DEGREES, min(equal - 1, deciding, of_kurtosis))


class _Groups(NamedTuple):
    """Scores by group. place: that of each example's group, (N,). apart: how far each group moves the sum of scores
    when it is left out, (K,). alone: the variance of the sum if all examples were independent, and together: by the
    jackknife over groups."""

    place: np.ndarray
    apart: np.ndarray
    alone: float
    together: float

    @staticmethod
    def of(scores: np.ndarray, groups: np.ndarray) -> _Groups:
        _, place = np.unique(groups, return_inverse=True)
        away, sizes = scores - scores.mean(), np.bincount(place)
        apart = np.bincount(place, away) / np.maximum(1 - sizes / len(scores), 1 / len(scores))
        together = float(np.square(apart).sum()) * (len(sizes) - 1) / len(sizes)
        return _Groups(place, apart, float(np.square(away).sum()), together)

    def sums(self, each: np.ndarray) -> np.ndarray:
        """Returns the sum of each group, (K,)."""
        return np.bincount(self.place, each)
