"""How a handful of seeds is summed up: n, median, spread, interval; never only a mean.

    summarise([61.0, 58.5, 60.2])
    # Summary(n=3, median=60.2, low=58.5, high=61.0, mean=59.9, interval=(56.7, 63.1))

Two different uncertainties are kept apart. The interval is over seeds: what another seed would have done. The binomial
standard error is over test examples: what another test set of the same size would have said about these weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Summary:
    """Of n finite values. `interval` is the 95 % interval of the mean over seeds, None for a single one."""

    n: int
    median: float
    low: float
    high: float
    mean: float
    interval: tuple[float, float] | None


def t_95(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t; beyond 30 degrees an expansion that is right to 0.001."""
    if degrees <= len(T_95):
        return T_95[degrees - 1]
    return 1.95996 + 2.3722 / degrees + 2.82 / degrees**2  # Cornish-Fisher, first two terms


def summarise(values: Sequence[float]) -> Summary | None:
    """None where there is nothing finite to sum up."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return None
    mean, interval = fmean(finite), None
    if len(finite) > 1:
        half = t_95(len(finite) - 1) * stdev(finite) / math.sqrt(len(finite))
        interval = (mean - half, mean + half)
    return Summary(len(finite), median(finite), min(finite), max(finite), mean, interval)


def binomial_stderr(share: float, examples: int) -> float:
    """Standard error of a share of `examples` right answers; share in 0..1."""
    return math.sqrt(max(0.0, share * (1 - share)) / examples)
