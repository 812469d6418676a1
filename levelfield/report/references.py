"""Gives printed averages of RULER as references: those of its public table, and those of huang2024.

    table([4096, 8192], {4096: 91.2})     # who prints what at these lengths, below ours
    lines([4096, 8192])                   # the same as lines of a figure, which lead to the rows of that table

They say what other models reach, not what this model should: variant, template, samples and texts are others than ours,
so every line names its variant and no difference is computed. `levelfield report huang2024_table1` compares a model
that was asked as that paper did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from levelfield import published
from levelfield.report.links import slug
from levelfield.report.tables import Column, Link, Table
from levelfield.spec import Row

AVERAGE = "ruler_average"
LEAD = (
    "Printed averages of RULER's 13 tasks at the same lengths. They are references and no counterparts: variant, "
    "template, samples and texts differ from ours."
)


class Line(NamedTuple):
    """A printed model: (length, score in percent) in order. dashed: of huang2024. anchor: of its row in the table."""

    model: str
    variant: str
    source: str
    points: tuple[tuple[int, float], ...]
    dashed: bool = False
    anchor: str = ""


def lines(lengths: Sequence[int], named: str = "") -> list[Line]:
    """Returns every printed model that has a score at one of these lengths at least.

    named: what the anchors of their rows begin with; "" where no page has these rows.
    """
    known = published.library()
    rows = [row for row in published.rows("huang2024", "1") if row.get("at") != "length=average"]
    found: dict[tuple[str, str], list[Row]] = {}
    for row in [*published.ruler_table(), *rows]:
        found.setdefault((row.get("source", ""), row.get("model", "")), []).append(row)
    made = []
    for (paper, model), printed in found.items():
        points = {int(row.get("at", "").removeprefix("length=")): row.get("value", 0.0) for row in printed}
        kept = tuple((n, points[n]) for n in lengths if n in points)
        ours = paper == "huang2024"
        origin = printed[0].get("origin", "")
        source = "huang2024, table 1" if ours else "RULER's public table"
        if not ours and origin != paper:
            source += f"; measured by the authors of {known[origin].title}"
        if kept:
            variant = "paper" if ours else "official"
            anchor = slug(named, variant, model) if named else ""
            made.append(Line(model, variant, source, kept, dashed=ours, anchor=anchor))
    return made


def table(
    lengths: Sequence[int], own: Mapping[str, Mapping[int, float]], variant: str, anchor: str = "", *, named: str = ""
) -> Table | None:
    """Returns the printed averages below our own; None where no printed model has one at these lengths.

    own: averages in percent by length, of each model. variant: of RULER, in which ours was asked. anchor: where the
    page has the rows of our own. named: what the anchors of printed rows begin with.
    """
    printed = lines(lengths, named)
    if not printed:
        return None
    rows = [
        (model, variant, "asked here", *(f"{found[n]:.1f}" if n in found else "" for n in lengths))
        for model, found in own.items()
        if found
    ]
    for line in printed:
        points = dict(line.points)
        cells = (f"{points[n]:.1f}" if n in points else "" for n in lengths)
        rows.append((line.model, line.variant, line.source, *cells))
    heads = Column("model"), Column("variant"), Column("from", wrap=True)
    mine = len(rows) - len(printed)
    links = (*(Link(anchor) for _ in rows[:mine]), *(Link("") for _ in printed))
    names = {mine + index: line.anchor for index, line in enumerate(printed) if line.anchor}
    return Table((*heads, *(Column(str(n), number=True) for n in lengths)), tuple(rows), links=links, names=names)


def section(
    lengths: Sequence[int], own: Mapping[str, Mapping[int, float]], variant: str, anchor: str = "", *, named: str = ""
) -> str:
    """Returns the table as HTML that is folded away; "" where there is none."""
    found = table(lengths, own, variant, anchor, named=named)
    if found is None:
        return ""
    summary = "<summary>What other models reach: printed averages</summary>"
    return f'<details>{summary}<p class="note">{LEAD}</p>{found.html()}</details>'


def averages(rows: Sequence[Row]) -> dict[int, float]:
    """Returns the averages of all 13 tasks that these rows have, in percent by length."""
    return {
        int(row.get("at", "").removeprefix("length=")): row.get("value", 0.0)
        for row in rows
        if row.get("task") == AVERAGE and row.get("metric") == "accuracy" and "value" in row
    }
