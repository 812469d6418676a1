"""Multi-query associative recall: pairs of a key and its value, then each key once more; there its value is asked for.

    k4 v8  k2 v1  .  .  k2  .  .  .  .  .  k4  .
                        v1                 v8               . is a blank; only queries have labels

Every sequence has its own keys and values, none of them twice, so a model must look back. The distance of a query from
the pairs follows a power law, as that of repeated word pairs in text. With this task Arora et al. (2023) explain most
of the gap between attention and gated convolutions in language modelling (section 3, appendix on synthetic data).
`MQAR.bounded` is the exact score of the best rule that sees a window.

Two things differ from the authors' generator (github.com/HazyResearch/zoology), and neither changes what is to be
learnt. The head chooses among the values, not among all symbols. Noise never contains a key of the sequence, so that
labels follow from the sequence alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from levelfield.spec import Examples, Progress, SplitName, StepLabels, Task, Tokens, UserError, no_progress
from levelfield.tasks._distinct_rows import Filler, Rows, choose, narrow, narrow_label, splits


@dataclass(frozen=True)
class MQAR(Task):
    """Multi-query associative recall.

    length: steps. pairs: key-value pairs; each is asked for once, so at most length / 4. power: the exponent a of the
    distribution of gaps, p(g) ~ g^(a - 1) over g = 1..(length - 2 * pairs) / 2, in pairs of steps after the last pair;
    1 is uniform. filler: what is between queries, blanks, as in figure 2 of the paper, or random symbols ("noise"), the
    default of the authors' code. keys, values: how many symbols of each. train, val, test: sequences.

    The defaults are the smallest setting of figure 2 of Arora et al. (2023), whose others are length 128 with 8 pairs
    and 256 with 16; their vocabulary of 8,192 symbols counts the blank.
    """

    length: int = 64
    pairs: int = 4
    keys: int = 4_095
    values: int = 4_096
    power: float = 0.01
    filler: Filler = "blank"
    train: int = 100_000
    val: int = 1_000
    test: int = 3_000
    seed: int = 0

    name: ClassVar[str] = "mqar"
    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    causal: ClassVar[bool] = True
    source: ClassVar[str] = "generated; law of Arora et al. 2023 (arXiv:2312.04927), Zoology, Apache-2.0"
    split_rule: ClassVar[str] = "drawn independently, each split from its own seed; no sequence is in two splits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.pairs <= self.length // 4:
            raise UserError(
                f"MQAR needs at least one pair, and four steps for each: length={self.length} has room for "
                f"{max(0, self.length // 4)}, not {self.pairs}."
            )
        if not (self.pairs <= self.keys and max(self.pairs, 2) <= self.values and self.keys + self.values < 65_536):
            raise UserError(
                f"MQAR needs at least {self.pairs} keys and {max(self.pairs, 2)} values, one for each pair, and at "
                f"most 65,535 of both, not {self.keys} and {self.values}."
            )
        if not 0 < self.power < np.inf:
            raise UserError(f"MQAR power={self.power} must be a finite number above 0; the paper's is 0.01.")
        if min(self.train, self.val, self.test) < 1:
            raise UserError("MQAR needs at least one sequence in each of train, val and test.")

    @property
    def input(self) -> Tokens:
        """Symbols: the blank is 0, followed by the keys and then the values."""
        return Tokens(1 + self.keys + self.values)

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.values)

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 1 / self.values

    @property
    def slots(self) -> int:
        """The number of positions for queries: every second step after the pairs."""
        return (self.length - 2 * self.pairs) // 2

    def at_length(self, length: int, examples: int | None = None) -> MQAR:
        """Returns the task at `length` with pairs in proportion, as in the paper; `dataclasses.replace` keeps them.

        Raises UserError where there are fewer keys or values than pairs.
        """
        counts = {} if examples is None else {"train": examples, "val": examples, "test": examples}
        return replace(self, length=length, pairs=max(1, self.pairs * length // self.length), **counts)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        counts: dict[SplitName, int] = {"train": self.train, "val": self.val, "test": self.test}
        settings = (self.length, self.pairs, self.keys, self.values, self.power, self.filler)
        made = splits("mqar", self.seed, settings, counts=counts, draw=self._draw, progress=progress)
        return {
            split: Examples.of_equal_length(x, y, {"farthest": far}, stepwise=True)
            for split, (x, y, far) in made.items()
        }

    def _draw(self, rng: np.random.Generator, count: int) -> Rows:
        """Draws x, y (count, length) and the slice `farthest` (count,)."""
        keys = 1 + choose(rng, count, self.keys, self.pairs)
        values = choose(rng, count, self.values, self.pairs)
        slots = self._slots(rng, count)
        places = 2 * (self.pairs + slots)
        x = self._filling(rng, np.sort(keys, axis=1))
        x[:, 0 : 2 * self.pairs : 2], x[:, 1 : 2 * self.pairs : 2] = keys, 1 + self.keys + values
        np.put_along_axis(x, places, keys.astype(x.dtype), 1)
        y = np.full((count, self.length), -1, narrow_label(self.values))
        np.put_along_axis(y, places, values.astype(y.dtype), 1)
        distance = (places - 2 * np.arange(self.pairs)).max(1)
        return x, y, 1 << np.ceil(np.log2(distance)).astype(np.int64)

    def _slots(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws a slot for each key without replacement: (count, pairs).

        Sorting log p + Gumbel noise gives the same distribution as drawing one slot after another from those left.
        """
        noisy = np.log(self._gap_distribution()) + rng.gumbel(size=(count, self.slots))
        return np.argsort(-noisy, axis=1)[:, : self.pairs]

    def _gap_distribution(self) -> np.ndarray:
        """Returns the distribution of the first key's slot: (slots,)."""
        weights = np.arange(1, self.slots + 1, dtype=float) ** (self.power - 1)
        return weights / weights.sum()

    def _filling(self, rng: np.random.Generator, own: np.ndarray) -> np.ndarray:
        """Draws what is between queries: (count, length). own: (count, pairs), keys in ascending order."""
        shape, kind = (len(own), self.length), narrow(self.keys + self.values)
        if self.filler == "blank":
            return np.zeros(shape, kind)
        noise = rng.integers(0, 1 + self.keys + self.values - self.pairs, shape)
        for key in own.T:  # maps the drawn ranks to symbols that are not the sequence's own keys
            noise += noise >= key[:, None]
        return noise.astype(kind)

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Labels each key that occurs again after the pairs with the symbol that followed it in its pair."""
        x = examples.x.reshape(-1, self.length).astype(np.int64)
        shift = np.arange(len(x))[:, None] * self.input.symbols
        pairs = 2 * self.pairs
        known = (x[:, 0:pairs:2] + shift).ravel()
        order = np.argsort(known)
        later = x[:, pairs:] + shift
        at = np.minimum(np.searchsorted(known, later, sorter=order), len(known) - 1)
        behind = x[:, 1:pairs:2].ravel()[order[at]] - 1 - self.keys
        y = np.full(x.shape, -1, examples.y.dtype)
        y[:, pairs:] = np.where(known[order[at]] == later, behind, -1)
        return y.reshape(-1)

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and always answering the last pair's value."""
        y = test.y.reshape(-1, self.length)
        last = test.x.reshape(-1, self.length)[:, 2 * self.pairs - 1, None].astype(np.int64) - 1 - self.keys
        return {**super().baselines(train, test), "last_value": float(np.mean((y == last)[y >= 0]))}

    def slot_distribution(self) -> np.ndarray:
        """Returns the probability that the query of pair i is in slot g: (pairs, slots), exact except for rounding.

        Drawing without replacement by weights p is the order in which exponential clocks of rates p ring. Pair i has
        slot g if i of the other clocks ring before that of g. This is integrated over its time t = e^z.
        """
        z = np.arange(-40, np.log(50 / self._gap_distribution().min()), 0.1)
        rung = -np.expm1(-self._gap_distribution()[:, None] * np.exp(z))  # (slots, times)
        before = np.zeros((self.pairs, self.slots, len(z)))  # distribution of how many other clocks have rung
        before[0] = 1
        for other in range(self.slots):
            chance = np.repeat(rung[other][None], self.slots, 0)
            chance[other] = 0
            before[1:] += chance * (before[:-1] - before[1:])
            before[0] *= 1 - chance
        density = self._gap_distribution()[:, None] * np.exp(z) * (1 - rung)
        return (before * density).sum(-1) * 0.1

    def bounded(self, slots: int) -> float:
        """Returns the best expected score of a rule that sees a query and the `slots` pairs of steps before it.

        If the pair is outside the window, it guesses among the values that it does not see, since no value occurs
        twice.
        """
        pair, gap = np.arange(self.pairs)[:, None], np.arange(self.slots)
        seen = np.clip(slots - gap, 0, self.pairs)
        right = np.where(self.pairs - pair + gap <= slots, 1.0, 1 / np.maximum(1, self.values - seen))
        return float((self.slot_distribution() * right).sum() / self.pairs)


TASKS: dict[str, Task] = {"mqar": MQAR()}
EXAMPLES: tuple[Task, ...] = (
    MQAR(32, 4, keys=12, values=9, train=60, val=20, test=20),
    MQAR(21, 3, keys=40, values=50, power=1.0, filler="noise", train=40, val=10, test=10, seed=3),
)
