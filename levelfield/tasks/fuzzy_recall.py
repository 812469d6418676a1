"""Fuzzy recall: keys and values of one to three symbols each, in which a key that comes again asks for its whole value.

    . k2 k5 v1  k5 v4 v0 v2  k2 k5 [v1]  k5 k2 v3  k5 [v4 v0 v2]        [] is asked, each symbol at the step before it

Each sequence draws its own map from motifs of keys, different symbols in any order, to motifs of values. A key ends
where a value begins, and no mark says where: k5 and k2 k5 are two keys. So adjacent symbols have to be joined before
they can be looked up. This is the second task of MAD (Poli et al. 2024), in its multi-query form.

As there, keys of training have all lengths, and those of val and test the longest alone; sequences are filled up with
blanks at the front. The symbol behind a question is the right one, so models must read forward. As in the task
`in_context_recall`, questions alone are trained, and the head chooses among the values. In the authors' code
(github.com/athms/mad-lab) the last key of about 3 % of test sequences has not come before, and its value can only be
guessed; here it always has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from levelfield.spec import Examples, SplitName, StepLabels, Task, Tokens, UserError
from levelfield.tasks._distinct_rows import Draw, choose, narrow, narrow_label
from levelfield.tasks._state_tracking import StateTracking, last_value


class Pairs(NamedTuple):
    """Pairs of motifs in N sequences, of which the first `said` ones of each, (N,), occur.

    key, value: (N, P, most) symbols, -1 beyond the motif's own.
    """

    key: np.ndarray
    value: np.ndarray
    said: np.ndarray

    @property
    def steps(self) -> np.ndarray:
        """The steps of each pair, (N, P)."""
        return sizes(self.key) + sizes(self.value)


@dataclass(frozen=True)
class FuzzyRecall(StateTracking):
    """Pairs of motifs; the last pair repeats an earlier one, so that every sequence asks something.

    length: steps. keys, values: symbols that motifs are made of. key_steps, value_steps: of the longest motifs.
    shortest_key: steps of the shortest one in training. asked: how many of the last steps may have a label; None is
    all. train, val, test: sequences.
    """

    length: int = 128
    train: int = 12_800
    val: int = 1_280
    test: int = 1_280
    keys: int = 7
    values: int = 8
    key_steps: int = 3
    value_steps: int = 3
    shortest_key: int = 1

    name: ClassVar[str] = "fuzzy_recall"
    source: ClassVar[str] = "generated; after MAD, Poli et al. 2024 (arXiv:2403.17844), Apache-2.0"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (1 <= self.key_steps <= self.keys and 1 <= self.value_steps <= self.values >= 2):
            raise UserError(
                f"FuzzyRecall takes motifs of at least one step and of different symbols, not of {self.key_steps} out "
                f"of {self.keys} for keys and {self.value_steps} out of {self.values} for values, of which it needs 2."
            )
        if not 1 <= self.shortest_key <= self.key_steps:
            raise UserError(f"FuzzyRecall takes a shortest_key of 1 to {self.key_steps}, not {self.shortest_key}.")
        if self.keys + self.values > 65_000 or (self.keys + 1) ** self.key_steps >= 1 << 62:
            raise UserError("FuzzyRecall takes at most 65,000 symbols, and keys of few enough steps to be counted.")
        if self.length < 2 * self.longest:
            raise UserError(f"FuzzyRecall needs room for two pairs, {2 * self.longest} steps, not {self.length}.")
        if self.asked == 1:
            raise UserError("FuzzyRecall asks at the last step but one: asked is at least 2.")

    @property
    def longest(self) -> int:
        """The steps of the longest pair."""
        return self.key_steps + self.value_steps

    @property
    def settings(self) -> tuple[object, ...]:
        return self.keys, self.values, self.key_steps, self.value_steps, self.shortest_key

    @property
    def input(self) -> Tokens:
        """Symbols: those of keys, those of values, and the blank."""
        return Tokens(self.keys + self.values + 1)

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.values)

    @property
    def chance(self) -> float:
        return 1 / self.values

    @property
    def draws(self) -> Mapping[SplitName, Draw]:
        held_out = replace(self, shortest_key=self.key_steps)._draw
        return {"train": self._draw, "val": held_out, "test": held_out}

    def sequences(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        pairs = self._pairs(rng, count)
        x = np.full((count, self.length), self.keys + self.values, narrow(self.keys + self.values))
        y = np.full(x.shape, -1, narrow_label(self.values))
        said = np.arange(pairs.key.shape[1]) < pairs.said[:, None]
        ends = np.cumsum(np.where(said, pairs.steps, 0), axis=1)
        starts = self.length - ends[:, -1:] + ends - pairs.steps
        again = _first(pairs.key) < np.arange(pairs.key.shape[1])
        for step in range(self.key_steps):
            row, pair = np.nonzero(said & (pairs.key[..., step] >= 0))
            x[row, starts[row, pair] + step] = pairs.key[row, pair, step]
        for step in range(self.value_steps):
            row, pair = np.nonzero(said & (pairs.value[..., step] >= 0))
            at, symbol = starts[row, pair] + sizes(pairs.key)[row, pair] + step, pairs.value[row, pair, step]
            x[row, at] = self.keys + symbol
            y[row, at - 1] = np.where(again[row, pair], symbol, -1)
        return x, y

    def _pairs(self, rng: np.random.Generator, count: int) -> Pairs:
        """Draws more pairs than fit, then ends each sequence with one that it has already."""
        shape = (count, self.length // (self.shortest_key + 1) + 1)
        key = motifs(rng, shape, self.keys, (self.shortest_key, self.key_steps))
        drawn = motifs(rng, shape, self.values, (1, self.value_steps))
        value = np.take_along_axis(drawn, _first(key)[..., None], 1)  # that of the key's first occurrence
        free = Pairs(key, value, np.zeros(count))
        body = (np.cumsum(free.steps, axis=1) <= self.length - self.longest).sum(1)
        rows, again = np.arange(count), rng.integers(0, body)
        key[rows, body], value[rows, body] = key[rows, again], value[rows, again]
        return Pairs(key, value, body + 1)

    def slices(self, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the slice `value`: steps of the last value, which is asked for."""
        return {"value": (x[:, ::-1] >= self.keys).argmin(1)}

    def answers(self, x: np.ndarray) -> np.ndarray:
        """Reads each sequence from left to right with a table of what keys have stood for."""
        y = np.full(x.shape, -1)
        for row, sequence in enumerate(x.tolist()):
            for step, symbol in self._asked(sequence):
                y[row, step] = symbol - self.keys
        return y

    def _asked(self, sequence: list[int]) -> Iterator[tuple[int, int]]:
        """Yields every step of one sequence that asks for something, with the symbol that it asks for."""
        told: dict[tuple[int, ...], list[int]] = {}
        key: tuple[int, ...] = ()
        said: list[int] = []  # behind the key, so far
        for step, symbol in enumerate(sequence):
            if symbol < self.keys:
                if said:
                    told.setdefault(key, said)
                    key, said = (), []
                key = (*key, symbol)
            elif symbol < self.keys + self.values:
                known = told.get(key, [])
                if len(said) < len(known):
                    yield step - 1, known[len(said)]
                said.append(symbol)

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and answering with the symbol of a value that was last seen.

        The symbols of a value differ, so that this is wrong about all of them but the first.
        """
        last = last_value(test, self.length, self.keys, self.values)
        return {**super().baselines(train, test), "last_value": last}


def sizes(motif: np.ndarray) -> np.ndarray:
    """Returns the steps of motifs: (..., most) -> (...)."""
    return (motif >= 0).sum(-1)


def motifs(rng: np.random.Generator, shape: tuple[int, int], symbols: int, steps: tuple[int, int]) -> np.ndarray:
    """Draws motifs of different symbols, (*shape, most), -1 beyond the steps of each, of which `steps` says the least
    and the most; all these numbers are equally likely, and so are all motifs of one."""
    least, most = steps
    size = rng.integers(least, most, shape, endpoint=True)
    drawn = choose(rng, shape[0] * shape[1], symbols, most).reshape(*shape, most)
    return np.where(np.arange(most) < size[..., None], drawn, -1)


def _first(key: np.ndarray) -> np.ndarray:
    """Returns the first pair of the same sequence with the same key, for each: (N, P, most) -> (N, P)."""
    code = (1 + key) @ (int(key.max()) + 2) ** np.arange(key.shape[2])
    return np.stack([(code == code[:, [pair]]).argmax(1) for pair in range(code.shape[1])], axis=1)


TASKS: dict[str, Task] = {"fuzzy_recall": FuzzyRecall()}
EXAMPLES: tuple[Task, ...] = (
    FuzzyRecall(24, train=60, val=20, test=20, keys=4, values=5, key_steps=2, value_steps=2),
    FuzzyRecall(30, 6, 40, 10, 10, seed=1, keys=3, values=300, shortest_key=2),
)
