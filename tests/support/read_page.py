"""Reads a page of HTML as a tree, and the file of rows beside it by `csv`, for tests that compare the two.

page = Page(folder / "report.html", folder / "rows.csv")
[line.texts["Seed"] for line in lines(next(page.target(link).iter("table")))]
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple, get_type_hints
from xml.etree.ElementTree import Element, TreeBuilder

from levelfield.spec import Row

KINDS = get_type_hints(Row)


class Tree(HTMLParser):
    """Builds the elements of a page."""

    VOID = frozenset(["meta", "br", "input", "link"])

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.builder = TreeBuilder()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.builder.start(tag, {key: value or "" for key, value in attrs})
        if tag in self.VOID:
            self.builder.end(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.builder.end(tag)

    def handle_endtag(self, tag: str) -> None:
        self.builder.end(tag)

    def handle_data(self, data: str) -> None:
        self.builder.data(data)


class Page:
    """A page as a tree, with its elements by id and the rows of the file beside it."""

    def __init__(self, path: Path, rows: Path) -> None:
        tree = Tree()
        tree.feed(path.read_text(encoding="utf-8"))
        self.root = tree.builder.close()
        self.by_id = {name: each for each in self.root.iter() if (name := each.get("id"))}
        with rows.open(newline="", encoding="utf-8") as file:
            self.rows = list(csv.DictReader(file))

    def target(self, link: Element) -> Element:
        return self.by_id[leads(link).removeprefix("#")]

    def lost(self) -> list[str]:
        inner = [href for link in self.root.iter("a") if (href := leads(link)).startswith("#")]
        return [href for href in inner if href[1:] not in self.by_id]

    def scores(self, **names: str) -> dict[str, float]:
        """The simplest reading of the rows: run -> test score in percent, without a location."""
        names |= {"split": "test", "metric": "accuracy"}
        fits = (row for row in self.rows if not row.get("at") and all(row[key] == text for key, text in names.items()))
        return {row["run"]: 100 * float(row["value"]) for row in fits if row["value"]}


class Line(NamedTuple):
    """A row of a table on the page."""

    task: str
    quiet: bool
    texts: dict[str, str]
    cells: dict[str, Element]


def leads(link: Element) -> str:
    """The place to which a link leads, of the page or of a figure in it."""
    return link.get("href") or link.get("xlink:href", "")


def lightness(path: Element) -> float:
    """How light the colour is in which a shape of a figure is filled, from 0 to 255."""
    colour = re.findall(r"fill: #(\w\w)(\w\w)(\w\w)", path.attrib["style"])[0]
    return sum(weight * int(part, 16) for weight, part in zip((0.30, 0.59, 0.11), colour, strict=True))


def text(element: Element) -> str:
    return "".join(element.itertext()).replace("\u00a0", " ")


def lines(table: Element, task: str = "") -> Iterator[Line]:
    heads = [text(head) for head in table.iterfind("thead/tr/th")]
    for row in table.iterfind("tbody/tr"):
        cells = dict(zip(heads, row, strict=True))
        yield Line(task, row.get("class") == "quiet", {name: text(cell) for name, cell in cells.items()}, cells)


def stored(path: Path) -> list[Row]:
    """Returns the rows of a file, numbers as numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        return [Row(**{key: KINDS[key](text) for key, text in row.items() if text}) for row in csv.DictReader(file)]
