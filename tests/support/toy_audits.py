"""Data sets whose verdict is known beforehand, as one frozen value: what decides the label is written into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from levelfield.spec import (
    DRAW_ORDER,
    Examples,
    Input,
    Label,
    Output,
    Progress,
    SplitName,
    Task,
    Tokens,
    Values,
    no_progress,
)

SYMBOLS = 6


@dataclass(frozen=True)
class Known(Task):
    """Random symbols, labelled by what `rule` says.

    rule: "first" the symbol at step 0; "length" whether there are more than 20 steps; "window" whether the symbols 1 2
    3 stand in a row; "none" a coin; "sum" a number, the share of symbol 1.
    """

    rule: str = "first"
    train: int = 800
    held_out: int = 300

    name: ClassVar[str] = "known"
    version: ClassVar[int] = 1
    source: ClassVar[str] = "made here"
    split_rule: ClassVar[str] = "drawn one after the other"
    max_length: ClassVar[int] = 32  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def input(self) -> Input:
        return Tokens(SYMBOLS)

    @property
    def output(self) -> Output:
        return Values(1) if self.rule == "sum" else Label(2)

    @property
    def chance(self) -> float:
        return 0.0 if self.rule == "sum" else 0.5

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        rng = np.random.default_rng(0)
        counts = {"train": self.train, "val": self.held_out, "test": self.held_out}
        return {split: self._draw(rng, counts[split]) for split in DRAW_ORDER}

    def _draw(self, rng: np.random.Generator, count: int) -> Examples:
        rows = [rng.integers(0, SYMBOLS, rng.integers(9, 33) if self.rule == "length" else 24) for _ in range(count)]
        if self.rule == "window":
            rows = [_planted(rng, row) for row in rows]
        y = np.array([self._label(rng, row) for row in rows])
        return Examples.of_sequences([row.astype(np.uint8) for row in rows], y)

    def _label(self, rng: np.random.Generator, row: np.ndarray) -> float | int:
        match self.rule:
            case "first":
                return int(row[0] < SYMBOLS // 2)
            case "length":
                return int(len(row) > 20)
            case "window":
                return int(_there(row))
            case "sum":
                return float(np.mean(row == 1))
        return int(rng.integers(2))


def _there(row: np.ndarray) -> bool:
    return bool(((row[:-2] == 1) & (row[1:-1] == 2) & (row[2:] == 3)).any())


def _planted(rng: np.random.Generator, row: np.ndarray) -> np.ndarray:
    """The same symbols in both classes: 1 2 3 in a row in half of the sequences, 3 2 1 in the others."""
    while _there(row):
        rng.shuffle(row)
    at = int(rng.integers(len(row) - 2))
    row[at : at + 3] = (1, 2, 3) if rng.integers(2) else (3, 2, 1)
    return row
