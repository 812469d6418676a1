"""Finds the printed counterparts of our cells: theirs, the difference, and what is not as printed.

    for match in counterparts_of(cell, spec, "accuracy", PrintedSources(study.published, references)):
        match.value, match.difference, match.unlike, match.status, match.origin, match.caveats

A printed row is matched by what a model is, not by what it is called: `published/aliases.csv` says which mixer and
which field values a printed name stands for. Whether the run is then the printed one is asked of the references: the
runs of the shipped studies at effort `paper`. Only a run with all settings of its reference has a difference to the
printed number; any other says what is not as printed (`unlike`). Nothing is ever called
reproduced: whether a difference matters is for the reader, who is given n, the interval and the caveats beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from levelfield import published
from levelfield.published import Alias
from levelfield.report.arms import Arm, field_values
from levelfield.report.cells import Cell, Cells, row_value
from levelfield.report.links import printed_anchor
from levelfield.report.settings import unlike
from levelfield.runs.results import Results
from levelfield.spec import Published, Row


@dataclass(frozen=True)
class Counterpart:
    """One printed cell beside ours. value is None for cells printed without a number.

    unlike: settings in which our run is not the printed one. difference: ours - theirs, where nothing is unlike.
    anchor: where a page lists the printed cell.
    """

    paper: str
    table: str
    model: str
    value: float | None
    difference: float | None
    status: str
    origin: str
    caveats: tuple[str, ...]
    unlike: tuple[str, ...] = ()
    anchor: str = ""

    @property
    def table_name(self) -> str:
        return f"{self.paper} {'table ' if self.table.isdigit() else ''}{self.table}"

    @property
    def where(self) -> str:
        """Returns the table and its source: "amos2025 table 2, quoting gu2022"."""
        return self.table_name + ("" if self.origin in ("", "this_paper") else f", quoting {self.origin}")


@dataclass(frozen=True)
class PrintedSources:
    """What may stand beside a study's cells: the tables it answers to, and the runs that have the printed settings.

    references: an arm and its description (`spec.describe`) each.
    """

    tables: Sequence[Published] = ()
    references: Sequence[tuple[Arm, Mapping[str, Any]]] = ()


UNKNOWN = "no study holds the settings of this printed run"
UNRECORDED = "the settings of this run are not recorded"


def pairs(at: str) -> dict[str, str]:
    """Splits a location, such as "length=1024;depth=50" or "layer=0,lag<=4", into keys and values."""
    return dict(re.findall(r"([^=<;,]+)<?=([^;,]*)", at))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def holds(where: str, spec: Mapping[str, Any]) -> bool:
    """Whether every "field=value|value" is true of a described run."""
    return all(
        any(_text(v) in wanted.split("|") for v in field_values(spec, name)) for name, wanted in pairs(where).items()
    )


def _mixers(spec: Mapping[str, Any]) -> set[str]:
    return {str(m.get("kind")) for m in spec.get("model", {}).get("mixers", [])}


def _model_caveats(arm: Arm, spec: Mapping[str, Any], row: Row, names: Sequence[Alias]) -> list[str] | None:
    """Caveats if the printed model is ours, else None. Without a description only equal names match."""
    of_model = [a for a in names if a.column == "model" and a.printed == row.get("model")]
    for alias in of_model:
        if alias.ours and _mixers(spec) == {alias.ours} and holds(alias.where, spec):
            return [alias.differs] if alias.differs else []
    if arm.model == row.get("model") and (not spec or not any(a.ours for a in of_model)):
        return [a.differs for a in of_model if a.differs]
    return None


def _protocol_caveats(arm: Arm, spec: Mapping[str, Any], row: Row, names: Sequence[Alias]) -> list[str] | None:
    if arm.protocol == row.get("protocol"):
        return []
    for alias in names:
        same = (alias.column, alias.printed, alias.ours) == ("protocol", row.get("protocol"), arm.protocol)
        if same and holds(alias.where, spec):
            return [alias.differs]
    return None


def our_location(at: str, names: Sequence[Alias]) -> dict[str, str]:
    """A printed `at` in our names: "kernel_size=5" is {"kernel": "5"}, "direction=causal" is {"causal": "true"}."""
    whole = {a.printed: a.ours for a in names if a.column == "at"}
    return {
        key: value
        for name, text in pairs(at).items()
        for key, value in pairs(whole.get(f"{name}={text}", f"{whole.get(name, name)}={text}")).items()
    }


def _placed(wanted: Mapping[str, str], at: str, spec: Mapping[str, Any]) -> bool:
    """Whether every key of a printed place is ours, in the row's own place or in the run's description."""
    here = pairs(at)
    if any(key not in wanted for key in here):
        return False
    return all(here.get(k) == v or v in [_text(x) for x in field_values(spec, k)] for k, v in wanted.items())


def match(arm: Arm, spec: Mapping[str, Any], row: Row, at: str = "") -> list[str] | None:
    """The caveats under which a printed row is the same cell as ours, or None."""
    names = published.aliases(row.get("source", ""), row.get("table", ""))
    if arm.task != row.get("task") or not _placed(our_location(row.get("at", ""), names), at, spec):
        return None
    model, protocol = _model_caveats(arm, spec, row, names), _protocol_caveats(arm, spec, row, names)
    return None if model is None or protocol is None else [*model, *protocol]


def unlike_printed(spec: Mapping[str, Any], row: Row, printed: PrintedSources, along: str = "") -> tuple[str, ...]:
    """What is not as printed in a run that a printed row may belong to; () where it is the printed run.

    along: a field whose value the row's place gives, such as the kernel of a curve.
    """
    if not spec:
        return (UNRECORDED,)
    stand = (reference for arm, reference in printed.references if match(arm, reference, row) is not None)
    return min((unlike(spec, reference, along) for reference in stand), key=len, default=(UNKNOWN,))


def counterparts_of(cell: Cell, spec: Mapping[str, Any], metric: str, printed: PrintedSources) -> list[Counterpart]:
    """Printed rows that answer to one of our cells. A row quoted by several tables is listed once."""
    found: dict[tuple[str, float | None], Counterpart] = {}
    for table in printed.tables:
        for row in published.rows(table.paper, table.table):
            caveats = match(cell.arm, spec, row) if row.get("metric") == metric else None
            if caveats is None:
                continue
            value, origin = row_value(row), row.get("origin", "")
            different = unlike_printed(spec, row, printed)
            ours = cell.summary.median if cell.summary and not different else None
            first = table.paper if origin == "this_paper" else origin
            new = Counterpart(
                paper=table.paper,
                table=table.table,
                model=row.get("model", ""),
                value=value,
                difference=ours - value if ours is not None and value is not None else None,
                status=row.get("status", ""),
                origin=origin,
                caveats=tuple(caveats),
                unlike=different,
                anchor=printed_anchor(row),
            )
            old = found.get((first, value))
            if old is None or len(different) < len(old.unlike):
                found[first, value] = new
    return list(found.values())


def all_counterparts(cells: Cells, results: Results, printed: PrintedSources) -> dict[Arm, list[Counterpart]]:
    """Matches of every cell; a cell without any is absent."""
    found: dict[Arm, list[Counterpart]] = {}
    for cell in cells.cells:
        spec = next((results.specs[s.run] for s in cell.scores if s.run in results.specs), {})
        if matches := counterparts_of(cell, spec, cells.metric, printed):
            found[cell.arm] = matches
    return found


def printed_curve(
    arm: Arm, spec: Mapping[str, Any], axis: str, metric: str, printed: PrintedSources
) -> list[tuple[float, float, str]]:
    """(axis value, printed value, anchor of the printed cell) of the same arm along an axis such as kernel or length,
    sorted; none for a run that is not the printed one."""
    points = dict[tuple[float, float], str]()
    for table in printed.tables:
        for row in published.rows(table.paper, table.table):
            names = published.aliases(table.paper, table.table)
            position = our_location(row.get("at", ""), names).get(axis, "")
            value = row_value(row)
            if row.get("metric") != metric or not position.isdigit() or value is None:
                continue
            if match(arm, spec, row, f"{axis}={position}") is not None and not unlike_printed(spec, row, printed, axis):
                points.setdefault((float(position), value), printed_anchor(row))
    return sorted((*point, anchor) for point, anchor in points.items())
