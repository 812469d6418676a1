"""Intervals, against numeric integration, published tables and exact enumeration."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from levelfield.report.intervals import newcombe, wilson
from levelfield.report.stats import SHARE, bounds, summarise
from levelfield.spec.quantiles import t_quantile, t_tail, z_quantile


def t_integral(upper: float, degrees: float, steps: int = 20_000) -> float:
    """P(|T| < upper) by Simpson's rule on the density."""
    scale = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    width = upper / steps
    weights = [1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1)]
    total = sum(w * (1 + (i * width) ** 2 / degrees) ** (-(degrees + 1) / 2) for i, w in enumerate(weights))
    return 2 * scale * total * width / 3


@pytest.mark.parametrize("degrees", [1, 1.37, 2, 3, 4.6, 9, 30, 31, 60])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.004])
def test_t_quantiles_hold_what_they_say(degrees: float, alpha: float) -> None:
    quantile = t_quantile(alpha, degrees)
    assert t_integral(quantile, degrees) == pytest.approx(1 - alpha, abs=2e-6)
    assert t_tail(quantile, degrees) == pytest.approx(alpha, rel=1e-9)


def test_t_with_endless_degrees_is_normal() -> None:
    assert t_quantile(0.05, math.inf) == z_quantile(0.05) == pytest.approx(1.959964, abs=1e-6)
    assert t_quantile(0.05, 1e6) == pytest.approx(1.959964, abs=1e-5)
    assert t_tail(1.959964, math.inf) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("n", [10, 250, 2_000])
def test_wilson_has_the_shares_that_a_score_test_does_not_reject(n: int) -> None:
    """The limits solve |share - p| = z sqrt(p (1 - p) / n), found here on a grid of p."""
    grid = np.linspace(0, 1, 1_000_001)
    for right in (0, 1, n // 3, n - 1, n):
        inside = grid[np.abs(right / n - grid) <= z_quantile(0.05) * np.sqrt(grid * (1 - grid) / n)]
        assert wilson(right / n, n) == pytest.approx((inside[0], inside[-1]), abs=2e-6)
        low, high = wilson(right / n, n)
        assert 0 <= low < high <= 1


def test_wilson_covers_on_average_what_it_says() -> None:
    """Over all outcomes of 40 examples and many true shares."""
    n, covered = 40, []
    for p in np.linspace(0.02, 0.98, 97):
        chances = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        limits = [wilson(k / n, n) for k in range(n + 1)]
        covered.append(sum(c for c, (low, high) in zip(chances, limits, strict=True) if low <= p <= high))
    assert 0.94 < np.mean(covered) < 0.965


@pytest.mark.parametrize(
    ("first", "second", "limits"),
    [  # Newcombe (1998), table II, method 10
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((6, 7), (2, 7), (0.0582, 0.8062)),
        ((5, 56), (0, 29), (-0.0381, 0.1926)),
        ((0, 10), (0, 20), (-0.1611, 0.2775)),
        ((0, 10), (0, 10), (-0.2775, 0.2775)),
        ((10, 10), (0, 20), (0.6791, 1.0000)),
        ((10, 10), (0, 10), (0.6075, 1.0000)),
    ],
)
def test_newcombe_gives_the_published_intervals(
    first: tuple[int, int], second: tuple[int, int], limits: tuple[float, float]
) -> None:
    found = newcombe((first[0] / first[1], first[1]), (second[0] / second[1], second[1]))
    assert found == pytest.approx(limits, abs=6e-5)


def test_two_equal_seeds_have_a_width_and_it_stays_within_the_range() -> None:
    for score in (0.0, 50.0, 100.0):
        found = summarise([score, score], SHARE, examples=500)
        assert found is not None and found.interval is not None and found.test is not None
        assert found.interval == found.test, "nothing but test examples is left to vary"
        assert 0 <= found.interval[0] < found.interval[1] <= 100


def test_seeds_apart_widen_the_interval_and_cannot_leave_the_range() -> None:
    found = summarise([95.0, 99.0], SHARE, examples=500)
    assert found is not None and found.interval is not None and found.test is not None
    assert found.interval[1] == 100 and 0 <= found.interval[0] < found.test[0]
    explained = summarise([0.9, 0.99], bounds("", "r2"))
    assert explained is not None and explained.interval is not None
    assert explained.interval[1] == 1.0
    assert [bounds("percent", "accuracy"), bounds("", "negative_mse")[1]] == [SHARE, 0.0]


def test_an_interval_over_seeds_and_examples_covers_both() -> None:
    """Simulated: three seeds of a share that varies by seed, on one test set of 400."""
    draw, covered = np.random.default_rng(0), 0
    for _ in range(2_000):
        truth = np.clip(draw.normal(0.7, 0.02, 3), 0, 1)
        shared = draw.normal(0, math.sqrt(0.21 / 400))  # what the test set does to all seeds alike
        found = summarise(list(100 * np.clip(truth + shared, 0, 1)), SHARE, examples=400)
        assert found is not None and found.interval is not None
        covered += found.interval[0] <= 70 <= found.interval[1]
    assert 0.94 < covered / 2_000 <= 1.0


def test_without_examples_or_spread_no_width_is_invented() -> None:
    found = summarise([0.5, 0.5], bounds("", "r2"))
    assert found is not None and found.interval is None and found.test is None
    known = summarise([0.5, 0.5], bounds("", "r2"), stderr=0.01)
    assert known is not None and known.interval == pytest.approx((0.5 - 0.0196, 0.5 + 0.0196), abs=1e-4)


def test_smaller_alpha_is_wider() -> None:
    widths = [high - low for low, high in (wilson(0.3, 100, a) for a in (0.2, 0.05, 0.01, 1e-6))]
    assert all(a < b for a, b in pairwise(widths))
