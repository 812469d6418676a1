"""A task that logs each build and can be slow, in a module that a child process imports in a moment (no torch)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from levelfield.spec import Examples, Label, Progress, SplitName, Task, Tokens, no_progress

SLOW = "TOY_DATA_SECONDS"  # environment: how long a build takes


@dataclass(frozen=True)
class Parity(Task):
    """The parity of the sum of a ragged row of digits."""

    name: ClassVar[str] = "parity"
    version: ClassVar[int] = 1
    source: ClassVar[str] = "made here"
    split_rule: ClassVar[str] = "drawn one after the other"
    log: str = os.devnull
    train: int = 20
    held_out: int = 5
    seed: int = 0

    @property
    def input(self) -> Tokens:
        return Tokens(10)

    @property
    def output(self) -> Label:
        return Label(2)

    @property
    def max_length(self) -> int:
        return 30

    @property
    def chance(self) -> float:
        return 0.5

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        with open(self.log, "a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(float(os.environ.get(SLOW, "0")))
        rng = np.random.default_rng(self.seed)
        return {
            "train": self._draw(rng, self.train),
            "val": self._draw(rng, self.held_out),
            "test": self._draw(rng, self.held_out),
        }

    def _draw(self, rng: np.random.Generator, count: int) -> Examples:
        rows = [rng.integers(0, 10, rng.integers(20, 31), dtype=np.uint8) for _ in range(count)]
        y = np.array([int(r.sum()) % 2 for r in rows])
        return Examples.of_sequences(rows, y, {"length": np.array([len(r) for r in rows])})
