"""What verdicts are made of: test scores over seeds, and the floor that guessing reaches.

scores(rows)[Key("listops", "s4", "scratch")]           # Seeds(values=(58.1, 59.6)), in percent
scores(rows, axis="kernel")[Key("listops", "conv", "enriched", "5")]
floors(rows)["listops"]                                 # 17.1: the higher of chance and label prior
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from levelfield.spec import Row

FLOOR = ("chance", "label_prior")


class Key(NamedTuple):
    """A cell; `place` is where on the axis, "" for the whole test split."""

    task: str
    model: str
    protocol: str
    place: str = ""


@dataclass(frozen=True)
class Seeds:
    """Percent, one per seed that ended with a finite score, ascending."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    def __str__(self) -> str:
        """41.3 % (40.9 to 44.0, n=3)"""
        spread = f"{self.values[0]:.1f} to {self.values[-1]:.1f}, " if len(self.values) > 1 else ""
        return f"{self.median:.1f} % ({spread}n={len(self.values)})"

    def above(self, other: Seeds) -> bool:
        """Every seed above every seed of the other, with at least two of each."""
        return min(len(self.values), len(other.values)) > 1 and self.values[0] > other.values[-1]


def scores(rows: Sequence[Row], axis: str = "") -> dict[Key, Seeds]:
    """Measured test accuracies, of the whole split or at "axis=..."; a cell without a finite score is absent."""
    found: dict[Key, list[float]] = {}
    for row in rows:
        value, (at, _, place) = row.get("value", math.nan), row.get("at", "").partition("=")
        if _test(row) and at == axis and row.get("protocol") != "none" and "run" in row and math.isfinite(value):
            key = Key(row.get("task", ""), row.get("model", ""), row.get("protocol", ""), place)
            found.setdefault(key, []).append(100 * value)
    return {key: Seeds(tuple(sorted(values))) for key, values in found.items()}


def floors(rows: Sequence[Row]) -> dict[str, float]:
    """Task -> percent that needs no sequence model: the higher of chance and the label prior."""
    found: dict[str, float] = {}
    for row in rows:
        if _test(row) and not row.get("at") and row.get("protocol") == "none" and row.get("model") in FLOOR:
            task = row.get("task", "")
            found[task] = max(found.get(task, 0.0), 100 * row.get("value", 0.0))
    return found


def _test(row: Row) -> bool:
    return row.get("metric") == "accuracy" and row.get("split") == "test"
