"""Shows printed tables as they are printed, cells checked where they follow from others, beside what was measured.

build(TableData(study, printed, recomputed, answers), Path("report/huang2024_table1"))
# report.html  summary.md  cells.csv  answers.csv  figure.svg  figure.png

| model       | line          | 1024      | 2048      | ...
| mamba2_2.7b | printed       | 38.52 =   | 32.91 =   |          = follows from other printed cells, and agrees
|             | ours (paper)  | 37.9 (37 to 39) | ...
|             | ours - printed| −0.6      | +0.1      |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from levelfield.report import heatmaps
from levelfield.report.against_printed import pairs
from levelfield.report.intervals import wilson
from levelfield.report.page import document
from levelfield.report.plots import Figure
from levelfield.report.stats import independent
from levelfield.report.tables import Column, Table, number, prose, signed, to_csv
from levelfield.report.write import write
from levelfield.spec import Row
from levelfield.spec.study import MeasuredCell

AGREE = 0.0101  # rounding of a mean's parts and of the mean, both to two decimals
CellKey = tuple[str, str, str, str]  # table, model, task, at


@dataclass(frozen=True)
class TableData:
    """Everything that the page of a survey shows.

    recomputed: printed cell -> what follows for it from others. marks: printed cell -> its sign. legend: sign -> what
    it means. across: the key of `at` whose values are the columns.
    """

    name: str
    claim: str
    deviations: Sequence[str]
    printed: Sequence[Row]
    recomputed: Mapping[CellKey, float]
    marks: Mapping[CellKey, str]
    legend: Mapping[str, str]
    across: str
    measured: Sequence[MeasuredCell]
    verdict: str


def cell_key(row: Row) -> CellKey:
    return row.get("table", ""), row.get("model", ""), row.get("task", ""), row.get("at", "")


def agrees(data: TableData, row: Row) -> bool | None:
    """Whether a printed cell is what follows from others; None where nothing does."""
    found = data.recomputed.get(cell_key(row))
    return None if found is None else abs(found - row.get("value", 0.0)) <= AGREE


def build(data: TableData, to: Path) -> list[Path]:
    """Writes the report into the folder `to` and returns its files, the page first."""
    texts = {"report.html": html(data), "summary.md": summary(data)}
    texts["cells.csv"] = to_csv([_cell_record(data, row) for row in data.printed])
    if data.measured:
        texts["answers.csv"] = to_csv([_answer_record(answer) for answer in data.measured])
    found = figure(data)
    return write(to, texts, {"figure": found} if found else {}, stale=("answers.csv", "figure.svg", "figure.png"))


def _cell_record(data: TableData, row: Row) -> dict[str, Any]:
    record = dict(zip(("table", "model", "task", "at"), cell_key(row), strict=True)) | {"printed": row.get("value")}
    record |= {"recomputed": data.recomputed.get(cell_key(row)), "agrees": agrees(data, row)}
    return {k: v for k, v in (record | {"marks": data.marks.get(cell_key(row), "")}).items() if v not in (None, "")}


def _answer_record(answer: MeasuredCell) -> dict[str, Any]:
    record = {**answer.row, "beside": answer.printed_model, "line": answer.label, "printed": answer.printed}
    difference = None if answer.printed is None else answer.row.get("value", 0.0) - answer.printed
    return {k: v for k, v in (record | {"difference": difference}).items() if v not in (None, "")}


def checked(data: TableData) -> str:
    """What recomputing the derived cells gave, in words."""
    found = [agree for row in data.printed if (agree := agrees(data, row)) is not None]
    return f"{len(found)} printed cells follow from others; {sum(found)} of them agree." if found else ""


def summary(data: TableData) -> str:
    """Tables, signs and deviations as Markdown."""
    parts = [f"# {data.name}", data.verdict, f"Claim: {data.claim}", checked(data)]
    parts += [f"## Table {name}: {title}\n\n{table.markdown()}" for name, title, table in tables(data)]
    signs = [f"- {sign}: {text}" for sign, text in _signs(data).items()]
    parts += ["\n".join(signs), "Knowingly different from the printed experiment:"]
    parts.append("\n".join(f"- {text}" for text in data.deviations))
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _signs(data: TableData) -> dict[str, str]:
    usual = {"=": "Follows from other printed cells, and agrees.", "≠": "Follows from others as the second number."}
    usual["( to )"] = "95 % interval over samples (Wilson), of a mean over those of its parts together."
    return usual | dict(data.legend)


def html(data: TableData) -> str:
    """The same as one page that loads nothing."""
    lead, _, rest = data.verdict.partition(". ")
    said = (
        f"<h1>{escape(lead)}.</h1>",
        f'<p class="lead">{escape(rest)}</p>',
        f"<p>Claim: {escape(data.claim)}</p>",
    )
    parts = [f"<header>{''.join(said)}<p>{escape(checked(data))}</p></header>"]
    for name, title, table in tables(data):
        parts.append(f"<section><h2>Table {escape(name)}: {escape(title)}</h2>{table.html()}</section>")
    signs = [f"{sign}: {text}" for sign, text in _signs(data).items()]
    for title, items in (("Signs", signs), ("Knowingly different from the printed experiment", data.deviations)):
        inside = "".join(f"<li>{prose(item)}</li>" for item in items)
        parts.append(f"<section><h2>{title}</h2><ul>{inside}</ul></section>")
    return document(data.name, parts)


def tables(data: TableData) -> Iterator[tuple[str, str, Table]]:
    """(number, what it is of, table) of every printed table."""
    for name in dict.fromkeys(row.get("table", "") for row in data.printed):
        printed = [row for row in data.printed if row.get("table") == name]
        answers = [answer for answer in data.measured if answer.row.get("table") == name]
        yield name, ", ".join(dict.fromkeys(row.get("task", "") for row in printed)), _table(data, printed, answers)


def _split(data: TableData, row: Row) -> tuple[tuple[str, str], str]:
    """What stands at the left of a cell (its task, and its place but for the key that runs across), and its column."""
    at = pairs(row.get("at", ""))
    column = at.pop(data.across, "")
    return (row.get("task", ""), ", ".join(f"{key} {value}" for key, value in at.items())), column


def _order(column: str) -> tuple[bool, float]:
    return not column.isdigit(), float(column) if column.isdigit() else 0.0


def _table(data: TableData, printed: Sequence[Row], answers: Sequence[MeasuredCell]) -> Table:
    """Printed models in their order, each with ours below it, then models that are not printed."""
    every = [*printed, *(a.row for a in answers)]
    columns = sorted(dict.fromkeys(_split(data, row)[1] for row in every), key=_order)
    several = len({_split(data, row)[0] for row in every}) > 1
    rows: list[tuple[str, ...]] = []
    for model in dict.fromkeys([*(row.get("model", "") for row in printed), ""]):
        mine = [row for row in printed if row.get("model") == model]
        ours = [answer for answer in answers if answer.printed_model == model]
        for left in sorted(dict.fromkeys(_split(data, row)[0] for row in [*mine, *(a.row for a in ours)])):
            label = ", ".join(part for part in (model, *left * several) if part)
            theirs = [row for row in mine if _split(data, row)[0] == left]
            measured = [answer for answer in ours if _split(data, answer.row)[0] == left]
            rows += _lines(data, label, columns, theirs, measured)
    heads = [Column("average" if c == "average" else f"{data.across} {c}", True) for c in columns]
    return Table((Column("model"), Column("line"), *heads), tuple(rows))


def _lines(
    data: TableData,
    label: str,
    columns: Sequence[str],
    printed: Sequence[Row],
    mine: Sequence[MeasuredCell],
) -> Iterator[tuple[str, ...]]:
    """Yields the printed line of a model at one place and, for each line of ours there, that and its difference."""
    theirs = {_split(data, row)[1]: _shown(data, row) for row in printed}
    if theirs:
        yield (label, "printed", *(theirs.get(column, "") for column in columns))
    for name, line in dict.fromkeys((a.row.get("model", ""), a.label) for a in mine):
        found = {_split(data, a.row)[1]: a for a in mine if (a.row.get("model"), a.label) == (name, line)}
        values = [_measured(found[c]) if c in found else "" for c in columns]
        yield (name if theirs else ", ".join(p for p in (name, label) if p), line, *values)
        apart = {c: a.row.get("value", 0.0) - a.printed for c, a in found.items() if a.printed is not None}
        if apart:
            yield ("", "difference", *(signed(apart[c]) if c in apart else "" for c in columns))


def _shown(data: TableData, row: Row) -> str:
    agree, value = agrees(data, row), number(row.get("value"), 2)
    other = "" if agree is None else " =" if agree else f" ≠ {number(data.recomputed[cell_key(row)], 2)}"
    sign = data.marks.get(cell_key(row), "")
    return value + other + (f" [{sign}]" if sign else "")


def _measured(answer: MeasuredCell) -> str:
    """Shows a value with Wilson's 95 % interval over samples, which is not empty where none or all are right."""
    value, samples = answer.row.get("value"), independent(answer.row)
    if value is None or not samples:
        return number(value)
    low, high = (100 * limit for limit in wilson(value / 100, samples))
    return f"{number(value)} ({number(low)} to {number(high)})"


def figure(data: TableData) -> Figure | None:
    """Scores by length: of one table a panel for print and one for ours; of several a panel for each model."""
    if data.across != "length":
        return None
    one = len({row.get("table") for row in data.printed}) == 1
    panels: dict[str, dict[tuple[str, float], list[float]]] = {}
    for ours, row in [*((False, row) for row in data.printed), *((True, a.row) for a in data.measured)]:
        length, model = pairs(row.get("at", "")).get("length", ""), row.get("model", "")
        if length.isdigit() and (value := row.get("value")) is not None:
            title, name = (("measured" if ours else "printed"), model) if one else (model, row.get("task", ""))
            panels.setdefault(title, {}).setdefault((name, float(length)), []).append(value)
    return heatmaps.draw(panels, "", (0.0, 100.0), "answers found (%)")
