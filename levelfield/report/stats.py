"""Sums up a handful of seeds: n, median, spread, intervals; never only a mean.

    summarise([61.0, 58.5, 60.2], SHARE, examples=2000)
    # Summary(n=3, median=60.2, low=58.5, high=61.0, mean=59.9, interval=(55.9, 63.8), test=(58.0, 62.3))

Two uncertainties are told apart. `test` is over test examples alone: what another test set of the same size would have
said about these weights. `interval` is over seeds as well: what other seeds on another test set would have done. The
distances to the limits of the two are joined as the sides of a right angle are, which is how Newcombe joins two shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from levelfield.report.intervals import wilson
from levelfield.spec import Row
from levelfield.spec.quantiles import t_quantile, z_quantile

Limits = tuple[float, float]
SHARE: Limits = (0.0, 100.0)  # in percent
BOUNDS: dict[str, Limits] = {"r2": (-math.inf, 1.0), "negative_mse": (-math.inf, 0.0)}
"""Where a metric that is not a share ends; others have no end."""
ALPHA = 0.05


@dataclass(frozen=True)
class Summary:
    """What n finite values come to, with 95 % intervals.

    interval: of the mean over seeds, on another test set; None for a single seed, and where nothing is known but seeds
    that are equal. test: of the mean of these seeds on another test set; None where the examples' noise is not known.
    """

    n: int
    median: float
    low: float
    high: float
    mean: float
    interval: Limits | None
    test: Limits | None


def bounds(unit: str, metric: str) -> Limits:
    """The range that no score can leave."""
    return SHARE if unit == "percent" else BOUNDS.get(metric, (-math.inf, math.inf))


def summarise(
    values: Sequence[float],
    within: Limits = (-math.inf, math.inf),
    examples: float | None = None,
    stderr: float | None = None,
    test: Limits | None = None,
) -> Summary | None:
    """Returns n, median, spread and intervals; None where no value is finite.

    within: the metric's range. examples: behind each share (`within` is SHARE). stderr: over examples, where the metric
    is no share. test: the interval over examples, where it is another than these give.
    """
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return None
    mean = fmean(finite)
    test = test or _test(mean, within, examples, stderr)
    below, above = (mean - test[0], test[1] - mean) if test else (0.0, 0.0)
    interval = None
    if len(finite) > 1:
        half = t_quantile(ALPHA, len(finite) - 1) * stdev(finite) / math.sqrt(len(finite))
        joined = mean - math.hypot(half, below), mean + math.hypot(half, above)
        interval = _cut(joined, within) if joined[0] < joined[1] else None
    return Summary(
        n=len(finite),
        median=median(finite),
        low=min(finite),
        high=max(finite),
        mean=mean,
        interval=interval,
        test=test,
    )


def _test(mean: float, within: Limits, examples: float | None, stderr: float | None) -> Limits | None:
    if within == SHARE and examples:
        low, high = wilson(min(1.0, max(0.0, mean / 100)), examples, ALPHA)
        return 100 * low, 100 * high
    if stderr:
        return _cut((mean - z_quantile(ALPHA) * stderr, mean + z_quantile(ALPHA) * stderr), within)
    return None


def _cut(interval: Limits, within: Limits) -> Limits:
    return max(interval[0], within[0]), min(interval[1], within[1])


def independent(row: Row) -> float | None:
    """Returns how many independent examples the value of a row amounts to; None where it says nothing of them."""
    return row.get("n_effective", row.get("n"))
