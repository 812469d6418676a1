"""Induction heads against a reader that looks for the special symbol, and the bound against one with a window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from levelfield.spec import UserError
from levelfield.tasks.induction import Induction

SMALL = Induction(20, 6, train=300, val=50, test=50)


def answer(sequence: list[int], special: int) -> int:
    """What followed the special symbol when it was first seen."""
    return sequence[sequence.index(special) + 1]


@pytest.mark.parametrize("task", [SMALL, replace(SMALL, gap=3), replace(SMALL, gap=19)])
def test_the_label_follows_the_special_symbol(task: Induction):
    for examples in task.build(None).values():
        for i in range(len(examples)):
            sequence = examples.sequence(i).tolist()
            assert sequence[-1] == 6 and sequence.count(6) == 2
            assert answer(sequence, 6) == examples.y[i] < 6
            gap = len(sequence) - 1 - sequence.index(6)
            assert gap >= 3 and task.gap in (None, gap)
            assert examples.slices["gap"][i] / 2 < gap <= examples.slices["gap"][i]


def test_the_special_symbol_stands_anywhere_and_the_rest_is_uniform():
    task = Induction(12, 5, train=1, val=1, test=20_000)
    examples = task.build(None)["test"]
    x = examples.x.reshape(-1, 12)
    places = np.bincount((x == 5).argmax(1), minlength=9)
    assert len(places) == 9  # of 12 steps the last is the question, and two more come between
    assert np.abs(places - 20_000 / 9).max() < 4.5 * np.sqrt(20_000 / 9)
    plain = x[:, :-1][x[:, :-1] < 5]
    assert np.abs(np.bincount(plain) / len(plain) - 0.2).max() < 4.5 * np.sqrt(0.16 / len(plain))
    assert np.abs(np.bincount(examples.y) / 20_000 - 0.2).max() < 4.5 * np.sqrt(0.16 / 20_000)


def test_a_changed_sequence_has_another_label():
    examples = SMALL.build(None)["val"]
    assert np.array_equal(SMALL.recompute_labels(examples), examples.y)
    x = examples.x.copy()
    behind = examples.sequence(0).tolist().index(6) + 1
    x[behind] = (x[behind] + 1) % 6
    assert np.flatnonzero(SMALL.recompute_labels(replace(examples, x=x)) != examples.y).tolist() == [0]


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9, 15, 16])
def test_a_bounded_reader_scores_what_the_bound_says(steps: int):
    task = Induction(16, 4, train=1, val=1, test=20_000)
    test = task.build(None)["test"]
    right = []
    for i in range(len(test)):
        seen = test.sequence(i).tolist()[-steps:]
        if 4 in seen[:-1]:
            right.append(float(answer(seen, 4) == test.y[i]))
        elif steps >= 3:
            right.append(float(seen[0] == test.y[i]))  # it may be the one behind the symbol
        else:
            right.append(1 / 4)
    assert np.mean(right) == pytest.approx(task.bounded(steps), abs=0.013)


def test_with_a_fixed_gap_a_reader_knows_once_it_reaches_there():
    task = Induction(30, 5, gap=12)
    assert [task.bounded(steps) for steps in (1, 11, 12, 30)] == [0.2, 0.2, 1.0, 1.0]
    test = replace(task, train=1, val=1, test=300).build(None)["test"]
    assert (test.x.reshape(-1, 30)[:, -12] == test.y).all()  # the first of twelve steps is the answer


def test_baselines():
    task = Induction(16, 4, train=2_000, val=1, test=2_000)
    splits = task.build(None)
    scores = task.baselines(splits["train"], splits["test"])
    assert scores["label_prior"] == pytest.approx(1 / 4, abs=0.05)
    last = splits["test"].x.reshape(-1, 16)[:, 14]
    assert scores["last_symbol"] == np.mean(last == splits["test"].y)


def test_lengths_and_settings():
    assert Induction().at_length(1_000, 10).max_length == 1_000
    assert Induction().at_length(512).train == 100_000
    with pytest.raises(UserError, match="gap of 3 to 19"):
        Induction(length=20, gap=20)
    with pytest.raises(UserError, match="at least 4 steps"):
        Induction(length=3)
    with pytest.raises(UserError, match="at least one sequence"):
        Induction(val=0)
    with pytest.raises(UserError, match="too few different"):
        Induction(4, 2, train=10, val=1, test=1).build(None)
