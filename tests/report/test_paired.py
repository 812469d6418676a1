"""Differences on the same questions: their intervals hold as often as they say, and have a width where none differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from levelfield.report.paired import span


def test_a_large_sample_has_the_interval_of_the_central_limit() -> None:
    rng = np.random.default_rng(3)
    given = rng.choice([-1.0, 0.0, 0.25, 1.0], size=4000, p=[0.1, 0.5, 0.2, 0.2])
    found = span(given.tolist())
    half = 1.96 * given.std() / math.sqrt(len(given))
    assert found.mean == pytest.approx(given.mean())
    assert (found.mean - found.low, found.high - found.mean) == pytest.approx((half, half), rel=0.06)


def test_pairs_count_and_not_the_spread_of_each_model() -> None:
    """Two models that miss the same half of the questions are as sure to be alike as if all answers were right."""
    same = span([0.0] * 100)
    assert same.mean == 0 and same.sign == 0 and -0.04 < same.low < 0 < same.high < 0.04
    assert span([1.0] * 5).high == 1.0 and span([1.0] * 5).low > 0


def test_tasks_weigh_the_same_however_many_questions_they_have() -> None:
    found = span([1.0] * 400, [0.0] * 20)
    assert found.mean == 0.5 and found.low <= 0.5 <= found.high and found.sign == 1


def test_intervals_hold_the_truth_at_least_as_often_as_they_say() -> None:
    """Simulates 400 comparisons of 40 questions, of which the first model finds 80 % and the second 70 %."""
    rng = np.random.default_rng(5)
    drawn = rng.choice([1.0, -1.0, 0.0], size=(400, 40), p=[0.2, 0.1, 0.7])
    held = [low <= 0.1 <= high for _, low, high in (span(one.tolist()) for one in drawn)]
    assert np.mean(held) >= 0.93
