"""Measures how much of a task can be had from short range alone (miralles2025 section 8, table 1).

A study trains convolutions with bounded kernels on the task, and this scores each of them, trained. What one scores
needs nothing beyond its receptive field, so each gives a point of a curve, and a model that sees everything gives the
line that the curve rises to:

    kernel=5    0.45        kernel=61    0.53        kernel=all    0.61
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from levelfield.evaluate import label_scores, score_row
from levelfield.spec import Examples, Probe, Row, Run, SplitName, Task

if TYPE_CHECKING:
    from levelfield.model import Network


@dataclass(frozen=True)
class Locality(Probe):
    """The model's test score, placed at the kernel it is bounded by.

    The rows go by the mixer's name, not the model's, so that models that differ in their kernel make one curve.
    """

    name: ClassVar[str] = "locality"

    def measure(self, net: Network, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Yields one row for the score at "kernel=K" (or "kernel=all"), and one for the steps the whole stack sees."""
        scores = label_scores(net, run.task, load(run.task)["test"])
        bounds = [m.receptive_field for m in run.model.mixers]
        widest = None if None in bounds else max(b for b in bounds if b is not None)
        place = f"kernel={widest or 'all'}"
        mixer = "+".join(dict.fromkeys(m.label for m in run.model.mixers))
        yield score_row(run.task, scores, place) | Row(model=mixer)
        field = run.model.receptive_field
        if field is not None:
            yield Row(model=mixer, metric="receptive_field", unit="steps", at=place, value=float(field), status="ok")
