"""Copying: some symbols, a long wait, then all of them again in their order.

    c a b .  .  .  .  .  .  .  !  .  .  .        copying: the symbols come first, and a delimiter asks for them
                               c  a  b

    .  c  .  .  .  a  .  b  .  .  !  !  !        selective copying: the symbols are at random positions
                               c  a  b           . is a blank; only the last steps have labels

Copying is the memory problem of Hochreiter & Schmidhuber (1997) in the form of Arjovsky et al. (2016, section 4.1). All
symbols move by the same lag, so a linear recurrence or a long convolution can solve it without depending on its input.
In selective copying (Gu & Dao 2023, section 3.1) lags differ. It is generated as in the public code of S4
(github.com/state-spaces/s4), with a marker at every step that is asked. The authors say that their own runs of it were
never released, so the number of training sequences and what "length 4096" counts are assumed here.

Arjovsky et al. also score the blanks before the answer; here, as in the code of S4, only the answer counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from levelfield.spec import Examples, Progress, SplitName, StepLabels, Task, Tokens, UserError, no_progress
from levelfield.tasks._commonest import commonest_before
from levelfield.tasks._distinct_rows import Rows, narrow, narrow_label, splits


@dataclass(frozen=True)
class Copying(Task):
    """Copying, with the symbols first or scattered.

    items: how many symbols to copy, drawn from `symbols` different ones with repetition. delay: steps from an item to
    its copy, in addition to `items`; a sequence has delay + 2 * items steps. placement: items "first", or "scattered"
    over all steps before the question. cue: one "delimiter" before the steps that are asked, which are blank, or
    "markers" at each of them. train, val, test: sequences.
    """

    symbols: int = 8
    items: int = 10
    delay: int = 100
    placement: Literal["first", "scattered"] = "first"
    cue: Literal["delimiter", "markers"] = "delimiter"
    train: int = 50_000
    val: int = 1_000
    test: int = 2_000
    seed: int = 0

    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    causal: ClassVar[bool] = True
    source: ClassVar[str] = (
        "generated; after Arjovsky et al. 2016 (arXiv:1511.06464) and Gu & Dao 2023 (arXiv:2312.00752)"
    )
    split_rule: ClassVar[str] = "drawn independently, each split from its own seed; no sequence is in two splits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (2 <= self.symbols < 65_534 and self.items >= 1 and self.delay >= 1):
            raise UserError("Copying needs 2 to 65,533 symbols, at least one item and a delay of at least one step.")
        if min(self.train, self.val, self.test) < 1:
            raise UserError("Copying needs at least one sequence in each of train, val and test.")

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "copying" if self.placement == "first" else "selective_copying"

    @property
    def input(self) -> Tokens:
        """Symbols: the blank is 0, and the cue is the last."""
        return Tokens(self.symbols + 2)

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.symbols)

    @property
    def max_length(self) -> int:
        return self.delay + 2 * self.items

    @property
    def chance(self) -> float:
        return 1 / self.symbols

    @property
    def field(self) -> int:
        """The number of steps where scattered items may be: all before the cue."""
        return self.delay + self.items - (self.cue == "delimiter")

    def at_length(self, length: int, examples: int | None = None) -> Copying:
        """Returns the same number of items with another delay. Raises UserError where they do not fit."""
        if length <= 2 * self.items:
            raise UserError(f"Copying {self.items} items takes more than {2 * self.items} steps, not {length}.")
        counts = {} if examples is None else {"train": examples, "val": examples, "test": examples}
        return replace(self, delay=length - 2 * self.items, **counts)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        counts: dict[SplitName, int] = {"train": self.train, "val": self.val, "test": self.test}
        settings = (self.symbols, self.items, self.delay, self.placement, self.cue)
        made = splits("copying", self.seed, settings, counts=counts, draw=self._draw, progress=progress)
        return {
            split: Examples.of_equal_length(x, y, {"spread": spread}, stepwise=True)
            for split, (x, y, spread) in made.items()
        }

    def _draw(self, rng: np.random.Generator, count: int) -> Rows:
        """Draws x, y (count, T) and the slice `spread` (count,), the range of all items in sixteenths of the field."""
        drawn = rng.integers(0, self.symbols, (count, self.items))
        places = self._places(rng, count)
        x = np.zeros((count, self.max_length), narrow(self.symbols + 1))
        np.put_along_axis(x, places, (1 + drawn).astype(x.dtype), 1)
        asked = slice(self.field, self.field + 1) if self.cue == "delimiter" else slice(self.field, None)
        x[:, asked] = self.symbols + 1
        y = np.full(x.shape, -1, narrow_label(self.symbols))
        y[:, -self.items :] = drawn
        return x, y, -(-16 * (places[:, -1] - places[:, 0] + 1) // self.field)

    def _places(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws the positions of the items in ascending order: (count, items)."""
        if self.placement == "first":
            return np.tile(np.arange(self.items), (count, 1))
        free = np.argpartition(rng.random((count, self.field)), self.items - 1, axis=1)
        return np.sort(free[:, : self.items], axis=1)

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Labels the last steps with the symbols that are neither blank nor cue, in order."""
        x = examples.x.reshape(-1, self.max_length)
        said = x[(x > 0) & (x <= self.symbols)].astype(np.int64) - 1
        y = np.full(x.shape, -1, examples.y.dtype)
        y[:, -self.items :] = said.reshape(len(x), self.items)
        return y.reshape(-1)

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and answering the last item, or the commonest, at every step."""
        asked = test.y.reshape(-1, self.max_length)[:, -self.items :]
        x = test.x.reshape(-1, self.max_length)[:, : self.max_length - self.items + 1]
        answers = {"last_item": asked[:, -1:], "commonest_item": commonest_before(x, 1, self.symbols)[:, -1:]}
        return super().baselines(train, test) | {rule: float(np.mean(said == asked)) for rule, said in answers.items()}

    def bounded(self, steps: int) -> float:
        """Returns the best expected score of a rule that sees an asked step and those before it, `steps` in all.

        Counted from the last one, a scattered item is known as soon as it is in the window. The number of items among
        the last steps of the field is hypergeometric.
        """
        copied = [self._known(steps, item) for item in range(self.items)]
        known = sum(copied) / self.items
        return known + (1 - known) / self.symbols

    def _known(self, steps: int, item: int) -> float:
        """Returns the probability that `item` is in the window at the step that asks for it."""
        if self.placement == "first":
            return float(steps > self.delay + self.items)
        first = self.max_length - self.items + item - steps + 1
        seen = min(max(self.field - first, 0), self.field)
        wanted = self.items - item
        ways = sum(comb(seen, k) * comb(self.field - seen, self.items - k) for k in range(wanted, self.items + 1))
        return ways / comb(self.field, self.items)


TASKS: dict[str, Task] = {
    "copying": Copying(),
    "selective_copying": Copying(14, 16, 4_096 - 32, "scattered", "markers", train=20_000),
}
EXAMPLES: tuple[Task, ...] = (
    Copying(5, 4, 9, train=60, val=20, test=20),
    Copying(6, 3, 12, "scattered", "markers", train=40, val=10, test=10, seed=4),
    Copying(300, 3, 7, "scattered", train=20, val=10, test=10),
)
