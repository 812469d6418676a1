"""The verdict of the study `scorecard`, fed with scores of arms that are weak, alike, reversed, or have not learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from levelfield.spec import Row
from levelfield.studies import scorecard

Scores = Mapping[tuple[str, str], Sequence[float]]
TASKS = {"recall": 0.5, "words": 1 / 6, "reach": 0.5}  # with what guessing has
EXAMPLES = 2_000
CLOSE = (-0.2, 0.0, 0.2)


def rows(scores: Scores) -> list[Row]:
    """Rows of test scores in percent by task and model, one a seed."""
    made = [
        Row(task=task, protocol="none", model="chance", metric="accuracy", split="test", value=chance, n=EXAMPLES)
        for task, chance in TASKS.items()
    ]
    for (task, model), values in scores.items():
        for seed, value in enumerate(values):
            run = Row(run=f"{task}-{model}{seed}", task=task, model=model, protocol=scorecard.SCRATCH, seed=seed)
            made.append(run | Row(metric="accuracy", split="test", value=value / 100, n=EXAMPLES))
    return made


def scored(weak: float, strong: float) -> dict[tuple[str, str], list[float]]:
    """Scores of every arm where it is weak, and of those beside them."""
    found = {(task, other): [strong + each for each in CLOSE] for task, other in scorecard.WEAK.values()}
    return found | {(task, name): [weak + each for each in CLOSE] for name, (task, _) in scorecard.WEAK.items()}


def decided(scores: Scores) -> set[int]:
    found = scorecard.findings(rows(scores))
    assert len(found) == len(scorecard.WEAK)
    return {each.decided for each in found}


def test_every_arm_has_a_question_about_a_task_and_an_arm_of_the_study() -> None:
    runs = scorecard.runs("minutes")
    arms, tasks = {run.model.label for run in runs}, {run.task.name for run in runs}
    assert arms == set(scorecard.WEAK) and {other for _, other in scorecard.WEAK.values()} < arms
    assert {task for task, _ in scorecard.WEAK.values()} == set(TASKS) == tasks - {"digits"}
    assert {run.seed for run in runs} == {0, 1, 2} and len({run.id for run in runs}) == len(runs) == 72


def test_arms_are_below_others_not_below_them_or_undecided() -> None:
    assert decided(scored(60.0, 99.0)) == {1}
    assert decided(scored(99.0, 60.0)) == {-1}
    assert decided(scored(80.0, 80.1)) == {0}
    assert scorecard.verdict(rows(scored(60.0, 99.0))).startswith("Yes: attention is below gru on words, ")


def test_nothing_is_said_beside_an_arm_that_has_not_learnt() -> None:
    assert scorecard.verdict(rows({})).startswith("Nothing can be said yet")
    unlearnt = scored(60.0, 99.0) | {("words", "gru"): [16.4, 16.8, 17.2]}
    found = {each.subject: each for each in scorecard.findings(rows(unlearnt))}
    assert found["mamba2 is below gru on words"].seen == 0
    assert "gru did not learn there" in found["mamba2 is below gru on words"].facts
    assert found["conv is below s4 on reach"].decided == 1


def test_few_reports_on_arms_that_are_alike_tell_any_apart() -> None:
    """Of 300 reports, by scatter between seeds of one point and binomial test examples."""
    draw, erring = np.random.default_rng(0), 0
    for _ in range(300):
        truth = {cell: np.clip(draw.normal(80.0, 1.0, 3), 0, 100) for cell in scored(80.0, 80.0)}
        noisy = {cell: 100 * draw.binomial(EXAMPLES, values / 100) / EXAMPLES for cell, values in truth.items()}
        erring += bool(decided(noisy) - {0})
    assert erring <= 0.05 * 300
