"""What a needle sequence is made of, read back from it by other means than it was made."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from levelfield.spec import UserError
from levelfield.tasks.needle import BINS, Needle

TASK = Needle(60, 3, 3, words=16, keys=12, values=10, train=1_500, val=50, test=3_000, seed=1)


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    splits = TASK.build(None)
    return {s: (e.x.reshape(len(e), -1).astype(int), e.y.reshape(len(e), -1)) for s, e in splits.items()}


def parts(x: np.ndarray) -> tuple[list[tuple[int, int]], list[int]]:
    """Every place of a key with its value behind it in the text, and the keys that are asked for."""
    mark = TASK.symbols - 1
    end = int(np.flatnonzero(x == mark)[0])
    pairs = [(i, int(w)) for i, w in enumerate(x[:end]) if TASK.words <= w < TASK.words + TASK.keys]
    return pairs, x[np.flatnonzero(x == mark) + 1].tolist()


def test_asked_keys_stand_once_in_the_text_and_the_label_is_the_value_behind(
    made: dict[str, tuple[np.ndarray, np.ndarray]],
) -> None:
    for x, y in made.values():
        for words, labels in zip(x[:300], y[:300], strict=True):
            pairs, asked = parts(words)
            assert len(set(asked)) == len(asked)
            found = [[place for place, key in pairs if key == wanted] for wanted in asked]
            assert all(len(places) == 1 for places in found)
            values = [words[places[0] + 1] - TASK.words - TASK.keys for places in found]
            assert labels[labels >= 0].tolist() == values
            assert np.array_equal(np.flatnonzero(labels >= 0), np.flatnonzero(words == TASK.symbols - 1) + 1)


def test_training_asks_for_one_to_three_and_tests_for_one_at_the_last_step(
    made: dict[str, tuple[np.ndarray, np.ndarray]],
) -> None:
    asked = (made["train"][1] >= 0).sum(1)
    counts = np.bincount(asked, minlength=4)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 500).max() < 5 * np.sqrt(500)
    for split in ("val", "test"):
        y = made[split][1]
        assert (y[:, :-1] == -1).all()
        assert (y[:, -1] >= 0).all()


def test_depths_are_uniform_and_said_truly() -> None:
    test = TASK.build(None)["test"]
    x = test.x.reshape(len(test), -1).astype(int)
    body = TASK.length - 2
    for words, depth in zip(x[:300], test.slices["depth"][:300], strict=True):
        place = int(np.flatnonzero(words == words[-1])[0])
        assert depth == place * BINS // (body - 1)
    counts = np.bincount(test.slices["depth"], minlength=BINS)
    width = np.bincount(np.arange(body - 1) * BINS // (body - 1), minlength=BINS) / (body - 1)
    assert np.abs(counts - len(test) * width).max() < 5 * np.sqrt(len(test) / BINS)


def test_each_haystack_is_what_its_name_says() -> None:
    test = TASK.build(None)["test"]
    x, form = test.x.reshape(len(test), -1).astype(int)[:, :-2], test.slices["format"]
    hay = {name: [row[row < TASK.words] for row in x[form == name]] for name in TASK.formats}
    first = hay["repeat"][0]
    assert all(np.array_equal(row, first) for row in hay["repeat"])
    assert np.array_equal(first[8:], first[:-8])
    after = {(int(a), int(b)) for row in hay["essay"] for a, b in pairwise(row)}
    assert {sum(a == word for a, _ in after) for word in range(TASK.words)} == {4}
    pairs = [len(parts(row)[0]) for row in test.x.reshape(len(test), -1).astype(int)[form == "pairs"][:50]]
    assert set(pairs) == {29}
    assert np.abs(np.unique(form, return_counts=True)[1] - 1000).max() < 5 * np.sqrt(1000)


def test_longer_has_as_many_needles_and_other_numbers_of_examples() -> None:
    longer = TASK.at_length(200, 20)
    assert (longer.length, longer.needles, longer.test) == (200, 3, 20)
    assert longer.build(None)["test"].lengths.tolist() == [200] * 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 10}, "takes at least 20 steps, not 10"),
        ({"asked": 5}, "1 to needles=4 keys"),
        ({"formats": ("essay", "novel")}, "some of repeat, essay, pairs"),
        ({"keys": 4}, "more keys than needles"),
        ({"words": 60_000, "keys": 6_000}, "65,535 symbols"),
        ({"test": 0}, "at least one sequence"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Needle(**settings)  # type: ignore[arg-type]
