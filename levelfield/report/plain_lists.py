"""Lists the rows behind a page whose numbers are rows themselves, such as the page of an audit: a line for each row.

    index = PlainIndex.of([(ListLine((row["model"],), (row["metric"],)), row) for row in rows])
    index.rows[0]["anchor"]               # "rows-s4-share": the line of this row, to which its number leads
    index.lists["s4",].anchor             # "rows-s4": the list of all that was measured of s4
    section(index.lists.values(), reading="A number leads to ...", tables=[scores])

In a study's page several rows are behind a number, one for each seed: `row_index` finds those and `row_lists` draws
them. Both name their lists alike, fold them away alike and lead back alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from levelfield.report.links import back, list_html, return_link
from levelfield.report.row_index import Names
from levelfield.report.row_lists import FILE, LINES, exact
from levelfield.report.tables import DASH, Column, Table, prose
from levelfield.spec import Row

HEADS = {
    "task": "Task",
    "at": "Where",
    "metric": "Metric",
    "value": "Value",
    "low": "95 % from",
    "high": "to",
    "stderr": "Standard error",
    "n": "Examples",
    "split": "Split",
    "unit": "Unit",
    "status": "Status",
}
NUMBERS = ("value", "low", "high", "stderr", "n")


class ListLine(NamedTuple):
    """The list to which a row belongs, and what its line there is called: (("s4",), ("share",))."""

    list: tuple[str, ...]
    line: tuple[str, ...]


@dataclass(frozen=True)
class PlainList:
    """Rows of one thing, each with the anchor of its line. told: sentences above them, which may have marks. more: how
    many rows are left out."""

    anchor: str
    title: str
    rows: Sequence[Row]
    told: Sequence[str] = ()
    more: int = 0


@dataclass(frozen=True)
class PlainIndex:
    """Every list of a page. rows: all its rows in their order, each with the anchors of its list and of its line there;
    a row that is left out of its list leads to the list as a whole."""

    lists: Mapping[tuple[str, ...], PlainList]
    rows: Sequence[Row]

    @classmethod
    def of(cls, placed: Sequence[tuple[ListLine, Row]], lines: int = LINES) -> PlainIndex:
        """Returns the lists in the order in which their first rows come. lines: about how many all lists may show, of
        which each has the same share."""
        names, found = Names(), dict[tuple[str, ...], list[Row]]()
        anchors = {key: names.new("rows", *key) for key in dict.fromkeys(place.list for place, _ in placed)}
        rows = []
        for place, row in placed:
            mine, own = found.setdefault(place.list, []), anchors[place.list]
            line = names.new(own, *place.line) if len(mine) < lines // len(anchors) else own
            mine.append(cast("Row", {**row, "list": own, "anchor": line}))
            rows.append(mine[-1])
        return cls({key: _listed(anchors[key], " ".join(filter(None, key)), mine) for key, mine in found.items()}, rows)

    def anchor(self, *key: str) -> str:
        """Returns the anchor of a list; "" where there is none."""
        return self.lists[key].anchor if key in self.lists else ""


def anchor_of(row: Row | None) -> str:
    """Returns the line of a row on its page; "" where it has none."""
    return str(row.get("anchor", "")) if row is not None else ""


def list_of(row: Row) -> str:
    """Returns the list of a row on its page; "" where it has none."""
    return str(row.get("list", ""))


def _listed(anchor: str, title: str, rows: Sequence[Row]) -> PlainList:
    shown = [row for row in rows if anchor_of(row) != anchor]
    return PlainList(anchor, title, shown, more=len(rows) - len(shown))


def section(lists: Iterable[PlainList], reading: str, tables: Iterable[Table]) -> str:
    """Returns all lists, the last part of a page.

    reading: how to read them. tables: those that lead here; a list to which none of them leads has no way back.
    """
    names = {link.name for table in tables for link in table.links}
    parts = [f'<p class="note">{reading} All rows: {FILE}.</p>']
    parts += [plain_list(each, led=back(each.anchor) in names) for each in lists]
    return '<section id="rows">\n<h2>The rows behind the numbers</h2>\n' + "\n".join(parts) + "\n</section>"


def plain_list(each: PlainList, led: bool = False) -> str:
    """Returns one list as HTML. led: whether a table leads to it, to which it leads back."""
    said = [return_link(each.anchor), *map(prose, each.told)] if led else [*map(prose, each.told)]
    inside = "".join(f"<p>{text}</p>" for text in said) + _table(each.rows).html()
    if each.more:
        inside += f'<p class="note">{each.more:,} more rows of {prose(each.title)} are in {FILE}.</p>'
    return list_html(each.anchor, each.title, inside)


def _table(rows: Sequence[Row]) -> Table:
    """A line for each row; columns in which no row has anything are left out, and the task where all have the same."""
    shown = [key for key in HEADS if key == "value" or any(row.get(key) for row in rows)]
    if len({row.get("task") for row in rows}) < 2:
        shown = [key for key in shown if key != "task"]
    columns = tuple(Column(HEADS[key], number=key in NUMBERS) for key in shown)
    lines = tuple(tuple((_number if key in NUMBERS else _word)(row, key) for key in shown) for row in rows)
    names = {index: anchor for index, row in enumerate(rows) if (anchor := anchor_of(row))}
    return Table(columns, lines, names=names)


def _word(row: Row, key: str) -> str:
    text = str(row.get(key) or DASH)
    return text.replace("_", " ") if key == "metric" else text


def _number(row: Row, key: str) -> str:
    """Returns a number as the row has it, in its own unit, with more digits than the tables of the page."""
    value = row.get(key)
    if not isinstance(value, int | float):
        return DASH
    whole = float(value).is_integer() and (key == "n" or "unit" not in row)
    return f"{value:,.0f}" if whole else exact(value, row.get("unit", ""))
