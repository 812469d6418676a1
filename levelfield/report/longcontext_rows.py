"""Finds the rows behind every number of a language model's page, and lists them at its end.

    index = listed({"official base": rows})       # each row now knows its list and its line there
    led([row, None, other])                       # Link("rows-official-base-vt", ...): where a line of a table leads
    lists(index, {"official base": gaps})         # what `plain_lists.section` draws

There is a list for each task, one for each baseline, and one for the averages that decide effective lengths: those are
computed for the page alone, and say of which rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from levelfield.report import effective_length, references
from levelfield.report.against_printed import pairs
from levelfield.report.links import back, marked, slug
from levelfield.report.plain_lists import Place, PlainIndex, PlainList, anchor_of, list_of
from levelfield.report.tables import Link
from levelfield.spec import Row

READING = (
    "A number in a table leads to its list here, or to its line there. A line is a row of the file, in percent; where "
    "it names no depth and no kind of question, it is of all questions of this length."
)
THINKING = "thinking_tokens"
Share = tuple[float, int]
Gaps = Mapping[tuple[str, int], tuple[Share, Share]]
"""By task and length: match in the outer thirds of the text and in the middle one, each with its samples."""


def listed(parts: Mapping[str, Sequence[Row]]) -> PlainIndex:
    """Returns the lists of all parts of a page; in each, what is of all questions of a length comes first."""
    return PlainIndex.of([(_place(name, row), row) for name, rows in parts.items() for row in sorted(rows, key=_rank)])


def _rank(row: Row) -> tuple[bool, bool]:
    return row.get("protocol") == "none", set(pairs(row.get("at", ""))) != {"length"}


def _place(part: str, row: Row) -> Place:
    metric, task, at = row.get("metric", ""), row.get("task", ""), row.get("at", "")
    if row.get("protocol") == "none":
        return Place((part, row.get("model", "")), (task, at))
    if metric == THINKING:
        return Place((part, THINKING), (task, at))
    return Place((part, task), ("" if metric == "accuracy" else metric, at))


def led(cells: Sequence[Row | None], named: bool = False) -> Link:
    """Returns where a line of a table leads whose cells after the first are of these rows: each to its own line.

    named: whether the way back from the list leads here; then the first of them leads to the list as a whole.
    """
    lines = {index: anchor_of(row) for index, row in enumerate(cells, start=1) if row}
    to = next((list_of(row) if named else anchor_of(row) for row in cells if row), "")
    return Link(to, back(to) if named and to else "", lines)


def averages(part: str, rows: Sequence[Row]) -> PlainList | None:
    """Returns the averages over RULER's tasks by length, with their intervals; None where no such task was asked."""
    kept = effective_length.of_ruler(effective_length.cells_of(rows))
    tasks = list(next(iter(kept.values()), {}))
    if not tasks:
        return None
    own = {row.get("task", ""): list_of(row) for row in rows if row.get("metric") == "accuracy"}
    links = ", ".join(marked(task, own[task]) for task in tasks)
    told = (f"Computed from the match of {links}; the interval is joined from Wilson's interval of each task.",)
    made = []
    for length, cells in kept.items():
        for ending, value in zip(("", " low", " high"), effective_length.interval(cells), strict=True):
            made.append(Row(at=f"length={length}", metric=f"average{ending}", unit="percent", value=100 * value))
    return PlainList(slug("computed", part, "averages"), " ".join(filter(None, (part, "averages"))), made, told)


def lists(index: PlainIndex, gaps: Mapping[str, Gaps], made: Sequence[PlainList]) -> Iterator[PlainList]:
    """Yields the lists of a page. gaps: those of each part. made: lists of what is computed for the page alone."""
    for (part, name), each in index.lists.items():
        told = [
            f"The gap at {length}: {_share(outer)} in the outer thirds of the text, {_share(inner)} in the middle one."
            for (task, length), (outer, inner) in gaps.get(part, {}).items()
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
    return f"{100 * share[0]:.1f} % of {share[1]:,}"
