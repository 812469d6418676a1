"""Measures where in a sequence, and of what length, a model still finds a needle: scores by depth and format.

The lengths are multiples of the training length, from half to eight times it (huang2024, sections 4.2 to 4.4; the depth
sweep of needle tests).

    length=64  .98      length=512,depth=4  .31      length=512,format=essay  .27
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from levelfield.evaluate import label_scores, score_row
from levelfield.spec import Examples, Probe, Row, Run, SplitName, Task, UserError

if TYPE_CHECKING:
    from levelfield.model import Network

SLICES = ("depth", "format")


@dataclass(frozen=True)
class Depths(Probe):
    """The test score at several lengths, by the depth and the format of what hides the needle.

    factors: lengths, as multiples of the training length. examples: test sequences at each of them.
    batch: sequences at the training length that are read at once; longer ones are fewer in proportion.
    """

    name: ClassVar[str] = "depths"
    factors: tuple[float, ...] = (0.5, 1, 2, 4, 8)
    examples: int = 900
    batch: int = 64

    def measure(self, net: Network, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Yields rows at every length that the model takes: for all, each depth, each format and each pair of them.

        Raises UserError where the task does not say how deep its answers lie.
        """
        if "depth" not in load(run.task)["test"].slices:
            raise UserError(f"Task {run.task.name} has no slice 'depth': this probe is for needles in haystacks.")
        for factor in self.factors:
            length = round(factor * run.task.max_length)
            if run.model.max_length is not None and length > run.model.max_length:
                continue
            task = run.task.at_length(length, self.examples)
            test = load(task)["test"]
            columns = {name: test.slices[name] for name in SLICES if name in test.slices}
            scores = label_scores(net, task, test, batch=max(1, int(self.batch / max(1, factor))))
            for place, here in _places(columns):
                at = ",".join((f"length={length}", *place))
                yield score_row(task, scores.part(here), at)


def _places(columns: Mapping[str, np.ndarray]) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Yields each choice of a value, or of none, in every column, with the examples there; empty ones are left out."""
    choices = [[None, *np.unique(column)] for column in columns.values()]
    for chosen in product(*choices):
        named = {name: value for name, value in zip(columns, chosen, strict=True) if value is not None}
        here = np.ones(len(next(iter(columns.values()))), bool)
        for name, value in named.items():
            here &= columns[name] == value
        if here.any():
            yield tuple(f"{name}={value}" for name, value in named.items()), here
