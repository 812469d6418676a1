"""Recall in context: pairs of a key and its value, in which every key that comes again asks for its value.

    k3 v1  k0 v5  k3 [v1]  k6 v2  k0 [v5]           in-context recall: [] is asked at the key before it
    k3 v1  n7 n2  k0 v5  n9 n9  k3 [v1]             noisy recall: twos of other symbols come between the pairs

Each sequence draws its own map from keys to values, so that nothing but an earlier pair of the same key tells the
answer. It is the multi-query form of MAD (Poli et al. 2024), the first and the third of its tasks. `recall` asks once,
at the end. `mqar` writes all pairs first, and its keys and values never repeat.

Two artefacts are the paper's. Noise comes in twos, so a key stands at even steps alone. The value behind a question is
the right one, so models must read forward. Two things differ from the authors' code (github.com/athms/mad-lab): it
trains on the next symbol at every step, where here only questions count, and its head chooses among all symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from levelfield.spec import Examples, StepLabels, Task, Tokens, UserError
from levelfield.tasks._commonest import commonest_before
from levelfield.tasks._distinct_rows import narrow, narrow_label
from levelfield.tasks._state_tracking import StateTracking, last_value


@dataclass(frozen=True)
class InContextRecall(StateTracking):
    """Pairs of a key and its value; the last one repeats a key, so that every sequence asks something.

    length: steps, two for a pair. keys, values: how many symbols of each. noise: the share of pairs that are two
    symbols of noise instead, of which there are `noise_symbols`. asked: how many of the last steps may have a label;
    None is all. train, val, test: sequences.
    """

    length: int = 128
    train: int = 12_800
    val: int = 1_280
    test: int = 1_280
    keys: int = 8
    values: int = 8
    noise: float = 0.0
    noise_symbols: int = 0

    source: ClassVar[str] = "generated; after MAD, Poli et al. 2024 (arXiv:2403.17844), Apache-2.0"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 4 or self.length % 2:
            raise UserError(f"InContextRecall needs an even length of at least 4 steps, not {self.length}.")
        if self.asked == 1:
            raise UserError("InContextRecall asks at the last step but one: asked is at least 2.")
        if not (self.keys >= 1 and self.values >= 2 and self.keys + self.values + self.noise_symbols < 65_536):
            raise UserError(
                "InContextRecall needs at least one key and 2 values, and at most 65,535 symbols in all, not "
                f"{self.keys:,}, {self.values:,} and {self.noise_symbols:,} of noise."
            )
        if not 0 <= self.noise < 1 or self.noise_symbols < 0 or (self.noise > 0) != (self.noise_symbols > 0):
            raise UserError(
                f"InContextRecall takes a share of noise from 0 to below 1 and symbols for it, or neither, not "
                f"noise={self.noise} and noise_symbols={self.noise_symbols}."
            )

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "noisy_recall" if self.noise else "in_context_recall"

    @property
    def settings(self) -> tuple[object, ...]:
        return self.keys, self.values, self.noise, self.noise_symbols

    @property
    def input(self) -> Tokens:
        """Symbols: the keys, then the values, then those of noise."""
        return Tokens(self.keys + self.values + self.noise_symbols)

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.values)

    @property
    def chance(self) -> float:
        return 1 / self.values

    def at_length(self, length: int, examples: int | None = None) -> Self:
        """Returns the task at another length, rounded down to an even one."""
        return super().at_length(length - length % 2, examples)

    def sequences(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        pairs, rows = self.length // 2, np.arange(count)
        known = rng.integers(0, self.values, (count, self.keys))  # the map of each sequence
        keys = rng.integers(0, self.keys, (count, pairs))
        noisy = rng.random((count, pairs)) < self.noise
        noisy[rows, rng.integers(0, pairs - 1, count)] = noisy[:, -1] = False
        said = ~noisy[:, :-1]
        seen = np.zeros(known.shape, bool)
        seen[np.nonzero(said)[0], keys[:, :-1][said]] = True
        keys[:, -1] = np.where(seen, rng.random(seen.shape), -1).argmax(1)
        values = np.take_along_axis(known, keys, 1)
        x = np.stack([keys, self.keys + values], axis=-1).astype(narrow(self.input.symbols - 1))
        if self.noise:
            x[noisy] = rng.integers(self.keys + self.values, self.input.symbols, (int(noisy.sum()), 2))
        y = np.full(x.shape, -1, narrow_label(self.values))
        y[..., 0] = np.where(_repeated(keys, noisy), values, -1)
        return x.reshape(count, -1), y.reshape(count, -1)

    def slices(self, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the slice `distance`: steps from the last question to the same key before it, up to a power of
        two."""
        before = x[:, :-2][:, ::-1] == x[:, -2:-1]
        return {"distance": 1 << np.ceil(np.log2(1 + before.argmax(1))).astype(np.int64)}

    def answers(self, x: np.ndarray) -> np.ndarray:
        """Looks up what stood behind the first occurrence of each key."""
        y, steps = np.full(x.shape, -1), np.arange(x.shape[1])
        for key in range(self.keys):
            here = x == key
            first = here.argmax(1)[:, None]
            value = np.take_along_axis(x, first + 1, 1) - self.keys
            y = np.where(here & (steps > first), value, y)
        return y

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and answering with the value that stood before the question, or with the commonest
        one so far, of whatever key."""
        x, y = test.x.reshape(-1, self.length), test.y.reshape(-1, self.length)
        right = (commonest_before(x, self.keys, self.values) == y)[y >= 0]
        last = last_value(test, self.length, self.keys, self.values)
        return {**super().baselines(train, test), "last_value": last, "commonest_value": float(np.mean(right))}


def _repeated(keys: np.ndarray, noisy: np.ndarray) -> np.ndarray:
    """Tells which pairs have a key that a pair before them has, noise left out: keys, noisy (N, pairs) -> the same."""
    found, rows = np.zeros(keys.shape, bool), np.arange(len(keys))
    seen = np.zeros((len(keys), int(keys.max()) + 1), bool)
    for pair, key in enumerate(keys.T):
        found[:, pair] = seen[rows, key] & ~noisy[:, pair]
        seen[rows, key] |= ~noisy[:, pair]
    return found


TASKS: dict[str, Task] = {
    "in_context_recall": InContextRecall(),
    "noisy_recall": InContextRecall(noise=0.2, noise_symbols=16),
}
EXAMPLES: tuple[Task, ...] = (
    InContextRecall(20, train=60, val=20, test=20),
    InContextRecall(16, 4, 40, 10, 10, seed=2, keys=3, values=300, noise=0.4, noise_symbols=5),
)
