"""Rows of splits that all differ: against draws written out by hand, and bytes that older versions have drawn."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import numpy as np
import pytest

from levelfield.spec import SPLITS, SplitName, Task, UserError
from levelfield.tasks._distinct_rows import Draw, Rows, splits
from levelfield.tasks.parity import Parity
from levelfield.tasks.recall import Recall

COUNTS: dict[SplitName, int] = {"test": 2, "val": 1, "train": 3}


def scripted(*tries: list[int]) -> Draw:
    """Gives x of one symbol each, and y, ten times x; the last try again and again."""
    left: Iterator[list[int]] = iter(tries)
    said: list[list[int]] = []

    def draw(rng: np.random.Generator, count: int) -> Rows:
        said.append(next(left, said[-1] if said else []))
        x = np.array(said[-1]).reshape(-1, 1)
        return x, 10 * x[:, 0]

    return draw


def test_rows_that_a_split_did_not_need_are_given_to_one_that_finds_none_in_the_order_of_drawing() -> None:
    draw = scripted([0, 0], [1, 2], [3, 4], [0, 1, 5])
    made = splits("toy", 0, (), counts=COUNTS, draw=draw, progress=lambda *_: None)
    assert {split: x.ravel().tolist() for split, (x, _) in made.items()} == {
        "test": [0, 1],  # and 2 is left
        "val": [3],  # and 4 is left; 2 is not looked at, since new rows are found
        "train": [5, 2, 4],
    }
    assert all((y == 10 * x[:, 0]).all() for x, y in made.values())


def test_rows_of_another_distribution_are_not_given() -> None:
    """The last split draws by a function of its own, and finds 5 and 6 alone."""
    ours, own = scripted([0, 0], [1, 2], [3, 4]), scripted([5, 6, 1])
    draws: dict[SplitName, Draw] = {"test": ours, "val": ours, "train": own}
    with pytest.raises(UserError, match="toy has too few different sequences for 3 more"):
        splits("toy", 0, (), counts=COUNTS, draw=draws, progress=lambda *_: None)


def test_too_few_rows_are_too_few_with_those_that_are_left() -> None:
    draw = scripted([0, 0], [1, 2], [3], [0, 1])
    with pytest.raises(UserError, match="toy has too few different sequences for 3 more"):
        splits("toy", 0, (), counts=COUNTS, draw=draw, progress=lambda *_: None)


@pytest.mark.parametrize("task", [Parity(10, None, 300, 300, 200), Recall(2, 3, 4, 77, 147, 12, seed=13)], ids=repr)
def test_small_spaces_are_used_up(task: Task) -> None:
    """Parity has 1,024 sequences of 10 bits, of which 800 are asked for in an order of splits that leaves many over."""
    made = task.build(None)
    rows = [tuple(made[split].sequence(i).tolist()) for split in SPLITS for i in range(len(made[split]))]
    assert len(set(rows)) == len(rows) == sum(getattr(task, split) for split in SPLITS)
    if isinstance(task, Parity):
        labels = np.concatenate([made[split].y.reshape(-1, 10) for split in SPLITS])
        assert (labels == np.cumsum(rows, axis=1) % 2).all()
        assert abs(np.mean(rows) - 0.5) < 0.01  # the standard error is half of that, with the whole space nearly used


@pytest.mark.parametrize(
    ("task", "digest"),
    [(Parity(8, None, 60, 30, 40), "e4963ff01fad1961"), (Recall(2, 3, 4, 120, 30, 40), "94d58dc9aead1093")],
    ids=["parity", "recall"],
)
def test_what_could_be_drawn_before_rows_were_kept_is_the_same(task: Task, digest: str) -> None:
    """In both, splits need several tries. Digests are those of version 1 before anything that is left was given out."""
    made = task.build(None)
    assert sha256(b"".join(made[s].x.tobytes() + made[s].y.tobytes() for s in SPLITS)).hexdigest()[:16] == digest
