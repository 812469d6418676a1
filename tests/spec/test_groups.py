"""Intervals of scores whose examples come in groups: against leaving groups out one by one, and against the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from levelfield.report.intervals import wilson
from levelfield.spec.groups import degrees, design_effect, equal_groups, independent, limits
from levelfield.spec.quantiles import t_quantile, z_quantile


def test_examples_by_themselves_are_all_independent() -> None:
    right = (np.random.default_rng(0).random(500) < 0.98).astype(float)
    assert independent(right, np.arange(500)) == 500
    errors = np.random.default_rng(1).standard_normal(2_000) ** 2
    low, high = limits(errors, np.arange(2_000))
    half = 1.96 * errors.std() / math.sqrt(2_000)
    assert (low, high) == pytest.approx((errors.mean() - half, errors.mean() + half), abs=0.08 * half)


def test_scores_that_are_all_alike_tell_no_more_than_their_groups_amount_to() -> None:
    groups = np.repeat([0, 1, 2, 3], [10, 10, 10, 70])
    assert independent(np.ones(100), groups) == pytest.approx(100**2 / (3 * 10**2 + 70**2))
    assert independent(np.full(100, 1 / 3), np.zeros(100)) == 1
    assert limits(np.full(100, 0.1), groups) == pytest.approx((0.1, 0.1))


def test_the_variance_is_that_of_leaving_out_a_group_at_a_time() -> None:
    rng = np.random.default_rng(2)
    groups = np.sort(rng.integers(0, 30, 900) * rng.integers(0, 2, 900))
    chances = rng.random(groups.max() + 1)
    right = (rng.random(900) < chances[groups]).astype(float)
    names = np.unique(groups)
    left = np.array([right[groups != name].mean() for name in names])
    variance = (len(names) - 1) / len(names) * np.square(left - right.mean()).sum()
    held = np.array([right[groups == name].sum() for name in names])
    if right.mean() > 0.5:
        held = np.array([(1 - right[groups == name]).sum() for name in names])
    equal = 900**2 / np.square(np.bincount(groups)).sum()
    free = degrees(held, (left - right.mean()) * 900, float(equal))
    wanted = right.mean() * (1 - right.mean()) / variance * (z_quantile(0.05) / t_quantile(0.05, free)) ** 2
    assert independent(right, groups) == pytest.approx(max(equal, wanted)) and 1 < free < equal
    spread = math.log(limits(right, groups)[1] / right.mean()) / t_quantile(0.05, free)
    same = degrees(np.array([right[groups == name].sum() for name in names]), (left - right.mean()) * 900, float(equal))
    assert spread * t_quantile(0.05, free) == pytest.approx(t_quantile(0.05, same) * math.sqrt(variance) / right.mean())


def test_groups_that_are_all_equally_right_tell_as_much_as_their_examples_at_most() -> None:
    found = independent(np.tile([0.0, 1.0, 1.0, 1.0], 15), np.repeat(np.arange(15), 4))
    assert 15 <= found <= 60
    low, high = limits(np.tile([1.0, 3.0], 15), np.repeat(np.arange(15), 2))
    assert low < 2 < high


def test_examples_of_unequal_weight_are_left_out_by_group_too() -> None:
    """Such as sequences of which more or fewer steps are scored."""
    rng = np.random.default_rng(3)
    groups, weights = rng.integers(0, 25, 600), rng.integers(1, 60, 600).astype(float)
    scores = np.clip(rng.random(25)[groups] + rng.normal(0, 0.1, 600), 0, 1)
    mean, names = np.average(scores, weights=weights), np.unique(groups)
    left = np.array([np.average(scores[groups != name], weights=weights[groups != name]) for name in names])
    together = (len(names) - 1) / len(names) * np.square(left - mean).sum()
    alone = np.square(weights * (scores - mean)).sum() / weights.sum() ** 2
    rarer = weights * (scores if mean < 0.5 else 1 - scores)
    held = np.array([rarer[groups == name].sum() for name in names])
    free = degrees(held, left - mean, equal_groups(groups))
    wanted = 600 * alone / together * (z_quantile(0.05) / t_quantile(0.05, free)) ** 2
    assert independent(scores, groups, weights) == pytest.approx(max(wanted, equal_groups(groups)))
    assert independent(scores, groups, 7 * np.ones(600)) == pytest.approx(independent(scores, groups))


def test_degrees_of_freedom_are_those_of_what_decides() -> None:
    even = np.tile([1.0, -1.0], 20)
    assert degrees(np.ones(40), even, 40.0) == 39
    assert degrees(np.ones(40), even, 12.0) == 11
    assert degrees(np.eye(40)[0] * 7, even, 40.0) == 1
    normal = np.random.default_rng(0).standard_normal(100_000)
    assert degrees(np.ones(100_000), normal, 1e9) == pytest.approx(100_000, rel=0.05)
    lone = np.where(np.arange(40) == 0, 39.0, -1.0)
    assert degrees(np.ones(40), lone, 40.0) < 3


def held(draws: int, truth: float, correlation: float, groups: np.ndarray) -> tuple[float, float, float]:
    """How often the interval holds an accuracy, and how often one of the design effect alone; how many times wider."""
    rng, a, found = np.random.default_rng(5), (1 - correlation) / (correlation or 1), []
    for _ in range(draws):
        few = groups[-1] + 1
        chances = rng.beta(truth * a, (1 - truth) * a, few) if correlation else np.full(few, truth)
        right = (rng.random(len(groups)) < chances[groups]).astype(float)
        plain = len(right) / design_effect(right - right.mean(), groups)
        both = [wilson(right.mean(), n) for n in (independent(right, groups), plain)]
        wider = (both[0][1] - both[0][0]) / (both[1][1] - both[1][0])
        found.append([*(low <= truth <= high for low, high in both), wider])
    return tuple(np.mean(found, 0).tolist())


def test_scores_near_all_right_are_held_where_few_groups_have_the_errors() -> None:
    """Of 40 groups of 40 examples; by the design effect alone in 88 and 84 of 100."""
    groups = np.repeat(np.arange(40), 40)
    for correlation in (0.3, 0.6):
        new, old, _ = held(400, 0.95, correlation, groups)
        assert new >= 0.92 > 0.9 > old


def test_intervals_are_hardly_wider_where_groups_do_not_matter() -> None:
    new, old, wider = held(200, 0.9, 0.0, np.repeat(np.arange(40), 40))
    assert new >= 0.93 and old >= 0.93 and wider < 1.08


def test_squared_errors_with_tails_are_held_more_often() -> None:
    """Of Student's t of five degrees of freedom, 100 errors: by normal intervals in 87 of 100."""
    rng, found = np.random.default_rng(6), []
    for _ in range(400):
        errors = rng.standard_t(5, 100) ** 2
        half = 1.96 * errors.std() / 10
        both = limits(errors, np.arange(100)), (errors.mean() - half, errors.mean() + half)
        found.append([low <= 5 / 3 <= high for low, high in both])
    new, old = np.mean(found, 0)
    assert new >= 0.9 > old + 0.01


def test_of_one_group_an_interval_is_as_wide_as_of_one_example() -> None:
    errors = np.array([1.0, 2.0, 3.0])
    low, high = limits(errors, np.zeros(3))
    assert low * high == pytest.approx(4) and high > 2 * math.exp(12 * errors.std() / 2)
    assert independent(np.array([0.0, 1.0, 1.0]), np.zeros(3)) == 1
