"""Finds the rows behind every number of a language model's page, and lists them at its end.

    index = listed({"official base": rows})       # each row now knows its list and its line there
    led([row, None, other])                       # Link("rows-official-base-vt", ...): where a line of a table leads
    lists(index, {"official base": gaps})         # what `plain_lists.section` draws

There is a list for each task, one for each baseline, one for the averages that decide effective lengths, and one for
each panel of the curves by group: averages are computed for the page alone, and say of which rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from levelfield.report import effective_length, references
from levelfield.report.against_printed import pairs
from levelfield.report.effective_length import Cells
from levelfield.report.group_curves import Anchors, Panel
from levelfield.report.links import back, marked, slug
from levelfield.report.plain_lists import ListLine, PlainIndex, PlainList, anchor_of, list_of
from levelfield.report.tables import Link
from levelfield.spec import Row
from levelfield.spec.gap import Gap, Share

READING = (
    "A number in a table leads to its list here, or to its line there. A line is a row of the file, in percent; where "
    "it names no depth and no kind of question, it is of all questions of this length. Where a question has several "
    "needles, a line with a depth counts each value that is asked for by itself."
)
OTHER = {"last_line_f1": "last line"}
"""Scores that some tasks have beside match and the strict one, and what lines of the table call them."""
THINKING = "thinking_tokens"
WITHHELD = "withheld"
ENDED = "ended_thinking"
AVERAGES = "averages"
Gaps = Mapping[tuple[str, int], Gap]
"""By task and length."""


def listed(parts: Mapping[str, Sequence[Row]]) -> PlainIndex:
    """Returns the lists of all parts of a page; in each, what is of all questions of a length comes first."""
    return PlainIndex.of([(_place(name, row), row) for name, rows in parts.items() for row in sorted(rows, key=_rank)])


def _rank(row: Row) -> tuple[bool, bool]:
    return row.get("protocol") == "none", set(pairs(row.get("at", ""))) != {"length"}


def _place(part: str, row: Row) -> ListLine:
    metric, task, at = row.get("metric", ""), row.get("task", ""), row.get("at", "")
    if row.get("protocol") == "none":
        return ListLine((part, row.get("model", "")), (task, at))
    if metric in (THINKING, WITHHELD, ENDED):
        return ListLine((part, metric), (task, at))
    return ListLine((part, task), ("" if metric == "accuracy" else metric, at))


def led(cells: Sequence[Row | None], named: bool = False) -> Link:
    """Returns where a line of a table leads whose cells after the first are of these rows: each to its own line.

    named: whether the way back from the list leads here; then the first of them leads to the list as a whole.
    """
    lines = {index: anchor_of(row) for index, row in enumerate(cells, start=1) if row}
    to = next((list_of(row) if named else anchor_of(row) for row in cells if row), "")
    return Link(to, back(to) if named and to else "", lines)


def deciding(model: str, rows: Sequence[Row]) -> list[Panel]:
    """Returns what decides the effective length, as a panel; [] where no task of RULER was asked."""
    kept = effective_length.of_ruler(effective_length.cells_of(rows, every=True))
    return [Panel(AVERAGES, {model: kept})] if next(iter(kept.values()), {}) else []


def average_list(part: str, *names: str) -> str:
    """Returns the anchor of the averages that are so called."""
    return slug("computed", part, *names)


def means(part: str, panels: Iterable[Panel], own: Mapping[str, str]) -> tuple[list[PlainList], Anchors]:
    """Returns the averages of all panels with their intervals, a list for each model, and where each point leads.

    Panels of the same tasks and lengths share a list. own: where the page lists each task.
    """
    made, anchors = dict[object, PlainList](), dict[tuple[str, str, int], str]()
    for panel in panels:
        for model, by in panel.models.items():
            tasks = list(next(iter(by.values())))
            names = [panel.title, model] if len(panel.models) > 1 else [panel.title]
            mine = made.setdefault((model, *tasks, *by), _averages(part, names, by, [marked(t, own[t]) for t in tasks]))
            anchors |= {(panel.title, model, n): _line(mine.anchor, n) for n in by}
    return list(made.values()), anchors


def _averages(part: str, names: Sequence[str], by: Mapping[int, Cells], tasks: Sequence[str]) -> PlainList:
    anchor, rows = average_list(part, *names), []
    for length, cells in by.items():
        row = Row(at=f"length={length}", metric="average", unit="percent")
        ends = zip(("value", "low", "high"), effective_length.interval(cells), strict=True)
        rows.append(cast("Row", {**row, "anchor": _line(anchor, length)} | {name: 100 * end for name, end in ends}))
    told = f"Computed from the match of {', '.join(tasks)}; the interval is joined from Wilson's interval of each task."
    return PlainList(anchor, " ".join(filter(None, (part, *names))), rows, (told,))


def _line(anchor: str, length: int) -> str:
    return slug(anchor, f"length={length}")


def lists(index: PlainIndex, gaps: Mapping[str, Gaps], made: Sequence[PlainList]) -> Iterator[PlainList]:
    """Yields the lists of a page. gaps: those of each part. made: lists of what is computed for the page alone."""
    for (part, name), each in index.lists.items():
        told = [
            f"The gap at {length}: {_share(outer)} in the outer thirds of the text, {_share(inner)} in the middle one."
            for (task, length), (outer, inner, _) in gaps.get(part, {}).items()
            if task == name
        ]
        if name == references.AVERAGE:
            tasks = [(task, found.anchor) for (own, task), found in index.lists.items() if own == part]
            links = ", ".join(marked(task, anchor) for task, anchor in tasks if task in effective_length.TASKS)
            told.append(f"A line is the mean of the lines of {links}.")
        if any(row.get("protocol") == "none" for row in each.rows):
            told.append("The table has their mean at each length.")
        yield replace(each, told=told)
    yield from made


def _share(share: Share) -> str:
    return f"{100 * share.mean:.1f} % of {share.n:,}"
