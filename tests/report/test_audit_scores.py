"""How scores stand in the sentences of an audit: beside guessing, and beside the one best answer to the test split."""

from __future__ import annotations

import numpy as np
import pytest

from levelfield.report.audit import words
from levelfield.report.audit.reading import Number, Reading, percent
from levelfield.report.audit.shares import DISORDERED, FREE, RULE, Scored, findings
from levelfield.report.audit.terms import scores
from levelfield.spec import Row


def test_who_always_gives_one_answer_may_be_better_than_what_was_learnt() -> None:
    """Half of training is of one class, and nine tenths of test are of the other: 82 % there show nothing."""
    n = 400
    rule = Scored("1-grams", RULE, 0.8, (np.arange(n) < 0.82 * n).astype(float)[None])
    floor, constant = (np.arange(n) % 10 < 5).astype(float), (np.arange(n) % 10 < 9).astype(float)
    rows = findings([rule], floor, constant=constant)
    said = words.lead(Reading.of([row | Row(task="mine", effort="minutes") for row in rows]))
    assert said.endswith(
        "guessing scores 50 %, or 90 % who always gives the one answer that suits these examples best."
    )
    assert "No higher accuracy than guessing is shown" in said


@pytest.mark.parametrize(
    "value, text", [(0.97, "97"), (0.9949, "99"), (0.9951, "99.5"), (0.99999, "99.9"), (1.0, "100"), (0.0, "0")]
)
def test_a_score_of_100_percent_has_no_error(value: float, text: str) -> None:
    assert percent(value) == text


def test_scores_that_round_alike_have_more_digits() -> None:
    rule = Scored("length", RULE, 0.5, np.ones((1, 400)))
    found = Reading.of([row | Row(task="mine", effort="minutes") for row in findings([rule], np.zeros(400))])
    near = Number(0.9545, 0.94, 0.96)
    assert scores(found, near, 0.952, str) == "scores 95.5 % (94.0 to 96.0) where guessing scores 95.2 %"
    assert scores(found, near, 0.5, str) == "scores 95 % (94 to 96) where guessing scores 50 %"


@pytest.mark.parametrize("right", [1.0, 2 / 3])
def test_an_arm_that_is_right_where_guessing_is_has_no_share_at_all(right: float) -> None:
    """Scores are kept as float32, whose mean of 143 in 240, like an F1 of two thirds, is not that of float64."""
    floor = np.where(np.arange(240) < 143, right, 0.0)
    arms = [("s4", FREE, np.ones(240)), ("length", RULE, floor), ("unordered", DISORDERED, floor)]
    rows = findings([Scored(name, kind, float(each[-1]), each.astype("f4")[None]) for name, kind, each in arms], floor)
    found = Reading.of([row | Row(task="mine", effort="minutes") for row in rows])
    assert found.reference == "s4" and found.shares["length"][:3] == (0.0, 0.0, 0.0)
    assert "With the steps of every sequence shuffled, nothing is left." in words.details(found)
