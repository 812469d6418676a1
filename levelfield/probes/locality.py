"""Measures how much of a task can be had from short range alone (miralles2025 section 8, table 1).

Bounded-kernel convolutions are trained on the task with growing kernels; what one of them scores needs nothing beyond
its field. Each gives a point of the curve, and a model that sees everything gives the line the points are a share of:

    kernel=5    0.45        kernel=61    0.53        kernel=all    0.61
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from levelfield.evaluate import label_scores, score_row
from levelfield.spec import Examples, Model, Probe, Row, Run, SplitName, Task

if TYPE_CHECKING:
    from levelfield.model import Net


@dataclass(frozen=True)
class Locality(Probe):
    """The model's test score, placed at the kernel it is bounded by.

    The rows go by the mixer's name, not the model's, so that models that differ in their kernel make one curve.
    """

    name: ClassVar[str] = "locality"

    def measure(self, net: Net, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """One row for the score at "kernel=K" (or "kernel=all"), and one for the steps the whole stack sees."""
        scores = label_scores(net, run.task, load(run.task)["test"])
        bounds = [m.receptive_field for m in run.model.mixers]
        widest = None if None in bounds else max(b for b in bounds if b is not None)
        place = f"kernel={widest or 'all'}"
        mixer = "+".join(dict.fromkeys(m.label for m in run.model.mixers))
        yield score_row(run.task, scores, place) | Row(model=mixer)
        field = receptive_field(run.model)
        if field is not None:
            yield Row(model=mixer, metric="receptive_field", unit="steps", at=place, value=float(field), status="ok")


def receptive_field(model: Model) -> int | None:
    """Steps that one output step of the whole stack can see, itself included; None where it sees all."""
    bounds = [model.mixers[layer % len(model.mixers)].receptive_field for layer in range(model.depth)]
    return None if None in bounds else 1 + sum(b - 1 for b in bounds if b is not None)
