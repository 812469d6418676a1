"""Flip-flop: what was written last, however much there is to ignore since then?

    w 1  i 0  i 0  r [1]  w 0  i 1  r [0]        w writes the bit behind it, i ignores it, r asks for it

A flip-flop is the smallest memory: it keeps one bit until it is told another. Liu et al. (2023) find that Transformers
which read it well still fail on rare long gaps. Diagonal recurrences with positive decays can follow it at all lengths
(Sarrof et al. 2024), which cannot follow parity. The bit behind a question is the right one, as in the paper. There,
models are tested at the length of training where 98 or 10 % are ignored; `at_length` keeps that share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from levelfield.spec import Examples, StepLabels, Task, Tokens, UserError
from levelfield.tasks._distinct_rows import narrow_label
from levelfield.tasks._state_tracking import StateTracking

WRITE, READ, IGNORE = 2, 3, 4  # symbols; 0 and 1 are the bits


@dataclass(frozen=True)
class FlipFlop(StateTracking):
    """Instructions, each with a bit behind it. The first one writes and the last one reads.

    length: steps, two for an instruction. ignored: the share of the others that are ignored; half of the rest writes
    and half reads. asked: how many of the last steps may have a label; None is all. train, val, test: sequences.
    """

    length: int = 512
    ignored: float = 0.8

    name: ClassVar[str] = "flipflop"
    source: ClassVar[str] = "generated; after Liu et al. 2023 (arXiv:2306.00946), FFL(0.8) of 512 steps"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 4 or self.length % 2:
            raise UserError(f"FlipFlop needs an even length of at least 4 steps, not {self.length}.")
        if self.asked == 1:
            raise UserError("FlipFlop asks at the last step but one: asked is at least 2.")
        if not 0 <= self.ignored < 1:
            raise UserError(f"FlipFlop ignores a share of 0 to below 1 of the instructions, not {self.ignored}.")

    @property
    def settings(self) -> tuple[object, ...]:
        return (self.ignored,)

    @property
    def input(self) -> Tokens:
        """Symbols: the bits 0 and 1, then write, read and ignore."""
        return Tokens(5)

    @property
    def output(self) -> StepLabels:
        return StepLabels(2)

    @property
    def chance(self) -> float:
        return 0.5

    def at_length(self, length: int, examples: int | None = None) -> Self:
        """Returns the task at another length, rounded down to an even one."""
        return super().at_length(length - length % 2, examples)

    def sequences(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        other = (1 - self.ignored) / 2
        told = rng.choice((WRITE, READ, IGNORE), (count, self.length // 2), p=(other, other, self.ignored))
        told[:, 0], told[:, -1] = WRITE, READ
        bits = rng.integers(0, 2, told.shape)
        x, y = np.empty((count, self.length), np.uint8), np.full((count, self.length), -1, narrow_label(2))
        memory = np.zeros(count, np.int64)
        for pair in range(told.shape[1]):
            memory = np.where(told[:, pair] == WRITE, bits[:, pair], memory)
            reads = told[:, pair] == READ
            x[:, 2 * pair], x[:, 2 * pair + 1] = told[:, pair], np.where(reads, memory, bits[:, pair])
            y[reads, 2 * pair] = memory[reads]
        return x, y

    def slices(self, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the slice `distance`: steps from the last question back to what it asks for, up to a power of two."""
        written = self.length - 1 - np.argmax(x[:, ::-1] == WRITE, axis=1)
        return {"distance": 1 << np.ceil(np.log2(self.length - 2 - written)).astype(np.int64)}

    def answers(self, x: np.ndarray) -> np.ndarray:
        """Looks up the bit behind the latest instruction to write."""
        latest = np.maximum.accumulate(np.where(x == WRITE, np.arange(x.shape[1]), 0), axis=1)
        bits = np.take_along_axis(x, np.minimum(latest + 1, x.shape[1] - 1), axis=1)
        return np.where(x == READ, bits, -1)

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and answering with the bit before the question, written or not, or with the answer to
        the question before it; of the first one, with the bit that was written first."""
        x, y = test.x.reshape(-1, self.length), test.y.reshape(-1, self.length)
        steps = np.where(x == READ, np.arange(self.length), 0)
        read = np.maximum.accumulate(np.concatenate([steps[:, :1], steps[:, :-1]], axis=1), axis=1)
        answers = {"last_bit": np.roll(x, 1, axis=1), "last_answer": np.take_along_axis(x, read + 1, axis=1)}
        right = {rule: float(np.mean((said == y)[y >= 0])) for rule, said in answers.items()}
        return super().baselines(train, test) | right


TASKS: dict[str, Task] = {"flipflop": FlipFlop()}
EXAMPLES: tuple[Task, ...] = (
    FlipFlop(20, train=60, val=20, test=20),
    FlipFlop(16, asked=3, train=40, val=10, test=10, seed=1, ignored=0.3),
)
