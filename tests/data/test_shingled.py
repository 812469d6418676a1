"""Near duplicates in short sequences: one changed symbol is found, and what chance makes is not told as found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from levelfield import OwnData
from levelfield.data import card as cards
from levelfield.data import duplicates, shingled
from levelfield.data.minhash import edits_within
from levelfield.spec import Examples, SplitName, Tokens

WIDE = f"Jaccard similarity of shingles >= {shingled.SIMILAR}"


def splits_of(rows: np.ndarray) -> dict[SplitName, Examples]:
    """Of rows, (N, T): half of them train, the last 100 test."""
    half, y = len(rows) // 2, np.zeros(len(rows), int)
    parts: dict[SplitName, slice] = {
        "train": slice(half), "val": slice(half, len(rows) - 100), "test": slice(len(rows) - 100, None)
    }  # fmt: skip
    return {split: Examples.of_equal_length(rows[part], y[part]) for split, part in parts.items()}


@pytest.mark.parametrize(("steps", "symbols"), [(16, 60), (30, 27), (60, 17), (60, 2), (110, 256), (110, 4), (190, 4)])
def test_a_symbol_changed_in_the_middle_of_a_short_sequence_makes_a_near_duplicate(steps: int, symbols: int) -> None:
    rng = np.random.default_rng(steps)
    rows = rng.integers(0, symbols, (400, steps)).astype(np.uint8)
    rows[-50:] = rows[:50]
    rows[-50:, steps // 2] = (rows[:50, steps // 2] + rng.integers(1, symbols, 50)) % symbols
    found = duplicates.search(Tokens(256), splits_of(rows))
    assert 48 <= found.near["test in train"] <= 50 and not found.exact["train+test"]
    assert ("one symbol in" in found.measure) == (steps < 119)


def walk(rng: np.random.Generator, count: int, steps: int) -> np.ndarray:
    """A quantised signal: levels of a random walk."""
    return np.clip((2 * np.cumsum(rng.normal(0, 0.3, (count, steps)), 1)).round() + 8, 0, 15)


def held(rng: np.random.Generator, count: int, steps: int) -> np.ndarray:
    """Four symbols that stay for five steps in the mean."""
    change = rng.random((count, steps)) < 0.2
    change[:, 0] = True
    last = np.maximum.accumulate(np.where(change, np.arange(steps), 0), axis=1)
    return np.take_along_axis(rng.integers(0, 4, (count, steps)), last, 1)


def template(rng: np.random.Generator, count: int, steps: int) -> np.ndarray:
    """One of six sequences of bits, a tenth of them changed."""
    bits = rng.integers(0, 2, (6, steps))[rng.integers(0, 6, count)]
    return np.where(rng.random((count, steps)) < 0.1, 1 - bits, bits)


Draw = Callable[[np.random.Generator, int, int], np.ndarray]
NULLS: dict[str, Draw] = {
    **{f"{n} symbols": lambda rng, count, steps, n=n: rng.integers(0, n, (count, steps)) for n in (2, 4, 16, 256)},
    "filler": lambda rng, count, steps: (rng.random((count, steps)) < 0.05) * rng.integers(1, 5, (count, steps)),
    "walk": walk,
    "held": held,
    "template": template,
}


@pytest.mark.parametrize("steps", [16, 30, 60, 150])
@pytest.mark.parametrize("kind", NULLS)
def test_what_chance_makes_near_duplicates_is_not_told_as_found(kind: str, steps: int) -> None:
    """In three data sets of each kind and length."""
    told = []
    for seed in range(3):
        rows = NULLS[kind](np.random.default_rng(seed), 300, steps).astype(np.uint8)
        told.append(duplicates.search(Tokens(256), splits_of(rows)).measure)
    assert told == [WIDE] * 3


def test_chance_is_measured_only_as_far_as_it_takes_to_say_no(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = held(np.random.default_rng(0), 600, 16).astype(np.uint8)
    drawn = list[int]()
    crossed = shingled._crossed
    monkeypatch.setattr(shingled, "_crossed", lambda *given: drawn.append(1) or crossed(*given))
    duplicates.search(Tokens(4), splits_of(rows))
    assert len(drawn) == 1


def plain_edits(a: np.ndarray, b: np.ndarray) -> int:
    """Levenshtein's distance by the whole table."""
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    table[:, 0], table[0] = range(len(a) + 1), range(len(b) + 1)
    for i, j in np.ndindex(len(a), len(b)):
        table[i + 1, j + 1] = min(table[i, j] + int(a[i] != b[j]), table[i, j + 1] + 1, table[i + 1, j] + 1)
    return int(table[-1, -1])


def test_edits_are_those_of_the_whole_table() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        a = rng.integers(0, 3, rng.integers(0, 14))
        b = np.delete(a, rng.integers(0, len(a), rng.integers(0, 4))) if len(a) and rng.random() < 0.7 else a[::-1]
        distance = plain_edits(a, b)
        assert [edits_within(a, b, most) for most in range(6)] == [distance <= most for most in range(6)]


def test_capitals_and_blanks_hide_no_copy_of_a_text(tmp_path: Path) -> None:
    rng, letters = np.random.default_rng(0), np.array(list("abcdefgh ij"))
    texts = ["".join(rng.choice(letters, 40)) for _ in range(120)]
    rows = [("train", text) for text in texts[:60]] + [("val", text) for text in texts[60:80]]
    rows += [("test", f" {text.upper()}".replace(" ", "  ")) for text in texts[:15]] + [("test", t) for t in texts[80:]]
    lines = "".join(f"{split},{text},{n % 2}\n" for n, (split, text) in enumerate(rows))
    (tmp_path / "a.csv").write_text(f"split,text,label\n{lines}")
    task = OwnData(str(tmp_path / "a.csv"), text="text", label="label", split="split")
    found = duplicates.of_task(task, task.build(None))
    assert found.near["test in train"] == 15 and not found.exact["train+test"]
    assert "capitals" in cards.make(task, task.build(None)).found.measure


def test_the_search_says_how_far_it_is_with_every_part_of_it() -> None:
    """Of short texts with copies, of which it also draws what chance makes."""
    rng, told = np.random.default_rng(0), list[tuple[str, int, int]]()
    rows = rng.integers(97, 122, (200, 60))
    rows[150:] = rows[:50]
    rows[150:, 30] = 65
    _, measure = shingled.near_pairs(
        np.zeros((200, 3), bool), {**splits_of(rows)}, lambda what, done, total: told.append((what, done, total))
    )
    assert "one symbol in" in measure
    kinds = list(dict.fromkeys(what for what, _, _ in told))
    assert kinds == ["signatures", shingled.PAIRS, "near duplicates", "pairs that chance makes"]
    for kind in kinds:
        last = [(done, total) for what, done, total in told if what == kind][-1]
        assert last[0] == last[1] > 0, kind
