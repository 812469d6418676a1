"""Dyck words: which bracket is to be closed next?

    (  [  (  )  ]  (  )        kinds 2, depth 3: after the first ")" the innermost open bracket is "[", and so on
             [  (     (

Brackets of several kinds are nested up to some depth, so that a stack of that size answers, or as many states as it has
contents. Hewitt et al. (2020) build recurrent networks that do; Yao et al. (2021) show that attention can, too. After
an opening bracket the answer is that bracket, and where nothing is open there is none. Only steps that close a bracket
inside another one are asked, and there every kind is equally likely.

The walk is that of Hewitt et al. (github.com/john-hewitt/dyckkm-learning), but for words that end: there a word may end
wherever nothing is open. Their models predict the next symbol at every step, and are scored by whether the right
closing bracket gets more than 80 % of what all closing ones get.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from levelfield.spec import Examples, StepLabels, Task, Tokens, UserError
from levelfield.tasks._distinct_rows import narrow, narrow_label
from levelfield.tasks._state_tracking import StateTracking


@dataclass(frozen=True)
class Dyck(StateTracking):
    """A random walk of brackets, with a label behind every one that closes inside another.

    kinds: of brackets, 2 to 100. depth: at most so many are open, 2 to 100. Where both can be, opening is as likely as
    closing. The last step may leave brackets open. length: steps. asked: how many of the last steps may have a label;
    None is all. train, val, test: sequences.
    """

    length: int = 64
    kinds: int = 2
    depth: int = 4

    name: ClassVar[str] = "dyck"
    source: ClassVar[str] = "generated; after Hewitt et al. 2020 (arXiv:2010.07515)"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (2 <= self.kinds <= 100 and 2 <= self.depth <= 100):
            raise UserError(f"Dyck takes 2 to 100 kinds and a depth of 2 to 100, not {self.kinds} and {self.depth}.")
        if self.length < 3:
            raise UserError("Dyck needs a length of at least 3 steps: two open and one closes.")

    @property
    def settings(self) -> tuple[object, ...]:
        return (self.kinds, self.depth)

    @property
    def input(self) -> Tokens:
        """Symbols: the opening brackets by kind, then the closing ones."""
        return Tokens(2 * self.kinds)

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.kinds)

    @property
    def chance(self) -> float:
        return 1 / self.kinds

    def sequences(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Keeps a stack for each sequence."""
        shape, rows = (count, self.length), np.arange(count)
        x, y = np.empty(shape, narrow(2 * self.kinds - 1)), np.full(shape, -1, narrow_label(self.kinds))
        stack, level = np.zeros((count, self.depth + 1), np.int64), np.zeros(count, np.int64)
        opening, drawn = rng.random(shape) < 0.5, rng.integers(0, self.kinds, shape)
        for step in range(self.length):
            opens = (level == 0) | (opening[:, step] & (level < self.depth))
            top = stack[rows, level]  # row 0 of a stack is never read: nothing closes at level 0
            x[:, step] = np.where(opens, drawn[:, step], self.kinds + top)
            level = np.where(opens, level + 1, level - 1)
            stack[rows[opens], level[opens]] = drawn[opens, step]
            inside = ~opens & (level > 0)
            y[inside, step] = stack[rows[inside], level[inside]]
        return x, y

    def slices(self, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the slice `depth`: the most brackets that are open at once."""
        return {"depth": np.cumsum(np.where(x < self.kinds, 1, -1), axis=1).max(1)}

    def answers(self, x: np.ndarray) -> np.ndarray:
        """Finds the latest opening bracket that led to the level where a step ends."""
        opens = x < self.kinds
        level = np.cumsum(np.where(opens, 1, -1), axis=1)
        y = np.full(x.shape, -1)
        for own in range(1, self.depth + 1):
            latest = np.maximum.accumulate(np.where(opens & (level == own), np.arange(x.shape[1]), 0), axis=1)
            y = np.where(~opens & (level == own), np.take_along_axis(x, latest, axis=1), y)
        return y

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and answering with the kind that was opened last but one, closed or not.

        Where a step is asked, the bracket that was opened last is always closed, and the one before it may be open.
        """
        x, y = test.x.reshape(-1, self.length), test.y.reshape(-1, self.length)
        opened = np.maximum.accumulate(np.where(x < self.kinds, np.arange(self.length), 0), axis=1)
        before = np.take_along_axis(opened, np.maximum(opened - 1, 0), axis=1)
        last = np.take_along_axis(x, before, axis=1)
        return {**super().baselines(train, test), "last_but_one_opened": float(np.mean((last == y)[y >= 0]))}


TASKS: dict[str, Task] = {"dyck": Dyck()}
EXAMPLES: tuple[Task, ...] = (
    Dyck(16, train=60, val=20, test=20),
    Dyck(13, asked=5, train=40, val=10, test=10, seed=4, kinds=70, depth=3),
)
