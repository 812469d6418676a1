"""Sets of duplicates, exact and near, against plain comparisons of all pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from levelfield.data import copies, correlated
from levelfield.spec import Examples, Signal, Tokens

Near = Callable[[np.ndarray, np.ndarray], bool]


def plain(rows: Sequence[np.ndarray], near: Near) -> list[int]:
    """The first of the set of each row, by comparing every pair and walking from one to the next."""
    alike = [[j for j in range(len(rows)) if j == i or near(rows[i], rows[j])] for i in range(len(rows))]
    first = [-1] * len(rows)
    for start in range(len(rows)):
        left = [start] if first[start] < 0 else []
        while left:
            at = left.pop()
            if first[at] < 0:
                first[at] = start
                left += alike[at]
    return first


def firsts(sets: np.ndarray) -> list[int]:
    return [int(np.flatnonzero(sets == number)[0]) for number in sets]


def of_signals(rows: np.ndarray) -> np.ndarray:
    return copies.sets(Signal(1, (0.0,), (1.0,)), Examples.of_equal_length(rows[..., None], np.zeros(len(rows))))


def correlated_by(least: float) -> Near:
    return lambda one, other: float(np.corrcoef(one, other)[0, 1]) >= least


def drifting(rng: np.random.Generator, starts: int, steps: int) -> np.ndarray:
    """Signals of which each resembles the one before, but the last of a row not the first, mixed: (N, 200)."""
    rows = [rng.standard_normal((starts, 200))]
    for _ in range(steps - 1):
        rows.append(0.97 * rows[-1] + 0.243 * rng.standard_normal((starts, 200)))
    return rng.permutation(np.concatenate(rows)).astype(np.float32)


@pytest.mark.parametrize("multiplications", [1e11, 1.0])
def test_signals_are_in_one_set_by_way_of_others(multiplications: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranked by all their values, and by a projection of which the likeliest are measured."""
    monkeypatch.setattr(correlated, "MULTIPLICATIONS", multiplications)
    rows = drifting(np.random.default_rng(0), 30, 5)
    rows[7] = rows[90]
    found = firsts(of_signals(rows))
    assert found == plain(list(rows), correlated_by(correlated.SIGNALS))
    assert 5 <= np.bincount(found).max() < 40 and len(set(found)) > 20


def test_pictures_are_compared_by_their_means() -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (60, 256))
    rows[40:] = (rows[:20] + rng.integers(-30, 31, (20, 256))).clip(0, 255)
    pictures = rows.astype(np.uint8)

    def means(picture: np.ndarray) -> np.ndarray:
        square = picture.reshape(16, 16).astype(float)
        return np.array([square[i : i + 2, j : j + 2].mean() for i in range(0, 16, 2) for j in range(0, 16, 2)])

    def near(one: np.ndarray, other: np.ndarray) -> bool:
        return float(np.corrcoef(means(one), means(other))[0, 1]) >= correlated.PICTURES

    found = firsts(of_signals(pictures))
    assert found == plain(list(pictures), near) and 5 < 60 - len(set(found)) <= 20


def shingles(text: np.ndarray) -> set[bytes]:
    return {text[at : at + 12].tobytes() for at in range(len(text) - 11)}


def test_texts_share_their_shingles_whatever_capitals_they_have() -> None:
    rng = np.random.default_rng(2)
    texts = [rng.integers(97, 123, 400).astype(np.uint8) for _ in range(60)]
    for at in range(40, 60):
        texts[at] = texts[at - 30].copy()
        texts[at][rng.integers(0, 400, int(rng.integers(0, 6)))] = 33
    small = Examples.of_sequences(texts, np.zeros(60))
    large = [text - 32 * (at % 2 == 0) for at, text in enumerate(texts)]

    def near(one: np.ndarray, other: np.ndarray) -> bool:
        a, b = shingles(one), shingles(other)
        return len(a & b) >= 0.8 * len(a | b)

    found = copies.sets(Tokens(256), Examples.of_sequences(large, np.zeros(60)), folded=small)
    assert firsts(found) == plain(texts, near) and 30 < found.max() + 1 < 60


def test_pairs_that_hang_together_in_any_order_are_one_set() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        pairs = rng.integers(0, 40, (int(rng.integers(0, 40)), 2))
        known = {(a, b) for a, b in pairs.tolist()} | {(b, a) for a, b in pairs.tolist()}
        rows = [np.array([at]) for at in range(40)]
        wanted = plain(rows, lambda one, other, known=known: (int(one[0]), int(other[0])) in known)
        assert copies.joined(np.arange(40), pairs).tolist() == wanted
