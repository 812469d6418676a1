"""Finds the rows behind every number of a report, and names the place on the page where they are listed.

    index = RowIndex.of(tables, results)
    index.anchor(arm, "accuracy")       # "rows-listops-s4-scratch-accuracy"
    study.verdict(index.rows)           # the scores in its sentences know where their rows are listed

A cell of the main tables has one list: the scores it is computed from and, below them, whatever else was measured of
the same runs: slices, probes, validation. `row_lists` draws the lists.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

from levelfield.report.arms import Arm
from levelfield.report.cells import Cell, Cells, is_baseline, is_score, row_value, rule_of
from levelfield.report.links import slug
from levelfield.runs.results import Results
from levelfield.spec import Row
from levelfield.spec.study import fuller, percent


class Place(NamedTuple):
    """What was measured of a run besides its score, and where: ("accuracy", "test", "length=2000")."""

    metric: str
    split: str
    at: str


@dataclass(frozen=True)
class Placed:
    """The rows of an arm at one place, by run."""

    anchor: str
    rows: dict[str, Row] = field(default_factory=dict)


@dataclass(frozen=True)
class RowList:
    """The rows of one cell, whose scores are in the cell itself."""

    anchor: str
    metric: str
    cell: Cell
    elsewhere: dict[Place, Placed] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleList:
    """The rows of the rules that learn no sequence model, on one task by one metric, and the anchors of their lines."""

    anchor: str
    task: str
    metric: str
    unit: str
    rows: dict[str, Row] = field(default_factory=dict)
    anchors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RowIndex:
    """Every list of a report. rows: all its rows, each with the anchor of its list where it has one."""

    lists: Sequence[RowList]
    rules: Mapping[tuple[str, str], RuleList]  # by task and metric
    rows: Sequence[Row]
    ledgers: Mapping[str, Mapping[str, Any]]  # by run

    @classmethod
    def of(cls, tables: Sequence[Cells], results: Results) -> RowIndex:
        """Returns the lists of all cells, table by table, in one pass over the rows."""
        names = Names()
        lists, rules = list(_lists(tables, names)), _rules(tables, names)
        placing = _Placing(lists, rules, names)
        rows = [cast("Row", {**row, "anchor": placing.anchor(row)}) for row in results.compared]
        return cls(lists, rules, rows, results.ledgers)

    def anchor(self, arm: Arm, metric: str = "") -> str:
        """Returns the anchor of a cell's list, or of an arm's first; "" where there is none."""
        return self._anchors.get((arm, metric), "")

    def marked(self, tables: Sequence[Cells]) -> list[Cells]:
        """Returns the tables with cells that know where their rows are listed."""
        return [
            replace(t, cells=tuple(replace(cell, anchor=self.anchor(cell.arm, t.metric)) for cell in t.cells))
            for t in tables
        ]

    def named(self, anchor: str) -> str:
        """Says what the rows at an anchor are of: "listops, s4 · scratch"; "" where there are none."""
        return self._titles.get(anchor, "")

    def scores(self, anchor: str) -> list[float]:
        """Returns the finite test scores at an anchor, in percent, as a verdict reads them."""
        return self._scores.get(anchor, [])

    @cached_property
    def _scores(self) -> Mapping[str, list[float]]:
        found: dict[str, dict[str, Row]] = {}
        for row in self.rows:
            if row.get("anchor") and row.get("split", "test") == "test" and math.isfinite(percent(row)):
                by_run, run = found.setdefault(str(row.get("anchor")), {}), row.get("run", "") or row.get("model", "")
                by_run[run] = fuller(by_run.get(run), row)
        return {anchor: list(map(percent, by_run.values())) for anchor, by_run in found.items()}

    @cached_property
    def _titles(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for each in self.lists:
            title = found[each.anchor] = f"{each.cell.arm.task}, {each.cell.arm}"
            found |= {placed.anchor: f"{title}, {place.at or place.metric}" for place, placed in each.elsewhere.items()}
        for rules in self.rules.values():
            found |= {anchor: f"{rules.task}, {name.replace('_', ' ')}" for name, anchor in rules.anchors.items()}
        return found

    @cached_property
    def _anchors(self) -> Mapping[tuple[Arm, str], str]:
        found = {(each.cell.arm, each.metric): each.anchor for each in self.lists}
        return {(each.cell.arm, ""): each.anchor for each in reversed(self.lists)} | found


class Names:
    """Gives every list, and every row that has one, a name of its own, whatever the names that it is made of."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}  # name -> the number of the latest one that is made of it

    def new(self, *parts: str) -> str:
        """Returns an anchor that no other has: of equal names, the second ends in -2."""
        name = wanted = slug(*parts)
        while name in self._used:
            self._used[wanted] += 1
            name = f"{wanted}-{self._used[wanted]}"
        self._used[name] = 1
        return name


def _lists(tables: Sequence[Cells], names: Names) -> Iterable[RowList]:
    for cells in tables:
        for task in cells.tasks:
            for cell in cells.of(task):
                name = names.new("rows", task, cell.arm.model_label, cell.arm.protocol, cells.metric)
                yield RowList(name, cells.metric, cell)


def _rules(tables: Sequence[Cells], names: Names) -> dict[tuple[str, str], RuleList]:
    return {
        (task, cells.metric): RuleList(names.new("rules", task, cells.metric), task, cells.metric, cells.unit)
        for cells in tables
        for task in cells.baselines
    }


class _Placing:
    """Puts rows into their lists."""

    def __init__(self, lists: Sequence[RowList], rules: Mapping[tuple[str, str], RuleList], names: Names) -> None:
        self._names, self._rules = names, rules
        self._metrics = tuple(dict.fromkeys(metric for _, metric in rules))
        self._own = {(score.run, each.metric): each for each in lists for score in each.cell.scores}
        self._first: dict[str, RowList] = {}
        for (run, _), each in self._own.items():
            self._first.setdefault(run, each)

    def anchor(self, row: Row) -> str:
        """Puts a row into its list and returns where it stands; "" for one of no run that is shown."""
        found = [anchor for metric in self._metrics if (anchor := self._rule(row, metric))]
        if is_baseline(row):
            return found[0] if found else ""
        run, metric = row.get("run", ""), row.get("metric", "")
        own = self._own.get((run, metric)) or self._first.get(run)
        if own is None:
            return ""
        if is_score(row) and metric == own.metric:
            return own.anchor
        place = Place(metric, row.get("split", ""), row.get("at", ""))
        if place not in own.elsewhere:
            parts = [part for part, usual in zip(place, (own.metric, "test", ""), strict=True) if part != usual]
            own.elsewhere[place] = Placed(self._names.new(own.anchor, *parts))
        rows = own.elsewhere[place].rows
        rows[run] = fuller(rows.get(run), row)
        return own.elsewhere[place].anchor

    def _rule(self, row: Row, metric: str) -> str:
        """Puts the row of a rule into its list, and returns its line there; "" for any other row."""
        name = rule_of(row, metric)
        found = self._rules.get((row.get("task", ""), metric)) if name else None
        if found is None:
            return ""
        if name not in found.rows and row_value(row) is not None:  # a rule is stored again with every run
            found.rows[name], found.anchors[name] = row, self._names.new(found.anchor, name)
        return found.anchors.get(name, found.anchor)
