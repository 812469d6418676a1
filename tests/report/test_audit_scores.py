"""How scores stand in the sentences of an audit: beside guessing, and beside the one best answer to the test split."""

from __future__ import annotations

import numpy as np
import pytest

from levelfield.report.audit import words
from levelfield.report.audit.reading import Number, Reading, percent
from levelfield.report.audit.shares import DISORDERED, FREE, RULE, Scored, cross_validated, findings, unleaked
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
        "guessing scores 50 %, or 90 % by always giving the one answer that suits these examples best."
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


def test_a_rule_that_is_above_guessing_by_95_percent_alone_is_held_to_the_level_that_is_asked() -> None:
    """An interval that leaves guessing out, where 99 % are asked, would contradict that nothing is shown."""
    rule = Scored("length", RULE, 0.8, (np.arange(400) < 222).astype(float)[None])
    rows = findings([rule], (np.arange(400) % 2).astype(float), constant=(np.arange(400) % 2).astype(float))
    found = Reading.of([row | Row(task="mine", effort="minutes") for row in rows])
    assert not found.learnable and found.scores["length"].low > found.guessing
    assert "No higher accuracy than guessing is shown, at the level of 1 % that is asked: of 1 " in words.lead(found)


def test_a_window_that_has_as_much_as_the_rule_that_validation_happens_to_choose_is_named() -> None:
    """One symbol anywhere: its place tells nearly as much, and all rules are right about all of validation."""
    right = {"length": 200, "positions": 398, "1-grams": 400, "2-grams": 400}
    scores = {name: (np.arange(400) < count).astype(float) for name, count in right.items()}
    arms = [Scored(name, RULE, float(name != "length"), each[None]) for name, each in scores.items()]
    floor = (np.arange(400) % 2).astype(float)
    found = Reading.of([row | Row(task="mine", effort="minutes") for row in findings(arms, floor)])
    assert "the one that knows each step with its place is best on validation" in words.lead(found)
    (said,) = words.details(found)
    assert said.startswith(
        "Of what that rule gains over guessing, the rule that knows counts of single symbols has 101 %"
    )
    assert said in words.paragraph(found)
    rows = [*findings(arms, floor), *cross_validated(scores | {"positions": scores["length"]}, floor, np.arange(400))]
    found = Reading.of([row | Row(task="mine", effort="minutes") for row in rows])
    assert "over test examples, or in five folds over all examples." in words.paragraph(found)
    assert words.details(found)[-1] == (
        "In five folds over all 400 examples, the rule that knows counts of single symbols is better: it scores 100 % "
        "(99 to 100), and the rule that knows each step with its place 50 % (45 to 55)."
    )


@pytest.mark.parametrize("near", [0, 40])
def test_near_duplicates_are_said_to_lie_in_different_folds_where_they_do(near: int) -> None:
    scores, floor = {"length": np.ones(400)}, np.zeros(400)
    rows = [*findings([Scored("length", RULE, 1.0, np.ones((1, 400)))], floor)]
    rows += cross_validated(scores, floor, np.arange(400))
    rows.append(Row(model="data", metric="near_apart", split="all", value=near))
    found = Reading.of([row | Row(task="mine", effort="minutes") for row in rows])
    assert ("that 40 have near duplicates in other parts" in words.five_folds(found)) == bool(near)


@pytest.mark.parametrize(
    "new, said", [(1, "Only 1 of 400 test examples is not"), (19, "Only 19 of 400 test examples are not")]
)
def test_scores_of_a_handful_of_examples_that_are_not_in_train_are_not_said(new: int, said: str) -> None:
    """On one example the sentence said 0 % (0 to 79) where guessing scores 0 %."""
    arms, floor, apart = [Scored("length", RULE, 1.0, np.ones((1, 400)))], np.zeros(400), np.arange(400) < new
    rows = [*findings(arms, floor), *unleaked(arms, floor, None, apart, "copies")]
    told = " ".join(words.details(Reading.of([row | Row(task="mine", effort="minutes") for row in rows])))
    assert f"{said} in train, exactly or nearly: too few to say what is scored on new examples." in told
    assert "where guessing scores" not in told
