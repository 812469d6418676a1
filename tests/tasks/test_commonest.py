"""The expected share of the commonest value: by counting all draws, and by what is drawn for needles."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest

from levelfield.tasks import _commonest
from levelfield.tasks._commonest import commonest_before, commonest_share
from levelfield.tasks.copying import Copying
from levelfield.tasks.needle import Needle
from levelfield.tasks.recall import Recall


@pytest.mark.parametrize(("count", "values"), [(1, 5), (2, 16), (3, 4), (5, 3), (4, 2)])
def test_the_share_is_that_of_all_draws(count: int, values: int) -> None:
    draws = product(range(values), repeat=count)
    largest = [max(Counter(draw).values()) for draw in draws]
    assert commonest_share(count, values) == pytest.approx(np.mean(largest) / count)


@pytest.mark.parametrize("at_once", [1, 7 * 30 * 4, 1 << 22])
def test_the_commonest_before_each_step_is_that_of_a_count(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of one row, of seven, the last of them shorter, and of all."""
    monkeypatch.setattr(_commonest, "AT_ONCE", at_once)
    x = np.random.default_rng(0).integers(0, 7, (20, 30))
    found = commonest_before(x, 2, 4)
    for row, said in zip(x.tolist(), found.tolist(), strict=True):
        for step, answer in enumerate(said):
            before = [symbol - 2 for symbol in row[:step] if 2 <= symbol < 6]
            assert answer == max(range(4), key=before.count)


def test_values_are_counted_for_a_part_of_the_rows_at_a_time() -> None:
    """All counts of these together are 154 MB of int32."""
    x = np.random.default_rng(0).integers(0, 128, (1_500, 200), dtype=np.uint8)
    tracemalloc.start()
    found = commonest_before(x, 0, 128)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.shape == x.shape and most < 60e6


@pytest.mark.parametrize(("items", "symbols"), [(6, 4), (10, 8)])
@pytest.mark.parametrize("placement", ["first", "scattered"])
def test_who_copies_the_commonest_item_is_right_as_often_as_said(items: int, symbols: int, placement: Any) -> None:
    task = Copying(symbols, items, 20, placement, "markers", train=10, val=10, test=2_000)
    splits = task.build(None)
    found = task.baselines(splits["train"], splits["test"])["commonest_item"]
    assert found == pytest.approx(commonest_share(items, symbols), abs=4 * 0.5 / (2_000 * items) ** 0.5)


def test_who_recalls_the_commonest_value_is_right_more_often_than_its_share_of_keys() -> None:
    """With one key, all values are alike; with as many keys as one can tell apart, values are nearly independent."""
    one = Recall(keys=1, values=4, pairs=5, train=1, val=1, test=2)
    assert one.baselines(*(one.build(None)[split] for split in ("train", "test")))["commonest_value"] == 1
    many = Recall(keys=128, values=16, pairs=5, train=10, val=10, test=6_000)
    found = many.baselines(*(many.build(None)[split] for split in ("train", "test")))["commonest_value"]
    assert commonest_share(5, 16) < found < commonest_share(5, 16) + 0.03


@pytest.mark.parametrize("length", [32, 33, 64])
def test_who_names_the_commonest_value_of_a_text_is_right_as_often_as_said(length: int) -> None:
    task = Needle(length, 2, 2, words=16, keys=16, values=16, train=10, val=10, test=6_000)
    test = task.build(None)["test"]
    shown = test.x.reshape(-1, length).astype(int) - task.words - task.keys
    answers = test.y.reshape(-1, length)[:, -1]
    right: dict[str, list[float]] = {name: [] for name in task.formats}
    for row, answer, form in zip(shown, answers, test.slices["format"], strict=True):
        counts = np.bincount(row[(row >= 0) & (row < task.values)], minlength=task.values)
        best = counts == counts.max()
        right[str(form)].append(best[answer] / best.sum())
    for form, shares in right.items():
        noise = np.std(shares) / len(shares) ** 0.5
        assert np.mean(shares) == pytest.approx(task.keyless(form), abs=4 * noise), form
    every = np.concatenate([*right.values()])
    assert np.mean(every) == pytest.approx(task.passage_only, abs=4 * np.std(every) / len(every) ** 0.5)


@pytest.mark.parametrize("length", [32, 128])
def test_needles_that_stand_out_are_found_as_often_as_said(length: int) -> None:
    """By another code, on the test split: the value after a key behind a key, or else after one that is single."""
    task = Needle(length, 2, 2, words=16, keys=16, values=16, train=10, val=10, test=3_000, formats=("pairs",))
    test = task.build(None)["test"]
    right = []
    for row, labels in zip(test.x.reshape(-1, length).tolist(), test.y.reshape(-1, length).tolist(), strict=True):
        text = row[:-2]
        kinds = ["key" if 16 <= symbol < 32 else "value" for symbol in text]
        own = [i for i in range(len(text) - 1) if (kinds[i], kinds[i + 1]) == ("key", "value")]
        parting = [i for i in own if i and kinds[i - 1] == "key"]
        counts = Counter(symbol for symbol in text if 16 <= symbol < 32)
        chosen = parting or [i for i in own if counts[text[i]] == 1] or own
        values = Counter(text[i + 1] - 32 for i in chosen)
        best = [value for value, count in values.items() if count == max(values.values())]
        right.append((labels[-1] in best) / len(best))
    assert np.mean(right) == pytest.approx(task.standing_out("pairs"), abs=0.04)
    assert np.mean(right) > 2 * task.keyless("pairs") and task.standing_out("essay") == task.keyless("essay")


def test_a_large_text_takes_a_moment() -> None:
    """As at effort `paper`: 16,383 pairs of 8,192 values, of which the commonest is there some 10 times."""
    assert 8 / 16_383 < commonest_share(16_383, 8_192) < 12 / 16_383
