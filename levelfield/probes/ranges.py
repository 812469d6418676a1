"""Asks a trained model at its certified range and beyond it.

    asked=256,trained=256   1.00        asked=512,trained=256   0.93        asked=1024,trained=256   0.51

Whether a model bridges a range after training at that range is one question, and whether it then bridges longer ones
is another; both are about ranges that are proved to be needed (docs/reach.md). For models whose mixers declare that
they see a bounded number of steps this number is a row too, and reports draw what is proved from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from levelfield.evaluate import label_scores, score_row
from levelfield.spec import Examples, Probe, Row, Run, SplitName, Task, UserError

if TYPE_CHECKING:
    from levelfield.model import Network


@dataclass(frozen=True)
class Ranges(Probe):
    """The test score at multiples of the certified range, as far as the task has them.

    factors: the ranges, as multiples of that of training. examples: test sequences at each but the first, which is the
    task's own test split. longest: steps of a sequence beyond which nothing more is asked, for the sake of time.
    """

    name: ClassVar[str] = "ranges"
    factors: tuple[int, ...] = (1, 2, 4)
    examples: int = 200
    longest: int = 16_384

    def measure(self, net: Network, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Yields a row at "asked=R,trained=r" for every R that the model takes, and one for the steps that it sees.

        Raises UserError where the task has no certified range.
        """
        trained, bound = run.task.certified_range, run.model.max_length
        if trained is None:
            raise UserError(f"Task {run.task.name} has no certified range: the probe ranges is for the task reach.")
        field, most = run.model.proved_field, run.task.longest_range
        if field is not None:
            yield Row(metric="receptive_field", unit="steps", split="none", value=float(field), status="ok")
        for factor in self.factors:
            if factor > 1 and most is not None and factor * trained > most:
                continue
            asked = run.task if factor == 1 else run.task.at_range(factor * trained, self.examples)
            too_long = factor > 1 and asked.max_length > self.longest
            if too_long or (bound is not None and asked.max_length > bound):
                continue
            scores = label_scores(net, asked, load(asked)["test"])
            yield score_row(asked, scores, f"asked={factor * trained},trained={trained}")
