"""Defines a study, what its report shows, and the rows that it measures or answers to.

A study is one file that ends in such a value, so that its claim, its runs and its verdict are read together:

    study = Study(name="demo", claim="...", runs=runs, views=(ReportView("gap", "What pretraining adds"),))
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, final

from levelfield.spec.errors import check_literals
from levelfield.spec.identity import OwnCode
from levelfield.spec.recipe import Search
from levelfield.spec.run import Run
from levelfield.spec.task import SplitName, Task

if TYPE_CHECKING:
    from levelfield.spec.examples import Examples

Effort = Literal["smoke", "minutes", "overnight", "hours", "paper"]


EFFORTS: tuple[Effort, ...] = ("smoke", "minutes", "overnight", "hours", "paper")


class Row(TypedDict, total=False):
    """One number, measured or printed. A key that does not apply is absent."""

    source: str  # "levelfield", or the paper's key
    table: str
    study: str
    effort: str
    run: str
    task: str
    model: str
    protocol: str
    seed: int
    numerics: str  # of a run whose numerics are not the default, such as "bf16-compile"
    at: str  # where it was measured: "length=2000", "kernel=5", "root=MAX", ...
    split: str
    metric: str
    unit: str
    value: float
    n: int  # examples behind the value
    n_effective: float  # independent examples that would tell as much, where those behind the value come in groups
    positions: int  # that a language model was made for; a length beyond them is extrapolated
    stderr: float
    asked: str  # how questions were put to a language model behind a server, and whether lengths are approximate
    status: str  # ok, chance, diverged, undefined; published: reported, chance, infeasible, unreported, derived
    origin: str


SHARES = ("accuracy", "step_accuracy", "f1")
"""Metrics from 0 to 1 whose values of examples spread no more than those of right and wrong ones with their mean.

Losses, errors, R2, ranges and metrics of a user's own may exceed 1.
"""
_WHOLE = {"fraction": 1.0, "percent": 100.0}


def unit_of(metric: str) -> str:
    """Returns the unit in which runs give a score of that metric: "fraction" of a share, "" of others."""
    return "fraction" if metric in SHARES else ""


def percent(row: Row, key: Literal["value", "stderr"] = "value") -> float:
    """Returns a share of 1 in percent, whichever of the two its unit is: runs give fractions, language models percent.

    It is nan where the row has no such number.
    """
    return 100 / _WHOLE.get(row.get("unit", "fraction"), 1.0) * row.get(key, math.nan)


def fuller(held: Row | None, row: Row) -> Row:
    """Returns of two rows of one run at one place, as two probes may write, that of more examples, else the first."""
    return row if held is None or row.get("n", 0) > held.get("n", 0) else held


def guessed(share: float, floor: float, examples: float) -> bool:
    """Returns whether a share, from 0 to 1, is no better than guessing: within two binomial standard errors of a floor.

    examples: independent ones; the steps of one sequence are not, whatever the number that ask for a label.
    """
    return share <= floor + 2 * math.sqrt(max(0.0, floor * (1 - floor)) / max(1.0, examples))


def impossible(row: Row) -> str | None:
    """Returns what is wrong with a score that is a share, in words; None where nothing is, or it is not finite."""
    metric, value = row.get("metric", ""), row.get("value", 0.0)
    whole = _WHOLE.get(row.get("unit", "fraction"))
    shares = (*SHARES, "strict_accuracy")  # the last is of language models alone
    if metric not in shares or whole is None or not math.isfinite(value) or -1e-6 <= value <= whole * (1 + 1e-6):
        return None
    return f"{metric.replace('_', ' ')} {value:g}, which does not lie between 0 and {whole:g}"


@dataclass(frozen=True)
class Published:
    """The printed rows that a study answers to: one table of one paper, as `levelfield.published` has it."""

    paper: str
    table: str


@dataclass(frozen=True)
class ReportView:
    """A figure or table of the report, by the name of a function in `report/`, with its settings.

    axis: of "curve", the key of `at` on x, such as "kernel"; of "heat", the one on y; of "ranges", what is on x, the
    range "trained" at or the one that is "asked".
    """

    kind: Literal["scorecard", "compare", "gap", "curve", "ranges", "training", "slices", "heat"]
    title: str
    metric: str = "accuracy"
    axis: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        check_literals(self)


@dataclass(frozen=True)
class Probe(ABC, OwnCode):
    """A measurement on a trained model, which yields rows. It neither trains nor writes files."""

    name: ClassVar[str]

    @abstractmethod
    def measure(self, net: Any, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Yields rows with `at`, `metric`, `value`, `n`; the caller fills in the run's columns.

        net: the network of the run, in eval mode. load: gives the splits of a task.
        """


UNTUNED = "One untuned recipe for every arm, so an architecture that wants another one is at a disadvantage."
"""One of a study's deviations until its arms are tuned alike."""

GUESSES = ("chance", "label_prior")
"""The rules whose higher score is the floor: what guessing gives that knows the labels' frequencies at most."""

PARTS = ("one_level",)
"""The rules that do a part of what their task asks, such as reading the first level of nested expressions. A model that
scores less may have learnt something, so they are no bar to having learnt; they say how much a score shows."""


AT_CAP = "phases_at_cap"
"""The metric of a run's share of phases that ended at their cap, where they might have ended by patience."""


@final
@dataclass(frozen=True)
class Study:
    """A claim, the runs that test it, the printed rows that it answers to, and what its report shows.

    A study with a search tunes every arm before its runs (`levelfield/engine/tuning.py`), at the efforts in `tuned_at`.
    A study that trains nothing, and evaluates language models that others trained, is a `Survey`
    (`levelfield.longcontext.survey`).
    """

    name: str
    claim: str
    runs: Callable[[Effort], Sequence[Run]]
    published: tuple[Published, ...] = ()
    views: tuple[ReportView, ...] = ()
    probes: Callable[[Run], Sequence[Probe]] = lambda run: ()
    verdict: Callable[[Sequence[Row]], str] | None = None
    deviations: tuple[str, ...] = ()  # where it knowingly differs from the printed experiment
    search: Search | None = None
    tuned_at: tuple[Effort, ...] = EFFORTS

    def search_at(self, effort: Effort) -> Search | None:
        return self.search if effort in self.tuned_at else None


@dataclass(frozen=True)
class MeasuredCell:
    """A measured number in the place of a printed one.

    row: `table`, `task` and `at` as printed, and whatever name our model goes by. printed_model: the model of the table
    that it stands beside; "" where no table has it. label: what this is, such as "ours". printed: the number of the
    same quantity that is printed, or follows from what is; None where nothing is comparable. parts: the rows that it is
    the mean of, where a verdict has to know them.
    """

    row: Row
    printed_model: str
    label: str
    printed: float | None
    parts: tuple[Row, ...] = ()
