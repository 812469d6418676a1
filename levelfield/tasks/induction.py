"""Induction heads: what followed the special symbol when it was last seen?

    a f c * d b a c e f b *   ->   d

Symbols are random; the special one occurs once among them and once at the end. To answer, a model must find the earlier
one by its content and copy the symbol after it, as the induction heads do that Olsson et al. (2022) find behind
in-context learning. The task is that of Fu et al. (2023), with 18 symbols and length 30, and of Gu & Dao (2023), who
train at length 256 with 16 symbols in all and test at up to a million steps. In the public code of Fu et al. training
also predicts all other symbols; here the answer alone counts. `Induction.bounded` is the exact score of the best rule
that sees a window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from levelfield.spec import Examples, Label, Progress, SplitName, Task, Tokens, UserError, no_progress
from levelfield.tasks._distinct_rows import Rows, narrow, splits


@dataclass(frozen=True)
class Induction(Task):
    """Induction heads.

    length: steps, including the special symbol at the end. symbols: how many there are beside the special one. gap:
    steps from the first special symbol to the last one, 3 to length - 1; None draws it uniformly, as the public
    generator of Fu et al. does (github.com/HazyResearch/safari). train, val, test: sequences.
    """

    length: int = 256
    symbols: int = 15
    gap: int | None = None
    train: int = 100_000
    val: int = 1_000
    test: int = 2_000
    seed: int = 0

    name: ClassVar[str] = "induction"
    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    causal: ClassVar[bool] = True
    pooling: ClassVar[Literal["mean", "last"]] = "last"
    source: ClassVar[str] = "generated; after Fu et al. 2023 (arXiv:2212.14052) and Gu & Dao 2023 (arXiv:2312.00752)"
    split_rule: ClassVar[str] = "drawn independently, each split from its own seed; no sequence is in two splits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 4 or not 2 <= self.symbols < 65_535:
            raise UserError("Induction needs a length of at least 4 steps and 2 to 65,534 symbols.")
        if self.gap is not None and not 3 <= self.gap < self.length:
            raise UserError(
                f"Induction with length={self.length} takes a gap of 3 to {self.length - 1}, not {self.gap}."
            )
        if min(self.train, self.val, self.test) < 1:
            raise UserError("Induction needs at least one sequence in each of train, val and test.")

    @property
    def input(self) -> Tokens:
        """Symbols, of which the special one is the last."""
        return Tokens(self.symbols + 1)

    @property
    def output(self) -> Label:
        return Label(self.symbols)

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 1 / self.symbols

    def at_length(self, length: int, examples: int | None = None) -> Induction:
        """Returns the task at another length. Raises UserError where a fixed gap does not fit."""
        counts = {} if examples is None else {"train": examples, "val": examples, "test": examples}
        return replace(self, length=length, **counts)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        counts: dict[SplitName, int] = {"train": self.train, "val": self.val, "test": self.test}
        settings = (self.length, self.symbols, self.gap)
        made = splits("induction", self.seed, settings, counts=counts, draw=self._draw, progress=progress)
        return {split: Examples.of_equal_length(x, y, {"gap": gap}) for split, (x, y, gap) in made.items()}

    def _draw(self, rng: np.random.Generator, count: int) -> Rows:
        """Draws x (count, length), y (count,) and the slice `gap` (count,), rounded up to a power of two."""
        x = rng.integers(0, self.symbols, (count, self.length), dtype=narrow(self.symbols))
        gap = np.full(count, self.gap) if self.gap is not None else rng.integers(3, self.length, count)
        row, place = np.arange(count), self.length - 1 - gap
        x[row, place] = x[:, -1] = self.symbols
        return x, x[row, place + 1].astype(np.int64), 1 << np.ceil(np.log2(gap)).astype(np.int64)

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Returns what follows the first special symbol: (N,)."""
        special = np.flatnonzero(examples.x == self.symbols)
        inner = special[~np.isin(special + 1, examples.offsets)]
        return examples.x[inner + 1].astype(np.int64)

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and answering the last symbol before the question."""
        last = test.x.reshape(-1, self.length)[:, -2]
        return {**super().baselines(train, test), "last_symbol": float(np.mean(last == test.y))}

    def bounded(self, steps: int) -> float:
        """Returns the best expected score of a rule that sees the last `steps` steps, including that of the question.

        It knows the answer if it sees both special symbols. If not, its best guess is the first symbol that it sees,
        which may follow the special one.
        """
        gaps = np.array([self.gap]) if self.gap is not None else np.arange(3, self.length)
        return float(np.where(gaps <= steps, 1.0, 1 / self.symbols).mean())


TASKS: dict[str, Task] = {"induction": Induction()}
EXAMPLES: tuple[Task, ...] = (
    Induction(24, 6, train=60, val=20, test=20),
    Induction(11, 300, gap=4, train=40, val=10, test=10, seed=5),
)
