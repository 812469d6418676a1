"""Examines a task rule by rule and says of each whether it holds: what `levelfield check` shows of a task.

    for rule, fault in examine(Lookup(pairs=8), None):
        print(rule, fault or "holds")

Preparing a task checks its arrays once; this looks at more, and builds them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from levelfield.data import conformance, duplicates, prepared
from levelfield.spec import SPLITS, Examples, Progress, SplitName, Task, UserError, no_progress
from levelfield.spec.errors import format_error
from levelfield.spec.interrupt import raise_interrupt

Splits = Mapping[SplitName, Examples]
Shown = Callable[[], AbstractContextManager[Progress]]


def unseen() -> AbstractContextManager[Progress]:
    """A Shown that shows nothing."""
    return nullcontext(no_progress)


def examine(task: Task, sources: Path | None, shown: Shown = unseen) -> Iterator[tuple[str, str]]:
    """Yields each rule in words and what breaks it, "" where nothing does; what needs the arrays comes after them.

    sources: the folder of official files, for a task that reads some. shown: opened each time that the arrays are
    built, and told how far they are.
    """

    def build() -> Splits:
        with shown() as progress:
            return prepared.build(task, sources, progress)

    yield "it says what it is", _fault(lambda: _declared(task))
    built: list[Splits] = []
    fault = _fault(lambda: built.append(build()))
    yield "its arrays are as it declares", fault
    if not built:
        return
    yield "no example is in two splits", _fault(lambda: _disjoint(task, built[0]))
    yield "the same settings give the same bytes", _fault(lambda: _same(built[0], build()))
    yield "labels can be recomputed, where it says how", _fault(lambda: _recomputed(task, built[0]))
    yield "simple rules score at most 1", _fault(lambda: _baselines(task, built[0]))


def _fault(rule: Callable[[], object]) -> str:
    try:
        rule()
    except UserError as error:
        return str(error)
    except Exception as error:  # whatever a user's own task raises
        raise_interrupt(error)
        return format_error(error)
    return ""


def _declared(task: Task) -> None:
    conformance.check_members(task)
    if not 0 <= task.chance <= 1:
        raise UserError(f"Task {task.name} says that guessing scores {task.chance}: scores are from 0 to 1.")


def _disjoint(task: Task, splits: Splits) -> None:
    keys = {split: set(duplicates.hashed(splits[split], task.documents).tolist()) for split in SPLITS}
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        if shared := len(keys[one] & keys[other]):
            raise UserError(f"{shared} examples of {one} are in {other} too: cut the splits from distinct examples.")


def _same(first: Splits, again: Splits) -> None:
    for split in SPLITS:
        for name in ("x", "y", "offsets"):
            if not np.array_equal(getattr(first[split], name), getattr(again[split], name), equal_nan=True):
                raise UserError(
                    f"{name} of {split} is another when built again: draw from derive_seed(self.seed, ...)."
                )


def _recomputed(task: Task, splits: Splits) -> None:
    for split in SPLITS:
        again = task.recompute_labels(splits[split])
        if again is not None and (differ := np.flatnonzero(again != splits[split].y)).size:
            raise UserError(f"{differ.size} targets of {split} are not what their sequences say, first at {differ[0]}.")


def _baselines(task: Task, splits: Splits) -> None:
    for rule, score in task.baselines(splits["train"], splits["test"]).items():
        if not score <= 1:
            raise UserError(f"The rule {rule} scores {score}: scores are at most 1.")
