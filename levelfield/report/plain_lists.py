"""Lists the rows behind a page whose numbers are rows themselves, such as the page of an audit: a line for each row.

    index = PlainIndex.of(rows, lambda row: Place((row.get("model", ""),), (row.get("metric", ""),)))
    index.rows[0]["anchor"]               # "rows-s4-share": the line of this row, to which its number leads
    index.lists["s4",].anchor             # "rows-s4": the list of all that was measured of s4
    section(index.lists.values(), reading="A number leads to ...", tables=[scores])

In a study's page several rows are behind a number, one for each seed: `row_index` finds those and `row_lists` draws
them. Both name their lists alike, fold them away alike and lead back alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from levelfield.report.links import list_html, return_link
from levelfield.report.row_index import Names
from levelfield.report.row_lists import FILE, LINES, exact
from levelfield.report.tables import DASH, Column, Table, prose
from levelfield.spec import Row

HEADS = {"at": "Where", "metric": "Metric", "split": "Split", "unit": "Unit", "status": "Status"}
NUMBERS = {"value": "Value", "stderr": "Standard error", "n": "Examples"}


class Place(NamedTuple):
    """The list to which a row belongs, and what its line there is called: (("s4",), ("share",))."""

    list: tuple[str, ...]
    line: tuple[str, ...]


@dataclass(frozen=True)
class PlainList:
    """Rows of one thing, each with the anchor of its line. told: sentences above them, which may have marks."""

    anchor: str
    title: str
    rows: Sequence[Row]
    told: Sequence[str] = ()


@dataclass(frozen=True)
class PlainIndex:
    """Every list of a page. rows: all its rows in their order, each with the anchor of its line."""

    lists: Mapping[tuple[str, ...], PlainList]
    rows: Sequence[Row]

    @classmethod
    def of(cls, rows: Iterable[Row], place: Callable[[Row], Place]) -> PlainIndex:
        """Returns the lists in the order in which their first rows come."""
        names, anchors = Names(), dict[tuple[str, ...], str]()
        found: dict[tuple[str, ...], list[Row]] = {}
        placed = []
        for row in rows:
            where = place(row)
            if where.list not in anchors:
                anchors[where.list] = names.new("rows", *where.list)
            placed.append(cast("Row", {**row, "anchor": names.new(anchors[where.list], *where.line)}))
            found.setdefault(where.list, []).append(placed[-1])
        lists = {key: PlainList(anchors[key], " ".join(filter(None, key)), mine) for key, mine in found.items()}
        return cls(lists, placed)

    def anchor(self, *key: str) -> str:
        """Returns the anchor of a list; "" where there is none."""
        return self.lists[key].anchor if key in self.lists else ""


def anchor_of(row: Row | None) -> str:
    """Returns the line of a row on its page; "" where it has none."""
    return str(row.get("anchor", "")) if row is not None else ""


def section(lists: Iterable[PlainList], reading: str, tables: Iterable[Table]) -> str:
    """Returns all lists, the last part of a page, with at most about `LINES` rows, shared evenly.

    reading: how to read them. tables: those that lead here; a list to which none of them leads has no way back.
    """
    lists = list(lists)
    names = {link.name for table in tables for link in table.links}
    most = LINES // max(1, len(lists))
    parts = [f'<p class="note">{reading} All rows: {FILE}.</p>']
    parts += [_list(each, most, back=f"of-{each.anchor}" in names) for each in lists]
    return '<section id="rows">\n<h2>The rows behind the numbers</h2>\n' + "\n".join(parts) + "\n</section>"


def _list(each: PlainList, most: int, back: bool) -> str:
    said = [return_link(each.anchor), *map(prose, each.told)] if back else [*map(prose, each.told)]
    inside = "".join(f"<p>{text}</p>" for text in said) + _table(each.rows[:most]).html()
    if len(each.rows) > most:
        inside += f'<p class="note">{len(each.rows) - most:,} more rows of {prose(each.title)} are in {FILE}.</p>'
    return list_html(each.anchor, each.title, inside)


def _table(rows: Sequence[Row]) -> Table:
    """A line for each row; columns in which no row has anything are left out."""
    heads = [key for key in HEADS if any(row.get(key) for row in rows)]
    numbers = [key for key in NUMBERS if key == "value" or any(key in row for row in rows)]
    columns = (*(Column(HEADS[key]) for key in heads), *(Column(NUMBERS[key], True) for key in numbers))
    lines = tuple(
        (*(str(row.get(key) or DASH).replace("_", " ") for key in heads), *(_number(row, key) for key in numbers))
        for row in rows
    )
    return Table(columns, lines, names={index: anchor_of(row) for index, row in enumerate(rows)})


def _number(row: Row, key: str) -> str:
    """Returns a number as the row has it, in its own unit, with more digits than the tables of the page."""
    value = row.get(key)
    if not isinstance(value, int | float):
        return DASH
    whole = float(value).is_integer() and (key == "n" or "unit" not in row)
    return f"{value:,.0f}" if whole else exact(value, row.get("unit", ""))
