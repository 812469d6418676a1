"""Associative recall: pairs of a key and its value, then a key; the label is its value.

    k3 v1  k0 v5  k3 v1  k6 v2  k0 v5  ...  k6      ->  2

Each sequence draws its own map from keys to values and then its pairs with replacement, so the label follows only from
an earlier occurrence of the last key. `pairs` sets how far back that can be, and `bounded` is the exact score of the
best rule that sees a number of pairs. This is the single-query form of the task with which Ba et al. (2016) and Fu et
al. (2023) compare sequence models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from levelfield.spec import (
    SPLITS,
    Examples,
    Label,
    Progress,
    SplitName,
    Task,
    Tokens,
    UserError,
    no_progress,
)
from levelfield.tasks._commonest import commonest_before
from levelfield.tasks._distinct_rows import Rows, splits


@dataclass(frozen=True)
class Recall(Task):
    """Associative recall.

    keys, values: how many symbols of each, at most 128. pairs: key-value pairs before the last key, which is the key of
    one of them; a sequence has 2 * pairs + 1 steps. train, val, test: sequences.
    """

    keys: int = 8
    values: int = 8
    pairs: int = 24
    train: int = 20_000
    val: int = 1_000
    test: int = 2_000
    seed: int = 0

    name: ClassVar[str] = "recall"
    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    pooling: ClassVar[Literal["mean", "last"]] = "last"
    source: ClassVar[str] = "generated; after Ba et al. 2016 (arXiv:1610.06258) and Fu et al. 2023 (arXiv:2212.14052)"
    split_rule: ClassVar[str] = "drawn independently, each split from its own seed; no sequence is in two splits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (1 <= self.keys <= 128 and 2 <= self.values <= 128 and self.pairs >= 1):
            raise UserError("Recall needs 1 to 128 keys, 2 to 128 values and at least one pair.")
        if min(self.train, self.val, self.test) < 1:
            raise UserError("Recall needs at least one sequence in each of train, val and test.")

    @property
    def input(self) -> Tokens:
        """Symbols: first the keys, then the values."""
        return Tokens(self.keys + self.values)

    @property
    def output(self) -> Label:
        return Label(self.values)

    @property
    def max_length(self) -> int:
        return 2 * self.pairs + 1

    @property
    def chance(self) -> float:
        return 1 / self.values

    def at_length(self, length: int, examples: int | None = None) -> Recall:
        """Returns the task with as many pairs as `length` steps hold. Raises UserError where they hold none."""
        if length < 3:
            raise UserError(f"Recall needs at least 3 steps, not {length}: a pair and a key.")
        counts = {} if examples is None else {"train": examples, "val": examples, "test": examples}
        return replace(self, pairs=(length - 1) // 2, **counts)

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Returns the value after the first occurrence of the last key; it is the same after all of them."""
        x = examples.x.reshape(len(examples), -1)
        first = (x[:, :-1] == x[:, -1:]).argmax(1)
        return np.take_along_axis(x, first[:, None] + 1, 1)[:, 0].astype(np.int64) - self.keys

    def bounded(self, pairs: int) -> float:
        """Returns the best expected score of a rule that sees only the last key and the `pairs` pairs before it.

        The last key is that of a pair drawn uniformly. The rule knows the answer if it sees this pair, or another one
        of the same key.
        """
        reach = min(1.0, pairs / self.pairs)
        known = reach + (1 - reach) * (1 - (1 - 1 / self.keys) ** pairs)
        return known + (1 - known) / self.values

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and answering the last value, or the commonest, whatever its key."""
        x = test.x.reshape(len(test), -1)
        answers = {
            "last_value": x[:, -2] - self.keys,
            "commonest_value": commonest_before(x, self.keys, self.values)[:, -1],
        }
        return super().baselines(train, test) | {rule: float(np.mean(said == test.y)) for rule, said in answers.items()}

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        counts: dict[SplitName, int] = {"train": self.train, "val": self.val, "test": self.test}
        made = splits("recall", self.seed, (self.pairs,), counts=counts, draw=self._draw, progress=progress)
        return {split: self._examples(*made[split]) for split in SPLITS}

    def _draw(self, rng: np.random.Generator, count: int) -> Rows:
        """Draws x, (count, 2 * pairs + 1)."""
        return (self._sequences(rng, count),)

    def _sequences(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws sequences: (count, 2 * pairs + 1) uint8."""
        maps = rng.integers(0, self.values, (count, self.keys))
        keys = rng.integers(0, self.keys, (count, self.pairs))
        asked = keys[np.arange(count), rng.integers(0, self.pairs, count)]
        x = np.empty((count, self.max_length), np.uint8)
        x[:, 0:-1:2] = keys
        x[:, 1:-1:2] = self.keys + np.take_along_axis(maps, keys, 1)
        x[:, -1] = asked
        return x

    def _examples(self, x: np.ndarray) -> Examples:
        """Computes labels and the slice `back`, how many pairs ago the last key occurred. x: (N, 2 * pairs + 1)."""
        seen = x[:, 0:-1:2] == x[:, -1:]
        back = 1 + seen[:, ::-1].argmax(1)
        y = x[np.arange(len(x)), 2 * (self.pairs - back) + 1].astype(np.int64) - self.keys
        edges = np.array([1, 2, 4, 8, 16, 32, 64])
        nearest = edges[np.searchsorted(edges, np.minimum(back, 64))]
        return Examples.of_equal_length(x, y, {"back": nearest.astype(np.int64)})


TASKS: dict[str, Task] = {"recall": Recall()}
EXAMPLES: tuple[Task, ...] = (
    Recall(pairs=6, train=60, val=20, test=20),
    Recall(keys=3, values=4, pairs=9, train=40, val=10, test=10, seed=2),
)
