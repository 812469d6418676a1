"""Near duplicates among signals that are all much alike, against a comparison of all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from levelfield.data import correlated
from levelfield.data.duplicates import Duplicates, search
from levelfield.report.audit import words
from levelfield.report.audit.reading import Reading
from levelfield.spec import Examples, Row, Signal, SplitName

RNG = np.random.default_rng(0)
BASE = RNG.standard_normal(200)


def alike(count: int, noise: float) -> np.ndarray:
    """Signals of 200 steps that all resemble one: (count, 200) float32."""
    return (BASE + noise * RNG.standard_normal((count, 200))).astype(np.float32)


def found_in(train: np.ndarray, val: np.ndarray, test: np.ndarray) -> Duplicates:
    parts: dict[SplitName, np.ndarray] = {"train": train, "val": val, "test": test}
    splits: dict[SplitName, Examples] = {
        s: Examples.of_equal_length(x[..., None], np.zeros(len(x), np.int64)) for s, x in parts.items()
    }
    return search(Signal(1, (0.0,), (1.0,)), splits)


def every_pair(these: np.ndarray, others: np.ndarray) -> int:
    """How many have a near duplicate among the others, by numpy's correlations."""
    return int((np.corrcoef(these, others)[: len(these), len(these) :] >= correlated.SIGNALS).any(1).sum())


@pytest.mark.parametrize("noise", [0.26, 0.5])
def test_none_is_missed_where_all_resemble_each_other(noise: float) -> None:
    train, val, test = alike(400, noise), alike(30, noise), alike(40, noise)
    test[:20] = train[100:120] + 0.01 * RNG.standard_normal((20, 200)).astype(np.float32)
    found = found_in(train, val, test)
    assert found.near["test in train"] == every_pair(test, train) >= 20
    assert found.near["val in train"] == every_pair(val, train) and found.near["test in val"] == every_pair(test, val)
    assert sum(found.exact.values()) == 0 and found.measure == "correlation >= 0.95"


def test_copies_among_many_alike_are_said_by_the_audit() -> None:
    train = alike(300, 0.5)
    found = found_in(train, alike(30, 0.5), train[100:130] + np.float32(0.001))
    near = found.near["test in train"]
    rows = [
        Row(model="data", metric="near_duplicates", split="all", at="in=test in train", value=float(near)),
        Row(model="data", metric="examples", split="test", value=30.0),
        Row(model="guessing", metric="score", value=0.5),
        Row(model="s4", metric="learnable", value=0.0, n=30),
    ]
    said = words.details(Reading.of(rows))
    assert said == ["100 % of the test examples have a near duplicate in the training split."]


def test_a_projection_finds_copies_and_counts_what_it_did_not_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correlated, "MULTIPLICATIONS", 0)
    train, test = alike(400, 0.29), alike(40, 0.29)
    test[:20] = train[100:120] + 0.05 * RNG.standard_normal((20, 200)).astype(np.float32)
    found = found_in(train, alike(30, 0.29), test)
    assert 20 <= found.near["test in train"] <= every_pair(test, train)
    assert "examples only the 32 likeliest of a split were measured" in found.measure


def test_an_exact_duplicate_is_a_near_one_even_where_nothing_correlates() -> None:
    """A constant signal correlates with nothing."""
    flat = np.full((2, 200), 3.0, np.float32)
    found = found_in(np.concatenate([alike(10, 5.0), flat[:1]]), alike(5, 5.0), flat)
    assert found.exact["train+test"] == 1 and found.exact["test"] == 1
    assert found.near["test in train"] == found.near["test in test"] == 2


@pytest.mark.parametrize("steps", [1, 2, 4, 8, 16, 32])
def test_unrelated_signals_have_no_near_duplicates_however_short_and_copies_have_where_it_can_be_told(
    steps: int,
) -> None:
    rng = np.random.default_rng(steps)
    train, val, test = (rng.standard_normal((count, steps)).astype(np.float32) for count in (800, 100, 100))
    assert sum(found_in(train, val, test).near.values()) == 0
    test[:10] = train[:10] + 0.01 * rng.standard_normal((10, steps)).astype(np.float32)
    found = found_in(train, val, test)
    short = steps <= 4
    assert found.near["test in train"] == (0 if short else 10) and found.unjudged == (1_000 if short else 0)
    assert ("1,000 with too few steps to tell it from chance were not compared" in found.measure) == short


@pytest.mark.parametrize(("freedom", "count"), [(4, 10), (6, 30), (10, 60)])
def test_the_threshold_is_reached_by_chance_as_rarely_as_said_and_not_much_more_rarely(
    freedom: int, count: int
) -> None:
    """By simulation, of 5,000 sets of unrelated signals of `freedom + 1` steps."""
    x = np.random.default_rng(0).standard_normal((5_000, count, freedom + 1), np.float32)
    x -= x.mean(2, keepdims=True)
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    highest = (x @ x.transpose(0, 2, 1) - 2 * np.eye(count, dtype=np.float32)).max((1, 2))
    reached = float(np.mean(highest >= correlated.threshold(freedom, count)))
    assert 0.0005 < reached <= correlated.CHANCE + 3 * np.sqrt(correlated.CHANCE / 5_000)
    assert correlated.threshold(freedom, count) > correlated.SIGNALS
