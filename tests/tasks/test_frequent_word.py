"""What a text of counted words is made of, counted again by other means than it was made."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256

import numpy as np
import pytest

from levelfield.spec import SPLITS, Examples, SplitName, UserError
from levelfield.tasks.frequent_word import BINS, FrequentWord, _least

TASK = FrequentWord(62, words=16, train=300, val=50, test=2_000, seed=1)


@pytest.fixture(scope="module")
def made() -> Mapping[SplitName, Examples]:
    return TASK.build(None)


def texts(examples: Examples) -> list[list[int]]:
    return examples.x.reshape(len(examples), -1).astype(int).tolist()


def test_the_answer_is_ahead_of_three_rivals_and_these_of_all_others(made: Mapping[SplitName, Examples]) -> None:
    """Of 61 words a quarter is 15, of which seven tenths are 10; it is asked for at the last step, and once."""
    for examples in made.values():
        labels = examples.y.reshape(len(examples), -1)
        assert (labels[:, :-1] == -1).all()
        for text, label in zip(texts(examples)[:300], labels[:, -1], strict=False):
            assert text[-1] == TASK.words and TASK.words not in text[:-1]
            (answer, most), *others = Counter(text[:-1]).most_common()
            assert (answer, most) == (label, 15)
            counts = [count for _, count in others]
            assert counts[:3] == [10, 10, 10] and max(counts[3:]) < 10


def test_depth_and_layout_are_said_truly(made: Mapping[SplitName, Examples]) -> None:
    test = made["test"]
    spans = {"spread": [], "gathered": []}
    for text, label, depth, layout in zip(
        texts(test), test.y.reshape(len(test), -1)[:, -1], test.slices["depth"], test.slices["format"], strict=True
    ):
        places = [place for place, word in enumerate(text) if word == label]
        assert depth == sorted(places)[len(places) // 2] * BINS // 61
        spans[layout].append(places[-1] - places[0] + 1)
    assert max(spans["gathered"]) <= 20 < min(spans["spread"])
    assert np.mean(spans["spread"]) > 50
    assert abs(len(spans["spread"]) - 1_000) < 5 * np.sqrt(500)


def test_long_texts_are_drawn_in_little_memory() -> None:
    """Their other words are drawn among 72,000 places of each text: of all texts at once, that takes 230 MB here, and
    460 GB at `paper`."""
    task = FrequentWord(2_048, words=512, share=0.1, train=200, val=50, test=50)
    tracemalloc.start()
    task.build(None)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100e6


@pytest.mark.parametrize(("slots", "size"), [(1, 1), (7, 0), (0, 0), (7, 7), (900, 1), (900, 250), (900, 899)])
def test_the_least_keys_come_in_the_order_of_a_sort_of_all(slots: int, size: int) -> None:
    keys = np.random.default_rng(0).random((40, slots))
    expected = [sorted(range(slots), key=row.__getitem__)[:size] for row in keys.tolist()]
    assert _least(keys, size).tolist() == expected


def test_the_least_keys_are_found_without_a_sort_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured on texts of 2,048 words of 512: 0.12 s for 100 of them, of 0.40 s with a sort of all."""
    widest: list[int] = []
    sort = np.argsort

    def watched(keys: np.ndarray, axis: int = -1) -> np.ndarray:
        widest.append(keys.shape[-1])
        return sort(keys, axis=axis)

    monkeypatch.setattr(np, "argsort", watched)
    _least(np.random.default_rng(0).random((3, 5_000)), 20)
    assert max(widest, default=0) <= 20


@pytest.mark.parametrize(
    ("task", "digest"),
    [
        (FrequentWord(41, 8, train=60, val=20, test=30), "1b876a3ad7145cfb"),
        (FrequentWord(41, 8, share=0.3, rivals=2, behind=0.9, train=60, val=20, test=30), "73f3c6aa9b556df5"),
    ],
    ids=repr,
)
def test_texts_are_those_that_a_sort_of_all_keys_made(task: FrequentWord, digest: str) -> None:
    splits = task.build(None)
    assert sha256(b"".join(splits[s].x.tobytes() + splits[s].y.tobytes() for s in SPLITS)).hexdigest()[:16] == digest


def test_every_word_answers_as_often() -> None:
    """As a chi-square of 15 degrees of freedom, which is above 45 in one of 10,000 cases."""
    y = TASK.build(None)["test"].y
    counts = np.bincount(y[y >= 0], minlength=16)
    assert ((counts - 125) ** 2 / 125).sum() < 45


def test_the_shares_are_those_of_any_length_and_the_last_words_say_less_the_longer_it_is() -> None:
    scores = []
    for length in (32, 62, 512):
        longer = TASK.at_length(length, 400)
        answer, rival, rest = longer.counts
        assert (longer.length, longer.test, answer + 3 * rival + rest) == (length, 400, length - 1)
        assert answer / (length - 1) == pytest.approx(0.25, abs=0.01)
        assert rival / answer == pytest.approx(0.7, abs=0.08)
        splits = longer.build(None)
        scores.append(longer.baselines(splits["train"], splits["test"])["last_words"])
    assert scores[0] > scores[1] > scores[2] > 2 / 16, "chance is 1 / 16"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0.5}, "a third at most"),
        ({"behind": 1.0}, "behind of 0 to 1"),
        ({"formats": ("late",)}, "spread, gathered"),
        ({"rivals": 63}, "more words than rivals"),
        ({"length": 5}, "no text in which"),
        ({"words": 5}, "all others fewer times"),
        ({"test": 0}, "at least one sequence"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FrequentWord(**settings)  # pyright: ignore[reportArgumentType]
