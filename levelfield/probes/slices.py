"""Measures where a score comes from: the test score in each slice of the task, and in each slice by label.

    root=MAX  0.78      root=SM  0.11       root=MAX,label=9  0.95      (miralles2025 appendix B, figures 2 and 3)

In the same slices it reports the scores of rules that learn no sequence model (`Task.hits`). A model that is as good as
they are where they are good, and no better elsewhere, has learnt no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from levelfield.evaluate import SplitScores, label_scores, score_row
from levelfield.spec import Examples, Label, Probe, Row, Run, SplitName, Task

if TYPE_CHECKING:
    from levelfield.model import Network


@dataclass(frozen=True)
class Slices(Probe):
    """The test score by slice.

    by_label: whether each slice is also divided by label.
    """

    name: ClassVar[str] = "slices"
    by_label: bool = True

    def measure(self, net: Network, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Yields one row for each value of a slice, and one for each value and label.

        Slices without examples are absent. Rows of rules have the protocol "none".
        """
        splits = load(run.task)
        test = splits["test"]
        scores = label_scores(net, run.task, test)
        rules = {
            rule: SplitScores(right.astype(float), np.ones(len(test)), np.ones(len(test), bool), scores.groups)
            for rule, right in run.task.hits(splits["train"], test).items()
        }
        labelled = self.by_label and isinstance(run.task.output, Label)
        for name, column in test.slices.items():
            for value in np.unique(column):
                here = column == value
                if not here.any():  # NaN, which equals nothing
                    continue
                yield score_row(run.task, scores.part(here), f"{name}={value}")
                for rule, hit in rules.items():
                    yield score_row(run.task, hit.part(here), f"{name}={value}") | Row(model=rule, protocol="none")
                for label in np.unique(test.y[here]) if labelled else ():
                    crossed = scores.part(here & (test.y == label))
                    yield score_row(run.task, crossed, f"{name}={value},label={label}")
