"""Long rows of symbols are cut while they are read: what is kept is what the cut leaves, and so is the memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from levelfield import OwnData
from levelfield.user.own_columns import symbols

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
