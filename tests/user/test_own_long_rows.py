"""Long rows, long names and many symbols: memory goes by what is kept, and what is not kept apart is counted aright."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from levelfield import OwnData
from levelfield.spec import Tokens
from levelfield.user import own_columns
from levelfield.user.own_columns import symbols
from levelfield.user.own_rows import _numbered_groups

STEPS, LONGEST = 20_000, 50


def test_rows_beyond_the_longest_are_read_in_part_and_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 30, int(steps)).tolist() for steps in [*rng.integers(1, 200, 60), LONGEST, LONGEST + 1]]
    cells = [row if n % 2 else " ".join(map(str, row)) for n, row in enumerate(rows)]
    at = tmp_path / "rows.jsonl"
    at.write_text("".join(json.dumps({"x": cell, "y": n % 2}) + "\n" for n, cell in enumerate(cells)))
    task = OwnData(str(at), symbols="x", label="y", longest=LONGEST, test_share=0.3, val_share=0.3)
    assert task.cut == sum(len(row) > LONGEST for row in rows) > 0 and task.max_length == LONGEST
    with pytest.warns(UserWarning, match=f"--longest {max(map(len, rows))} keeps them whole"):
        splits = task.build(None)
    lengths = np.concatenate([split.lengths for split in splits.values()])
    assert sorted(lengths.tolist()) == sorted(min(len(row), LONGEST) for row in rows)


def test_memory_goes_by_what_is_kept_and_not_by_what_a_row_has() -> None:
    """A row of STEPS symbols is some 1.5 MB as a list of texts, and its first LONGEST are some kB."""
    cells = [" ".join(str(n % 97 + 1_000 * row) for n in range(STEPS)) for row in range(40)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        rows, steps, _ = symbols(cells, LONGEST)
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert steps == [STEPS] * 40 and rows == [cell.split()[:LONGEST] for cell in cells]
    assert most < 10 * 80 * STEPS, "of what the texts of ten rows take"


def test_memory_for_groups_does_not_go_by_the_longest_name() -> None:
    names, split = [*map(str, range(3_000)), "", ""], np.repeat(["train", "val", "test"], [3_000, 1, 1])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = _numbered_groups(["x" * 30_000, *names[1:]], split)
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert most < 5_000_000, "an array of these names takes 360 MB"
    numbers = np.concatenate([found["train"], found["val"], found["test"]])
    assert sorted(numbers.tolist()) == list(range(3_002)), "a row without a group has its own"
    again = _numbered_groups(["b", "a", "b"], np.array(["train", "train", "test"]))
    assert again["train"][0] == again["test"][0] != again["train"][1]


def test_symbols_beyond_those_that_are_numbered_are_known_where_training_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_columns, "MOST_SYMBOLS", 5)
    lines = [f"w{n % 20} w{n % 7},{n % 2},{split}" for split in ("train", "val", "test") for n in range(40)]
    strange = ["v1 w2,0,test", "w3 v2,1,test"]
    for name, rows, unknown in (("same.csv", lines, 0), ("more.csv", [*lines, *strange], 2)):
        (tmp_path / name).write_text("\n".join(["x,y,s", *rows]))
        task = OwnData(str(tmp_path / name), symbols="x", label="y", split="s")
        assert task.input == Tokens(6) and task.unknown == unknown
