"""Test examples that come in groups, such as those of one patient, count for less, so that luck decides no more."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import tiny

from levelfield.data import prepared
from levelfield.evaluate import SplitScores
from levelfield.mixers.conv import Conv
from levelfield.objectives import default_objective
from levelfield.protocols import scratch
from levelfield.report.arms import Arm
from levelfield.report.cells import Cell, Score, gather
from levelfield.report.decisions import Seeds, difference
from levelfield.report.same_examples import Right
from levelfield.report.scatter import Scatter
from levelfield.report.stats import SHARE, summarise
from levelfield.report.verdicts import Table
from levelfield.run import execute
from levelfield.runs import rows
from levelfield.runs.results import Results
from levelfield.spec import Model, Row, Run, describe
from levelfield.spec.groups import design_effect, equal_groups, independent
from levelfield.spec.study import GUESSES
from levelfield.tasks.parity import Parity
from levelfield.user.own_data import OwnData

GROUPS = np.repeat(np.arange(40), 25)


def split_scores(values: np.ndarray, groups: np.ndarray | None) -> SplitScores:
    return SplitScores(values, np.ones(len(values)), np.ones(len(values), bool), groups)


def clustered(rng: np.random.Generator, mean: float = 0.7) -> np.ndarray:
    """Right or wrong, (1000,): of nearly all groups nearly all, or nearly none."""
    return (rng.random(len(GROUPS)) < rng.beta(mean, 1 - mean, 40)[GROUPS]).astype(float)


def test_the_standard_error_is_that_of_whole_groups_drawn_anew() -> None:
    values, rng = clustered(np.random.default_rng(0)), np.random.default_rng(1)
    sums = np.bincount(GROUPS, values)
    drawn = [sums[rng.integers(40, size=40)].sum() / len(values) for _ in range(20_000)]
    scores = split_scores(values, GROUPS)
    assert scores.stderr == pytest.approx(np.std(drawn) * math.sqrt(40 / 39), rel=0.03)
    alone = split_scores(values, None)
    assert scores.stderr == pytest.approx(alone.stderr * math.sqrt(scores.design_effect)) and alone.design_effect == 1
    assert scores.counted == Row(n=1000, n_effective=independent(values, GROUPS)) and alone.counted == Row(n=1000)
    assert 40 <= independent(values, GROUPS) < 1000 / scores.design_effect and alone.independent == 1000
    assert scores.part(GROUPS < 20).counted.get("n_effective", 1000) < 500


def test_groups_that_tell_nothing_change_nothing() -> None:
    """Examples that stand by themselves under any numbers, and one group alone."""
    values = clustered(np.random.default_rng(0))
    apart = values - values.mean()
    assert design_effect(apart, np.random.default_rng(0).permutation(1000) + 7) == pytest.approx(1)
    assert design_effect(apart, np.zeros(1000, int)) == 1


def test_of_scores_that_are_all_alike_each_group_counts_as_one_example() -> None:
    """Three patients of 80 rows, all of which are wrong, say as little as three rows."""
    assert design_effect(np.zeros(1000), GROUPS) == pytest.approx(1000 / 40)
    assert 240 / design_effect(np.zeros(240), np.repeat([0, 1, 2], 80)) == pytest.approx(3)


def test_unequal_groups_tell_as_much_as_fewer_equal_ones() -> None:
    assert equal_groups(np.arange(50)) == 50 and equal_groups(np.repeat(np.arange(5), 7)) == pytest.approx(5)
    assert equal_groups(np.repeat([3, 1, 2], [900, 50, 50])) == pytest.approx(1000**2 / (900**2 + 2 * 50**2))


def test_the_interval_of_few_or_unequal_groups_holds_the_truth() -> None:
    """As a report draws it from a row. By the design effect alone it held it in 80 and 71 of 100."""
    rng = np.random.default_rng(0)
    sizes = np.maximum(1, np.exp(rng.normal(math.log(15), 1.2, 80)).round().astype(int))
    for of, truth, correlation in (
        (np.repeat(np.arange(10), 40), 0.95, 0.6),
        (np.repeat(np.arange(80), sizes), 0.99, 0.6),
    ):
        a, held = (1 - correlation) / correlation, []
        for _ in range(400):
            chances = rng.beta(truth * a, (1 - truth) * a, int(of[-1]) + 1)
            scores = split_scores((rng.random(len(of)) < chances[of]).astype(float), of)
            plain = len(of) / scores.design_effect
            both = [summarise([100 * scores.mean], SHARE, examples=n) for n in (scores.independent, plain)]
            held.append([one is not None and one.test and one.test[0] <= 100 * truth <= one.test[1] for one in both])
        new, old = np.mean(held, 0)
        assert new >= 0.92 and old < 0.85


def test_a_difference_on_the_same_patients_is_held_where_they_are_hard_for_both_arms() -> None:
    """Of ten groups of 40, answered by three seeds of two equal arms, example by example."""
    of, rng, held = np.repeat(np.arange(10), 40), np.random.default_rng(0), []
    for _ in range(200):
        patients, examples = rng.normal(0, 1, 10)[of], rng.normal(0, 1, 400)
        arms = []
        for _arm in range(2):
            own = 0.35 * patients + 0.3 * rng.normal(0, 1, 10)[of] + 0.7 * examples
            right = np.stack([own + 0.57 * rng.normal(0, 1, 400) < 0.52 for _seed in range(3)])
            count = min(split_scores(seed.astype(float), of).independent for seed in right)
            arms.append(Seeds(tuple(100 * right.mean(1)), examples=count, right=Right("exam", right)))
        found = difference(*arms, scatter=Scatter.pooled([arm.values for arm in arms])).span()
        held.append(found is not None and found.low <= 0 <= found.high)
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("grouped", [True, False])
def test_two_equal_arms_are_told_apart_by_luck_only_where_groups_are_taken_for_examples(grouped: bool) -> None:
    """Each arm of three seeds knows some groups, by luck and alike in all seeds; neither knows more than the other."""
    rng, told = np.random.default_rng(0), 0
    for _ in range(400):
        arms = []
        for _arm in range(2):
            scores = split_scores(clustered(rng), GROUPS if grouped else None)
            count = scores.counted.get("n_effective", len(GROUPS))
            arms.append(Seeds(tuple(100 * scores.mean + rng.normal(0, 0.2, 3)), examples=count))
        told += difference(*arms).decide(0.05) != 0
    assert (told / 400 <= 0.07) if grouped else (told / 400 > 0.4)


@pytest.mark.parametrize("group", ["patient", ""])
def test_a_run_on_grouped_data_says_how_many_examples_its_test_amounts_to(tmp_path: Path, group: str) -> None:
    """What a text says is right for half of the patients and wrong for the others, whose rows fail together."""
    lines = []
    for row in range(1_600):
        patient = row // 8
        said = patient // 2 % 2
        lines.append(f"{'ab'[said] * 9}{row},{patient},{(said + patient) % 2}")
    path = tmp_path / "visits.csv"
    path.write_text("body,patient,label\n" + "\n".join(lines))
    task = OwnData(str(path), text="body", label="label", group=group)
    prepared.prepare(task, tmp_path / "data")
    run = Run(task, Model((Conv(3, hidden=8),), 1, 8), scratch(tiny.recipe()), seed=0)
    execute(run, tmp_path / "runs" / run.id, tmp_path / "data", device="cpu")
    rows = [json.loads(line) for line in (tmp_path / "runs" / run.id / "rows.jsonl").read_text().splitlines()]
    (test,) = (row for row in rows if row["split"] == "test" and row["metric"] == "accuracy" and row["model"] == "conv")
    assert ("n_effective" in test) == bool(group)
    values = np.load(tmp_path / "runs" / run.id / "scores.npy").astype(float)
    if group:
        assert task.test_groups is not None
        assert test["n_effective"] == pytest.approx(independent(values, task.test_groups))
        assert test["n_effective"] < test["n"] / 2
    cell = Table.of(rows).cells
    (arm,) = cell.values()
    assert arm.examples == test.get("n_effective", test["n"])
    (shown,) = gather(Results(rows, {run.id: {"steps": 1}}, specs={run.id: describe(run)}), metric="accuracy").cells
    assert shown.examples == test["n"] and shown.independent == arm.examples


@pytest.mark.parametrize(("share", "status"), [(0.53, "chance"), (0.58, "chance"), (0.65, "ok")])
def test_the_steps_of_a_sequence_are_no_independent_examples_of_guessing(share: float, status: str) -> None:
    """The row of a run and the table of its report call the same scores those of chance: up to 10 points above it."""
    task = Parity(16, train=100, val=100, test=100)
    scores = SplitScores(np.full(100, share), np.full(100, 16.0), np.ones(100, bool))
    run = Run(task, tiny.MODEL, scratch(tiny.recipe()), 0)
    made = rows.rows(run, default_objective(task), task.build(None), {"val": scores, "test": scores}, "")
    (row,) = (each for each in made if each.get("split") == "test" and each.get("model") == run.model.label)
    assert row.get("status") == status
    floor = max(each.get("value", 0.0) for each in made if each.get("model") in GUESSES)
    score = Score(run.id, 0, 100 * share, "ok", examples=100, independent=100)
    cell = Cell(Arm(task.name, run.model.label, "scratch"), "percent", (score,), 100 * floor, ())
    assert cell.failure(score) == {"chance": "at chance", "ok": None}[status]
