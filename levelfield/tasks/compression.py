"""Compression: random symbols and a mark, from whose state alone all symbols are to be read.

    c a b b a !      ->      c a b b a .         the state at ! is decoded at every step; it is not asked itself

A causal model has to gather the whole sequence in the state of the mark, its last step: the head sees that state and
the number of a step, and answers with the symbol there. This is the fifth task of MAD (Poli et al. 2024), which tests
whether layers join what is spread over many tokens. It is not copying, where a model may look back at each answer.

The decoder is `levelfield.model.Decoder`, for outputs that are `StepLabels(pooled=True)`. Models with mean pooling have
a state of the whole sequence just as well. Two artefacts of the paper are left out: its authors' code also asks for the
mark, which is always the same, and its head chooses among all symbols, the mark included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from levelfield.spec import SPLITS, Examples, Progress, SplitName, StepLabels, Task, Tokens, UserError, no_progress
from levelfield.tasks._distinct_rows import Rows, narrow, narrow_label, splits


@dataclass(frozen=True)
class Compression(Task):
    """Symbols drawn uniformly, and a mark behind them.

    length: steps, the mark included. symbols: how many there are beside it. train, val, test: sequences.
    """

    length: int = 32
    symbols: int = 15
    train: int = 12_800
    val: int = 1_280
    test: int = 1_280
    seed: int = 0

    name: ClassVar[str] = "compression"
    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    causal: ClassVar[bool] = True
    pooling: ClassVar[Literal["mean", "last"]] = "last"
    source: ClassVar[str] = "generated; after MAD, Poli et al. 2024 (arXiv:2403.17844), Apache-2.0"
    split_rule: ClassVar[str] = "drawn independently, each split from its own seed; no sequence is in two splits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.length >= 2 and 2 <= self.symbols <= 65_000):
            raise UserError(
                f"Compression needs at least 2 steps and 2 to 65,000 symbols, not {self.length:,} and {self.symbols:,}."
            )
        if min(self.train, self.val, self.test) < 1:
            raise UserError("Compression needs at least one sequence in each of train, val and test.")

    @property
    def input(self) -> Tokens:
        """Symbols, of which the last is the mark."""
        return Tokens(self.symbols + 1)

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.symbols, pooled=True)

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 1 / self.symbols

    def at_length(self, length: int, examples: int | None = None) -> Compression:
        """Returns the task at another length; a longer sequence has more to be kept in as large a state."""
        counts = {} if examples is None else dict.fromkeys(SPLITS, examples)
        return replace(self, length=length, **counts)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        """Draws the three splits. Raises UserError where they cannot all differ."""
        counts: dict[SplitName, int] = {split: getattr(self, split) for split in SPLITS}
        settings = (self.length, self.symbols)
        made = splits(self.name, self.seed, settings, counts=counts, draw=self._draw, progress=progress)
        return {split: Examples.of_equal_length(x, y, stepwise=True) for split, (x, y) in made.items()}

    def _draw(self, rng: np.random.Generator, count: int) -> Rows:
        """Draws x and y, (count, T)."""
        drawn = rng.integers(0, self.symbols, (count, self.length - 1))
        x = np.full((count, self.length), self.symbols, narrow(self.symbols))
        y = np.full(x.shape, -1, narrow_label(self.symbols))
        x[:, :-1] = y[:, :-1] = drawn
        return x, y

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Reads the labels off the sequences: every step's symbol, and none where the mark is."""
        x = examples.x.astype(np.int64)  # its own type has no -1
        return np.where(x < self.symbols, x, -1).astype(examples.y.dtype)

    def bounded(self, steps: int) -> float:
        """Returns the best expected score of a model whose last state sees the mark and the steps before it, `steps` in
        all: it knows those, and guesses the others."""
        known = min(steps, self.length) - 1
        return (known + (self.length - 1 - known) / self.symbols) / (self.length - 1)


TASKS: dict[str, Task] = {"compression": Compression()}
EXAMPLES: tuple[Task, ...] = (
    Compression(9, 4, train=60, val=20, test=20),
    Compression(6, 300, train=40, val=10, test=10, seed=1),
)
