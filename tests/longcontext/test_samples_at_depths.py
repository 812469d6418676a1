"""The answers to one sample at several depths: intervals, averages of two models and gaps are over samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest
from toy_reader import SINGLE

from levelfield.longcontext.predictions import Prediction, settings_of
from levelfield.longcontext.rows import middle_gaps, rows, score_cells
from levelfield.report import effective_length, longcontext, side_by_side
from levelfield.report.intervals import newcombe, wilson
from levelfield.report.paired import span
from levelfield.ruler import Needle
from levelfield.spec import Row
from levelfield.spec.gap import Gap
from levelfield.spec.groups import counted

FIVE = (0.0, 0.25, 0.5, 0.75, 1.0)


def told(right: Callable[[int, float], bool], samples: int, depths: Sequence[float] = FIVE) -> list[Prediction]:
    """The answers to so many samples of a task of RULER, each at every depth."""
    found = []
    for depth in depths:
        task = Needle(depth=depth)
        for index in range(samples):
            said = "77" if right(index, depth) else "no"
            found.append(
                Prediction(
                    *("k", task.name, settings_of(task), 64, index, "sound", "base", 0, 9, 1, (depth,), {}, ("77",)),
                    said,
                )
            )
    return found


def whole(found: Sequence[Prediction]) -> Row:
    (row,) = (r for r in rows(found, "m") if r.get("metric") == "accuracy" and r.get("at") == "length=64")
    return row


@pytest.mark.parametrize("right", [4, 10])
def test_where_all_depths_agree_more_of_them_make_no_interval_narrower(right: int) -> None:
    row = whole(told(lambda index, depth: index < right, samples=10))
    ((cell,),) = (found.values() for found in effective_length.cells_of([row]).values())
    assert row.get("n") == 50 and cell[0] == right / 10
    assert wilson(*cell) == pytest.approx(wilson(right / 10, 10))
    assert "n_effective" not in whole(told(lambda index, depth: index < right, samples=10, depths=[0.5]))


@pytest.mark.parametrize("alike", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("samples", "depths"), [(5, 11), (10, 5), (30, 3)])
def test_the_interval_of_a_score_holds_it_as_often_as_it_says(alike: float, samples: int, depths: int) -> None:
    """However alike the answers to one sample are: with n, only some 60 % of intervals do."""
    draw, held = np.random.default_rng(0), []
    for share in (0.05, 0.3, 0.6, 0.95):
        for _ in range(300):
            own = draw.random((samples, 1)) < share
            each = np.where(draw.random((samples, depths)) < alike**0.5, own, draw.random((samples, depths)) < share)
            row = counted(list(each.ravel().astype(float)), list(np.repeat(range(samples), depths)))
            low, high = wilson(float(each.mean()), row.get("n_effective", each.size))
            held.append(low <= share <= high)
    assert fmean(held) > 0.92


def test_where_answers_are_independent_little_is_lost() -> None:
    draw = np.random.default_rng(0)
    right = draw.random((50, 5)) < 0.7
    row = whole(told(lambda index, depth: bool(right[index, FIVE.index(depth)]), samples=50))
    assert 180 < row.get("n_effective", 0.0) < 250 == row.get("n")


def paired(found: Sequence[tuple[int, float]], first: Callable[[int, float], float]) -> side_by_side.Part:
    """Questions of a needle task; the second model is right on none."""
    return side_by_side.Part(
        "sound",
        "sound",
        [
            side_by_side.PairedQuestion(
                *(f"niah_single_2@{depth:g}", 64, index, f"{depth}", "x", ("", "")), (first(index, depth), 0.0)
            )
            for index, depth in found
        ],
    )


def test_two_models_are_compared_on_samples_and_not_on_depths() -> None:
    """Where all depths agree, the average is as uncertain as at one of them, and so is the effective length."""
    part = paired([(index, depth) for depth in FIVE for index in range(20)], lambda index, depth: float(index < 12))
    once = span([1.0] * 12 + [0.0] * 8)
    assert part.averaged == ["niah_single_2"] and part.average(64) == once
    assert part.spans["niah_single_2", 64] == part.spans["niah_single_2@0.5", 64] == once
    ((cell,),) = (found.values() for found in effective_length.cells_of(part.rows(0)).values())
    assert wilson(*cell) == pytest.approx(wilson(0.6, 20))
    effective = side_by_side.lengths(("a", "b"), part)
    assert effective and len(effective.rows) == 2
    assert [row[0] for row in side_by_side.table(part).rows] == [
        "niah_single_2",
        *(f"niah_single_2@{d:g}" for d in FIVE),
    ]


def test_a_sample_that_one_depth_lacks_leaves_the_difference_that_of_the_scores() -> None:
    found = [(index, depth) for depth in FIVE for index in range(20) if (index, depth) != (3, 1.0)]
    part = paired(found, lambda index, depth: float(depth < 0.6))
    assert part.spans["niah_single_2", 64].mean == pytest.approx(60 / 99)
    assert part.spans["niah_single_2", 64].high - 60 / 99 < 0.11, "samples hardly differ"


def shares(gap: Gap) -> tuple[tuple[float, float], tuple[float, float]]:
    return (gap.outer.mean, gap.outer.independent), (gap.inner.mean, gap.inner.independent)


def test_the_gap_is_of_pairs() -> None:
    """What makes a sample hard is the same in the outer thirds and in the middle."""
    draw = np.random.default_rng(3)
    hard = draw.normal(size=30)
    right = hard[:, None] + 0.7 * draw.normal(size=(30, 5)) > [-0.6, -0.4, 0.3, -0.4, -0.6]
    found = told(lambda index, depth: bool(right[index, FIVE.index(depth)]), samples=30)
    each = 100.0 * (right[:, [0, 1, 3, 4]].mean(1) - right[:, 2])
    (row,) = (r for r in rows(found, "m") if r.get("metric") == "middle_gap")
    assert row.get("value") == pytest.approx(each.mean())
    assert row.get("stderr") == pytest.approx(stdev(each.tolist()) / 30**0.5)
    gaps = middle_gaps(score_cells(found))
    (gap,) = gaps.values()
    assert (gap.outer.n, gap.inner.n, gap.inner.independent) == (120, 30, 30) and gap.outer.independent < 60
    here, there = right[:, [0, 1, 3, 4]].mean(1), right[:, 2]
    assert gap.alike == pytest.approx(np.corrcoef(here, there)[0, 1] * 29 / 30)
    table = longcontext.middle(gaps)
    assert table is not None and SINGLE.name not in table.rows[0]
    low, high = (float(end) for end in table.rows[0][2].partition("(")[2].rstrip(")").split(" to "))
    wide = newcombe(*shares(gap))
    assert (high - low) / 100 < 0.85 * (wide[1] - wide[0]), "pairs tell more than two groups of samples"


def test_the_interval_of_a_gap_holds_it_as_often_as_it_says() -> None:
    """Three of eleven depths are in the middle; with n, two of three intervals hold the gap."""
    draw, held = np.random.default_rng(0), []
    bars = [-NormalDist().inv_cdf(share) for share in [0.3] * 4 + [0.05] * 3 + [0.3] * 4]
    for _ in range(150):
        right = draw.normal(size=(20, 1)) + 0.1 * draw.normal(size=(20, 11)) > np.array(bars) * math.sqrt(1.01)
        depths = [place / 10 for place in range(11)]
        found = told(lambda i, depth, right=right: bool(right[i, round(10 * depth)]), samples=20, depths=depths)
        (gap,) = middle_gaps(score_cells(found)).values()
        low, high = newcombe(*shares(gap), alike=gap.alike)
        held.append(low <= 0.25 <= high)
    assert fmean(held) > 0.92
