"""Lists the printed numbers that a report shows: a line for each, with the paper, the table and the cell it stands in.

    drawn({"printed-amos2025-2-s4-scratch-image-accuracy"})         # a list with the line of this row

A line is named by the cell itself (`links.printed_anchor`), so whoever shows a printed number needs but its row to lead
there.
"""

from __future__ import annotations

from collections.abc import Set

from levelfield import published
from levelfield.report.links import CELL, list_html, printed_anchor
from levelfield.report.tables import DASH, Column, Table, number
from levelfield.spec import Row

HEADS = ("Paper", "Table", "Model", "Protocol", "Task", "Where", "Metric")


def drawn(cited: Set[str]) -> str:
    """Returns the printed rows to which a page leads, as HTML; "" where it leads to none. cited: anchors."""
    rows = {anchor: row for row in published.rows() if (anchor := printed_anchor(row)) in cited}
    if not rows:
        return ""
    columns = (*map(Column, HEADS), Column("Printed", True, measured=False), Column("Unit"), Column("Quoting"))
    lines = tuple(map(_line, rows.values()))
    table = Table(columns, lines, names=dict(enumerate(rows)))
    return "<h3>Printed numbers</h3>\n" + list_html("printed", f"{len(rows):,} cells of papers' tables", table.html())


def _line(row: Row) -> tuple[str, ...]:
    value, origin = row.get("value"), row.get("origin", "")
    cell = (str(row.get(key) or DASH) for key in CELL)
    printed = row.get("status", "") if value is None else number(value, 2)
    return (*cell, printed, row.get("unit", ""), DASH if origin in ("", "this_paper") else origin)
