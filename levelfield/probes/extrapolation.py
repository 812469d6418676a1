"""Scores a model on longer sequences than it was trained on: the same task at once, twice and four times the length."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from levelfield.evaluate import label_scores, score_row
from levelfield.spec import Examples, Probe, Row, Run, SplitName, Task, UserError

if TYPE_CHECKING:
    from levelfield.model import Network


@dataclass(frozen=True)
class Extrapolation(Probe):
    """The test score at several lengths.

    factors: lengths, as multiples of the training length. examples: test sequences at each but the first, which is
    the task's own test split."""

    name: ClassVar[str] = "extrapolation"
    factors: tuple[int, ...] = (1, 2, 4)
    examples: int = 500

    def measure(self, net: Network, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Yields a row at "length=L" for every L that the model takes.

        Lengths beyond its bound are absent, and so are those that the task cannot have, such as twice the pixels of a
        square picture. A user's own layer may have a bound that it does not declare: from the length on at which it
        raises, rows are absent too, and a warning says why.

        Raises UserError where the task has only one length.
        """
        for factor, longer in self._lengths(run):
            length = factor * run.task.max_length
            splits = load(longer)
            try:
                scores = label_scores(net, longer, splits["test"])
            except Exception as error:
                if factor == 1 or not any(mixer.opaque for mixer in run.model.mixers):
                    raise
                warnings.warn(f"{run.model.label} takes no {length} steps: {error}", stacklevel=2)
                return
            row = score_row(longer, scores, f"length={length}")
            yield row
            prior = longer.baselines(splits["train"], splits["test"]).get("label_prior")
            if prior is not None:
                yield row_of_rule(row, prior)

    def _lengths(self, run: Run) -> list[tuple[int, Task]]:
        """Returns the factors that model and task take, each with the task at that length. Raises UserError."""
        bound, refused, found = run.model.max_length, [], []
        for factor in self.factors:
            length = factor * run.task.max_length
            if bound is not None and length > bound:
                continue
            try:
                longer = run.task if factor == 1 else run.task.at_length(length, self.examples)
                found.append((factor, longer))
            except UserError as error:
                refused.append(error)
        if refused and all(factor == 1 for factor, _ in found):
            raise refused[0]
        return found


def row_of_rule(row: Row, value: float) -> Row:
    """Returns the row at the same location of the rule that always answers the commonest training label."""
    rule = Row(model="label_prior", protocol="none", value=value, status="ok")  # whatever the model's outputs are
    own = row.copy()
    own.pop("stderr", None)
    return own | rule
