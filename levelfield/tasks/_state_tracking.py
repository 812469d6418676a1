"""Defines what tasks of state tracking share: what is asked at a step follows from all steps so far, and from no later.

    1 0 1 1   ->   1 1 0 1            parity: how many ones so far, even or odd
    0 1 1     ->   . 1 1              with asked=2 only the last two steps have labels

Where answers are the states of a group and every symbol is drawn uniformly from it, they are uniform at every step, and
whoever misses a single earlier symbol can only guess: a window shorter than the sequence so far scores chance.

Such tasks tell what an architecture can compute from what it can remember. A model is trained at one length and asked
at others. There `asked` keeps the questions to the last steps, beyond all that it was trained on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from levelfield.spec import SPLITS, Examples, Progress, SplitName, StepLabels, Task, Tokens, UserError, no_progress
from levelfield.tasks._distinct_rows import Draw, Rows, narrow, narrow_label, splits


@dataclass(frozen=True)
class StateTracking(Task):
    """A sequence of symbols with a label at each of its last steps that asks for one.

    length: steps. asked: how many of the last steps may have a label; None is all of them. train, val, test: sequences.
    """

    length: int = 32
    asked: int | None = None
    train: int = 50_000
    val: int = 1_000
    test: int = 2_000
    seed: int = 0

    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    causal: ClassVar[bool] = True
    split_rule: ClassVar[str] = "drawn independently, each split from its own seed; no sequence is in two splits"

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = type(self).__name__
        if self.length < 2:
            raise UserError(f"{kind} needs a length of at least 2 steps, not {self.length}.")
        if self.asked is not None and not 1 <= self.asked <= self.length:
            raise UserError(f"{kind} with length={self.length} asks at 1 to {self.length} steps, not {self.asked}.")
        if min(self.train, self.val, self.test) < 1:
            raise UserError(f"{kind} needs at least one sequence in each of train, val and test.")

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def unasked(self) -> int:
        """The number of first steps that have no label."""
        return 0 if self.asked is None else self.length - self.asked

    @property
    def settings(self) -> tuple[object, ...]:
        """What the distribution of sequences depends on, besides the length."""
        return ()

    def at_length(self, length: int, examples: int | None = None) -> Self:
        """Returns the task at another length, where as many of the last steps are asked as now, or all that there
        are."""
        counts = {} if examples is None else dict.fromkeys(SPLITS, examples)
        asked = None if self.asked is None else min(self.asked, length)
        return replace(self, length=length, asked=asked, **counts)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        """Draws the three splits. Raises UserError where they cannot all differ."""
        counts: dict[SplitName, int] = {split: getattr(self, split) for split in SPLITS}
        settings = (self.length, *self.settings, *(() if self.asked is None else (self.asked,)))
        made = splits(self.name, self.seed, settings, counts=counts, draw=self.draws, progress=progress)
        return {
            split: Examples.of_equal_length(x, y, self.slices(x, y), stepwise=True) for split, (x, y) in made.items()
        }

    @property
    def draws(self) -> Mapping[SplitName, Draw]:
        """What draws the sequences of each split; the same for all, where a subclass does not say otherwise."""
        return dict.fromkeys(SPLITS, self._draw)

    def _draw(self, rng: np.random.Generator, count: int) -> Rows:
        """Draws x and y, (count, T); of sequences where nothing is asked there are none."""
        x, y = self.sequences(rng, count)
        y[:, : self.unasked] = -1
        something = (y >= 0).any(1)
        return x[something], y[something]

    @abstractmethod
    def sequences(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws x, (count, T), and the label of every step, (count, T), -1 where it has none."""

    def slices(self, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the columns to slice scores by, (N,) each. x, y: (N, T)."""
        return {}

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Works the labels out anew by `answers`: (N T,), -1 at steps that are not asked."""
        y = self.answers(examples.x.reshape(-1, self.length).astype(np.int64)).astype(examples.y.dtype)
        y[:, : self.unasked] = -1
        return y.reshape(-1)

    @abstractmethod
    def answers(self, x: np.ndarray) -> np.ndarray:
        """Works out the label of every step of x, (N, T) int64, by other code than `sequences`: (N, T), -1 for none."""


@dataclass(frozen=True)
class GroupWords(StateTracking):
    """The running product of elements of a group, each drawn uniformly from the symbols; all elements are answers.

    All are symbols, too, where a subclass does not say otherwise.
    """

    @property
    @abstractmethod
    def table(self) -> np.ndarray:
        """The state after an element: (states, elements) int64, in the same order; the first is the neutral one."""

    @property
    def alphabet(self) -> np.ndarray:
        """The elements that are symbols: (symbols,) int64."""
        return np.arange(self.order)

    @property
    def order(self) -> int:
        """The number of elements."""
        return len(self.table)

    @property
    def input(self) -> Tokens:
        return Tokens(len(self.alphabet))

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.order)

    @property
    def chance(self) -> float:
        return 1 / self.order

    def sequences(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        after = self.table[:, self.alphabet]
        x = rng.integers(0, after.shape[1], (count, self.length), dtype=narrow(after.shape[1] - 1))
        y = np.empty(x.shape, narrow_label(self.order))
        state = np.zeros(count, np.int64)
        for step in range(self.length):
            state = after[state, x[:, step]]
            y[:, step] = state
        return x, y

    def bounded(self, steps: int) -> float:
        """Returns the best expected score of a rule that sees an asked step and those before it, `steps` in all.

        It knows the answer where it sees all steps so far; one that it does not see leaves all answers equally likely.
        Raises UserError where not all elements are symbols, since then they are not.
        """
        if len(self.alphabet) < self.order:
            raise UserError(f"What a window allows on {self.name} is known where all elements are symbols.")
        first = self.unasked + 1
        known = max(0, min(steps, self.length) - first + 1)
        asked = self.length - self.unasked
        return (known + (asked - known) / self.order) / asked

    @property
    def memorised(self) -> float:
        """The share of test answers that are known from training sequences alone, on average over draws of the data.

        An answer is known where a training sequence begins with the same symbols: then a table has it, whatever the
        group is. Of short sequences of few symbols that may be most of them, though no test sequence is in train.
        """
        symbols = len(self.alphabet)
        rare = self.train / (symbols**self.length - 1)  # of whole numbers, which may be larger than any float
        logarithm = np.log1p(-rare) / rare if rare else -1.0
        begin = float(symbols) ** -np.arange(self.unasked + 1, self.length + 1)  # the share of all sequences, by step
        alike = (begin - begin[-1]) / (1 - begin[-1])  # the share of other sequences that begin so
        return float(np.mean(-np.expm1(self.train * logarithm * alike)))


def latest(x: np.ndarray, first: int, end: int) -> np.ndarray:
    """Returns the latest of the symbols from `first` to `end` - 1 that each step has seen, less `first`: (N, T) -> the
    same shape. Before there is one it is below 0 or no such symbol."""
    found = np.maximum.accumulate(np.where((x >= first) & (x < end), np.arange(x.shape[1]), 0), axis=1)
    return np.take_along_axis(x.astype(np.int64), found, 1) - first


def last_value(test: Examples, length: int, keys: int, values: int) -> float:
    """Returns how often the value that was last seen, of whatever key, is the answer. Values follow keys in number."""
    x, y = test.x.reshape(-1, length), test.y.reshape(-1, length)
    return float(np.mean((latest(x, keys, keys + values) == y)[y >= 0]))
