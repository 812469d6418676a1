"""Reads every number that the papers print, in the columns of our own rows, so that both fit into one table.

    results.csv   one row per printed cell: paper, table, model, protocol, task, at, metric, unit, value, status, origin
    papers.csv    what the keys in `paper` and `origin` stand for
    library.csv   papers of mixers and of ruler.csv, none of whose numbers stand in results.csv
    ruler.csv     the table in the README of RULER's repository (NVIDIA/RULER at c3f5e3b): averages of its 13 tasks
    aliases.csv   the papers' names for models, protocols and places, our name for each, and what still differs

    published.rows("miralles2025", "1")[0]
    # {"source": "miralles2025", "table": "1", "model": "conv", "at": "kernel_size=5", "value": 46.63, ...}

Values stay as printed (percent where the paper prints percent). `status` is reported, derived (an average or ratio the
paper computed), chance (printed as a cross), infeasible or unreported; the last three carry no value. Only reports and
studies may read this package: nothing that trains ever sees a target.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from levelfield.spec import Row, UserError, closest


@dataclass(frozen=True)
class Paper:
    """The paper that a key of `papers.csv` stands for."""

    key: str
    title: str
    authors: str
    venue: str
    year: int
    url: str

    @property
    def bibtex(self) -> str:
        """The entry of the paper, under its key; "others" among the authors stands for those that are not listed."""
        kind, where = ("misc", "howpublished") if self.venue == "arXiv preprint" else ("inproceedings", "booktitle")
        authors = self.authors.replace("; ", " and ")
        given = {"title": f"{{{self.title}}}", "author": authors, where: self.venue, "year": self.year, "url": self.url}
        return "\n".join([f"@{kind}{{{self.key},", *(f"  {name} = {{{value}}}," for name, value in given.items()), "}"])

    @property
    def citation(self) -> str:
        """One line: first author, year, title, venue."""
        first, *others = self.authors.split("; ")
        return f"{first}{' et al.' if others else ''} ({self.year}). {self.title}. {self.venue}."


@dataclass(frozen=True)
class Alias:
    """A printed name and ours: for a model, the class of its mixer and conditions on fields (`rotary=none`)."""

    paper: str
    table: str  # "" where it holds for every table of the paper
    column: str  # model, protocol or at
    printed: str
    ours: str  # "" where there is no counterpart
    where: str  # "field=value|value;field=value", all of which must hold
    differs: str


def _records(name: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(files(__name__).joinpath(name).read_text(encoding="utf-8").splitlines())


@cache
def papers() -> dict[str, Paper]:
    """Returns key -> paper, in the order of the file."""
    return {record["key"]: _paper(**record) for record in _records("papers.csv")}


@cache
def library() -> dict[str, Paper]:
    """Returns key -> paper, of all papers that are known: those with printed numbers, then those of mixers."""
    return papers() | {record["key"]: _paper(**record) for record in _records("library.csv")}


def _paper(year: str, **text: str) -> Paper:
    return Paper(year=int(year), **text)


@cache
def _aliases() -> tuple[Alias, ...]:
    return tuple(Alias(**record) for record in _records("aliases.csv"))


@cache  # each printed row that a run is held against asks
def aliases(paper: str, table: str) -> tuple[Alias, ...]:
    """Returns the names used in one table of one paper."""
    return tuple(alias for alias in _aliases() if alias.paper == paper and alias.table in ("", table))


@cache
def _rows() -> tuple[Row, ...]:
    return tuple(_row(record) for record in _records("results.csv"))


def _row(record: dict[str, str]) -> Row:
    """Returns a record as a row. An empty `at` or `value` has no key."""
    row: Row = {"source": record["paper"], "table": record["table"], "model": record["model"]}
    row |= {"protocol": record["protocol"], "task": record["task"], "metric": record["metric"]}
    row |= {"unit": record["unit"], "status": record["status"], "origin": record["origin"]}
    if record["at"]:
        row["at"] = record["at"]
    if record["value"]:
        row["value"] = float(record["value"])
    return row


@cache
def _ruler_table() -> tuple[Row, ...]:
    made = []
    for record in _records("ruler.csv"):
        model, origin = record.pop("model"), record.pop("origin")
        row = Row(source="hsieh2024", table="readme", model=model, protocol="pretrained", task="ruler_average")
        row |= Row(metric="accuracy", unit="percent", status="reported", origin=origin)
        made += [row | Row(at=f"length={length}", value=float(text)) for length, text in record.items() if text]
    return tuple(made)


def ruler_table() -> list[Row]:
    """Returns the averages of RULER's public table, in its order.

    No study answers to them: they show a reader what other models reach. `origin` is the paper whose authors measured.
    """
    return [row.copy() for row in _ruler_table()]


def rows(paper: str | None = None, table: str | None = None) -> list[Row]:
    """Returns printed rows, all or those of one paper or table, in the order of the file.

    Raises UserError for a paper or table with no rows.
    """
    found = [r for r in _rows() if paper in (None, r.get("source")) and table in (None, r.get("table"))]
    if not found:
        known = sorted({f"{r.get('source')} {r.get('table')}" for r in _rows()})
        raise UserError(
            f"No printed rows for {paper or 'any paper'} table {table}; {closest(f'{paper} {table}', known)}"
        )
    return [r.copy() for r in found]
