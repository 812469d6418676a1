"""Associative recall against a reader that looks the key up, and against its own probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from levelfield.spec import UserError
from levelfield.tasks.recall import Recall


def look_up(sequence: list[int], within: int) -> int | None:
    """The value beside the last occurrence of the final key among the last `within` pairs."""
    *body, asked = sequence
    pairs = list(zip(body[::2], body[1::2], strict=True))[-within:]
    return next((value for key, value in reversed(pairs) if key == asked), None)


def test_labels_are_the_values_of_the_last_key():
    task = Recall(keys=5, values=7, pairs=11, train=300, val=50, test=50)
    for examples in task.build(None).values():
        again = task.recompute_labels(examples)
        for i in range(len(examples)):
            sequence = examples.sequence(i).tolist()
            value = look_up(sequence, 11)
            assert value is not None
            assert examples.y[i] == value - 5
            assert again[i] == value - 5
            by_key = dict(zip(sequence[:-1:2], sequence[1::2], strict=True))
            assert all(by_key[k] == v for k, v in zip(sequence[:-1:2], sequence[1::2], strict=True))


@pytest.mark.parametrize("window", [1, 2, 5, 12, 24])
def test_a_bounded_reader_scores_what_the_bound_says(window: int):
    task = Recall(train=1, val=1, test=20_000)
    test = task.build(None)["test"]
    found = [look_up(test.sequence(i).tolist(), window) for i in range(len(test))]
    score = np.mean([(1 / 8) if v is None else float(v - 8 == y) for v, y in zip(found, test.y, strict=True)])
    assert score == pytest.approx(task.bounded(window), abs=0.012)  # over three standard errors


def test_slices_say_how_far_back_the_key_is():
    examples = Recall(pairs=24, train=1, val=1, test=500).build(None)["test"]
    for i in range(len(examples)):
        bound = int(examples.slices["back"][i])
        sequence = examples.sequence(i).tolist()
        assert look_up(sequence, bound) is not None
        assert bound == 1 or look_up(sequence, bound // 2) is None


def test_lengths():
    assert Recall().at_length(99, 10).max_length == 99
    assert Recall().at_length(100).pairs == 49
    with pytest.raises(UserError, match="3 steps"):
        Recall().at_length(2)


def test_settings_that_cannot_work_say_so():
    with pytest.raises(UserError, match="128 keys"):
        Recall(keys=0)
    with pytest.raises(UserError, match="too few different"):
        Recall(keys=1, values=2, pairs=1, train=100, val=1, test=1).build(None)
