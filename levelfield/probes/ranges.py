"""Asks a trained model at its certified range and beyond it.

    asked=256,trained=256   1.00        asked=512,trained=256   0.93        asked=1024,trained=256   0.51

Whether a model bridges a range after training at that range is one question, and whether it then bridges longer ones
is another; both are about ranges that are proved to be needed (docs/reach.md). For models whose mixers declare that
they see a bounded number of steps this number is a row too, and reports draw what is proved from it. Whether it is true
of the trained model at what it is asked there shows in the row `twin_gap`: how far its outputs for twins, sequences
between which no window of so many steps tells, lie apart in double precision. Where a layer computes a part in single
precision even so, that row is `twin_gap_single`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from levelfield.evaluate import label_outputs, label_scores, score_row
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

        Where these are no more than R, another row at that place says how far apart its outputs for twins are.

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
            test, at = load(asked)["test"], f"asked={factor * trained},trained={trained}"
            yield score_row(asked, label_scores(net, asked, test), at)
            if field is not None and field <= factor * trained:
                yield from _twin_gap(net, asked, test, at)


def _twin_gap(net: Network, task: Task, test: Examples, at: str) -> Iterator[Row]:
    """Yields the largest difference of an output between twins, as a part of the largest output, in double precision.

    None where the task has no twins, an output is not finite, or a layer does not take double precision.
    """
    if task.twins == 1:
        return
    seen = _Precisions()
    try:
        exact = deepcopy(net).double()
        with seen:
            outputs = label_outputs(exact, task, test)
    except (Exception, SystemExit):  # whatever a user's own layer raises
        return
    outputs = outputs.double().unflatten(0, (-1, task.twins))
    most, gap = float(outputs.abs().amax()), float((outputs.amax(1) - outputs.amin(1)).amax())
    if math.isfinite(most):
        metric = "twin_gap_single" if seen.single else "twin_gap"
        found = Row(metric=metric, unit="", at=at, split="test", value=gap / most if most else 0.0)
        yield found | Row(n=len(outputs), status="ok")


class _Precisions(TorchDispatchMode):
    """Watches what is computed in its scope. single: whether some of it is of fewer digits than double precision, as
    norms of some layers always are, whose rounding is then much larger."""

    single = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            self.single |= isinstance(each, Tensor) and each.is_floating_point() and each.dtype != torch.float64
        return made
