"""Memorisation: keys that stand for the same values in every sequence, so that training must put the map into weights.

    k3 .  k0 .  k3 .  k6 .
       v1    v5    v1    v2          . is where the value of the key before it is asked for

All other tasks of recall draw a map for each sequence. Here is one map, drawn with the seed and kept at all lengths and
in all splits, and nothing in a sequence tells it. This is the sixth task of MAD (Poli et al. 2024). It needs no range,
as the key stands one step before the question, and no rule to be above is listed: a table of the training pairs is
right about every key that is among them.

An artefact of its harder settings: 256 sequences of 32 steps hold 4,096 pairs, which is less than twice the keys of
4,095. What training never shows can only be guessed, and `known` is the share of questions that it does show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from levelfield.spec import StepLabels, Task, Tokens, UserError, derive_seed
from levelfield.tasks._distinct_rows import narrow, narrow_label
from levelfield.tasks._state_tracking import StateTracking


@dataclass(frozen=True)
class Memorisation(StateTracking):
    """Random keys, each with a question for its value behind it.

    length: steps, two for a key. keys: how many there are. values: how many there are, none of two keys. asked: how
    many of the last steps may have a label; None is all. train, val, test: sequences.
    """

    length: int = 32
    train: int = 256
    val: int = 1_280
    test: int = 1_280
    keys: int = 127
    values: int = 128

    name: ClassVar[str] = "memorisation"
    source: ClassVar[str] = "generated; after MAD, Poli et al. 2024 (arXiv:2403.17844), Apache-2.0"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length % 2 or self.length < 4:  # with one key, no sequence of two splits would mean no key of two
            raise UserError(f"Memorisation needs an even length of at least 4 steps, not {self.length}.")
        if not 2 <= self.keys <= self.values <= 65_000:
            raise UserError(
                "Memorisation takes 2 to 65,000 values and as many keys or fewer, at least 2, not "
                f"{self.values:,} and {self.keys:,}."
            )

    @property
    def settings(self) -> tuple[object, ...]:
        return self.keys, self.values

    @property
    def input(self) -> Tokens:
        """Symbols: the keys, then the question."""
        return Tokens(self.keys + 1)

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.values)

    @property
    def chance(self) -> float:
        return 1 / self.values

    @property
    def map(self) -> np.ndarray:
        """The value of each key: (keys,) int64."""
        rng = np.random.default_rng(derive_seed(self.seed, self.name, "map", self.keys, self.values))
        return rng.permutation(self.values)[: self.keys]

    @property
    def known(self) -> float:
        """The expected share of questions whose key training asks for, which is the most that can be memorised."""
        pairs = (self.length - self.unasked + 1) // 2  # of a sequence; the last step is a question
        return 1 - (1 - 1 / self.keys) ** (self.train * pairs)

    def at_length(self, length: int, examples: int | None = None) -> Self:
        """Returns the task with the same map at another length, rounded down to an even one."""
        return super().at_length(length - length % 2, examples)

    def sequences(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        drawn = rng.integers(0, self.keys, (count, self.length // 2))
        x = np.full((count, self.length), self.keys, narrow(self.keys))
        y = np.full(x.shape, -1, narrow_label(self.values))
        x[:, ::2], y[:, 1::2] = drawn, self.map[drawn]
        return x, y

    def answers(self, x: np.ndarray) -> np.ndarray:
        """Goes through the map entry by entry, and labels each question behind that key."""
        y = np.full(x.shape, -1)
        for key, value in enumerate(self.map.tolist()):
            y[:, 1:][(x[:, :-1] == key) & (x[:, 1:] == self.keys)] = value
        return y

    def bounded(self, steps: int) -> float:
        """Returns the best expected score of a rule that knows the map and sees an asked step and those before it,
        `steps` in all."""
        return 1.0 if steps >= 2 else self.chance


TASKS: dict[str, Task] = {"memorisation": Memorisation()}
EXAMPLES: tuple[Task, ...] = (
    Memorisation(8, train=60, val=20, test=20, keys=15, values=16),
    Memorisation(12, 5, 40, 10, 10, seed=1, keys=300, values=400),
)
