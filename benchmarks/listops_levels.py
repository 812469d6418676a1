"""Scores readers of ListOps' outermost levels at the benchmark's size.

    python benchmarks/listops_levels.py             # writes results/listops-levels.csv in 5 minutes

A reader of one level sees the operator at the root and its arguments, each a digit or an operator, and nothing further
inside; it knows how often each operator has which value, and gives the likeliest answer. So a model that scores more
has read further. `docs/scripts/listops_levels.py` draws the rows beside the scores that papers print.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from levelfield.tasks._listops.levels import likeliest
from levelfield.tasks.listops import ListOps

TASK = ListOps(train=20_000, val=1, test=20_000)  # the benchmark's law
FIELDS = ("levels", "root", "value", "n")
CSV = Path("results/listops-levels.csv")


def measured() -> list[dict[str, Any]]:
    """Returns rows of every number of levels, for all expressions (root "") and by the operator at the root."""
    splits = TASK.build(None)
    train, test = splits["train"], splits["test"]
    rows = []
    for levels in range(TASK.max_depth):
        right = likeliest(train, test, levels) == test.y
        for root in ("", *np.unique(test.slices["root"])):
            here = right[test.slices["root"] == root] if root else right
            rows.append({"levels": levels, "root": root, "value": float(here.mean()), "n": len(here)})
        print(f"{levels} levels: {100 * right.mean():.1f} %", flush=True)
    return rows


def main() -> None:
    """Writes the rows."""
    rows = measured()
    with CSV.open("w", newline="") as file:
        writer = csv.DictWriter[str](file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
