"""Tests that what is told of printed scores on ListOps is what the rows say."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from repository import ROOT, script

from levelfield.tasks._listops.levels import likeliest
from levelfield.tasks.listops import ListOps

ROWS = list(csv.DictReader((ROOT / "results" / "listops-levels.csv").read_text().splitlines()))
ONE = next(float(row["value"]) for row in ROWS if (row["levels"], row["root"], row["tokens"]) == ("1", "", ""))


def test_the_first_page_says_what_one_level_has() -> None:
    best, low, high = script("listops_levels").beyond_one()
    readme = " ".join((ROOT / "README.md").read_text().split())
    said = f"scores {100 * ONE:.0f} %. No score that these papers print, up to {best.name}'s {best.value:g} %, is shown"
    assert said in readme
    assert low < 0 < high and best.value == max(each.value for each in script("listops_levels").printed())


@pytest.mark.parametrize(("levels", "root"), [(0, "MIN"), (1, ""), (1, "SM"), (2, "MED")])
def test_rows_are_what_fewer_expressions_give(levels: int, root: str) -> None:
    """Within four standard errors, of 2,000 other expressions of the benchmark's law."""
    splits = ListOps(train=10_000, val=1, test=2_000, seed=1).build(None)
    test = splits["test"]
    here = (test.slices["root"] == root) if root else np.ones(len(test), bool)
    right = (likeliest(splits["train"], test, levels) == test.y)[here]
    kept = next(float(r["value"]) for r in ROWS if (int(r["levels"]), r["root"], r["tokens"]) == (levels, root, ""))
    assert np.mean(right) == pytest.approx(kept, abs=4 * (kept * (1 - kept) / len(right)) ** 0.5)
