"""Reports a language model's answers: tasks by length, and needles by depth.

    build("mamba2-2.7b", [Part("", rows, baselines)], folder)      # report.html, rows.csv, summary.md, figures

One page holds everything that the model was asked, a part for every flavour, template and seed. From rows alone, as
everything in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from itertools import islice
from pathlib import Path

from levelfield.report import effective_length, failures, group_curves, heatmaps, references
from levelfield.report.against_printed import pairs
from levelfield.report.intervals import newcombe
from levelfield.report.links import marked, slug
from levelfield.report.longcontext_rows import (
    AVERAGES,
    ENDED,
    OTHER,
    READING,
    THINKING,
    WITHHELD,
    Gaps,
    average_list,
    deciding,
    led,
    listed,
    lists,
    means,
)
from levelfield.report.page import document, script
from levelfield.report.plain_lists import PlainIndex, PlainList, anchor_of, list_of, section
from levelfield.report.plots import Figure
from levelfield.report.style import inline
from levelfield.report.tables import Column, Table, prose, to_csv
from levelfield.report.write import write
from levelfield.spec import Row
from levelfield.spec.failure import Failure

LABEL = "answers found (%)"
MARKS = {"partial": " *", "left_out": "left out", "outdated": " †", "diverged": " §"}
BROKEN = "diverged"  # in place of a score, where no answer has one
BEYOND = heatmaps.BEYOND
NOTES = {
    " *": "* Without samples that do not fit this length, or that have no answer.",
    " †": "† Some answers are to prompts of an earlier version: ask again.",
    " §": "§ The model's logits were NaN or infinite in some of these answers, which count as wrong.",
    BROKEN: "diverged: the model's logits were NaN or infinite in all of these answers.",
}
COUNTED = {
    WITHHELD: "Answers that the server's content filter withheld, and that are left out",
    ENDED: "Answers that are empty, and count as wrong, because tokens ran out while the model was thinking",
}
LEAD = "RULER's match in percent, the strict score in brackets."
SLICES = "The same by kind of question, match in percent with the number of questions."
GAP = "Lost in the middle: outer thirds minus the middle one, in points, with 95 % intervals (Newcombe)."
FIGURES = {"groups": "Scores by group of tasks", "tasks": "Tasks by length", "depth": "Needles by depth and length"}
Grid = dict[tuple[str, float], list[float]]
Counts = dict[tuple[str, float], int]
Anchors = dict[tuple[str, float], str]


@dataclass(frozen=True)
class Part:
    """Answers of one flavour, template and seed, which `name` says; "" where there is only one.

    gaps: match in the outer thirds of the text and in the middle one, by task and length.
    failures: the answers that are not right. variant: of RULER. stored: the address of the file with all answers, from
    the page; "" for none.
    """

    name: str
    rows: Sequence[Row]
    baselines: Sequence[Row]
    gaps: Gaps = field(default_factory=dict)
    failures: Sequence[Failure] = ()
    variant: str = ""
    stored: str = ""

    @property
    def model(self) -> str:
        return next((row.get("model", "") for row in self.rows), "")

    @cached_property
    def averages(self) -> tuple[list[PlainList], group_curves.Anchors]:
        """What is computed of the rows for the page alone, and where each point of the curves by group leads."""
        own = {row.get("task", ""): list_of(row) for row in self.rows if row.get("metric") == "accuracy"}
        panels = [*deciding(self.model, self.rows), *group_curves.panels({self.model: self.rows})]
        return means(self.name, panels, own)

    @property
    def printed(self) -> str:
        """What the anchors of printed averages begin with; "" where the page has none: no task is RULER's."""
        return slug("printed", self.name) if effective_length.lines(self.rows) else ""

    @property
    def figures(self) -> dict[str, Figure]:
        found = {"groups": group_curves.curves({self.model: self.rows}, self.averages[1], self.printed)}
        found |= {"tasks": tasks(self.rows), "depth": depths(self.rows)}
        return {name: figure for name, figure in found.items() if figure is not None}


def build(model: str, parts: Sequence[Part], to: Path) -> list[Path]:
    """Writes the report into the folder `to` and returns its files, the page first.

    Figures that an earlier report left there and that are no longer drawn are removed.
    """
    index = listed({part.name: [*part.rows, *part.baselines] for part in parts})
    placed = list(_placed(parts, index))
    drawn = {part.name: part.figures for part in placed}
    texts = {
        "report.html": page(model, placed, drawn, index),
        "rows.csv": to_csv([dict(row) for part in parts for row in (*part.rows, *part.baselines)]),
        "summary.md": "\n".join(f"## {p.name}\n\n{summary(p)}".removeprefix("## \n\n") for p in parts),
    }
    figures = {
        f"{name}-{part}".removesuffix("-"): figure for part, found in drawn.items() for name, figure in found.items()
    }
    stale = [f"{name}*.{ending}" for name in FIGURES for ending in ("svg", "png")]
    return write(to, texts, figures, stale)


def page(model: str, parts: Sequence[Part], drawn: Mapping[str, Mapping[str, Figure]], index: PlainIndex) -> str:
    """One document with all tables and figures in it, and at its end the rows to which every number leads.

    parts: with rows that know where the page lists them.
    """
    body = [f'<header><p class="kicker">levelfield · RULER</p>\n<h1>{escape(model)}</h1></header>']
    tables, computed = [], []
    for part in parts:
        table, notes = scores(part.rows, part.baselines)
        anchor = average_list(part.name, AVERAGES)
        tables.append(table)
        computed += part.averages[0]
        body += [f"<h2>{escape(part.name or 'Scores')}</h2>", f'<p class="note">{LEAD}</p>', table.html()]
        body += [f'<p class="note">{prose(note)}</p>' for note in part_notes(part.rows, notes, anchor)]
        for name, figure in drawn[part.name].items():
            picture = f'<div class="scroll">{inline(figure.svg, figure.alt)}</div>'
            body.append(f"<figure><figcaption><b>{FIGURES[name]}</b></figcaption>{picture}</figure>")
        if gaps := middle(part.gaps, part.rows):
            body += [f'<p class="note">{GAP}</p>', gaps.html()]
        if slices := sliced(part.rows):
            body += [f'<p class="note">{SLICES}</p>', slices.html()]
        body += [printed(model, part), failures.section(part.failures, part.stored)]
    behind = lists(index, gaps={part.name: part.gaps for part in parts}, made=computed)
    return document(f"RULER: {model}", [*body, section(behind, READING, tables)], script=script())


def _placed(parts: Sequence[Part], index: PlainIndex) -> Iterator[Part]:
    """Yields the parts with rows that know where the page lists them."""
    rows = iter(index.rows)
    for part in parts:
        own, baselines = (list(islice(rows, len(each))) for each in (part.rows, part.baselines))
        yield replace(part, rows=own, baselines=baselines)


def printed(model: str, part: Part) -> str:
    """Returns printed averages as references where tasks of RULER were asked, folded away; "" where none was."""
    if not part.printed:
        return ""
    lengths = sorted({length for row in part.rows if (length := _length(row)) is not None})
    own = next((list_of(row) for row in part.rows if row.get("task") == references.AVERAGE), "")
    averages = {model: references.averages(part.rows)}
    return references.section(lengths, averages, part.variant, anchor=own, named=part.printed)


def summary(part: Part) -> str:
    """The tables as text."""
    table, notes = scores(part.rows, part.baselines)
    text = f"{LEAD}\n\n{table.markdown()}" + "".join(f"\n{note}\n" for note in part_notes(part.rows, notes))
    for lead, more in ((GAP, middle(part.gaps)), (SLICES, sliced(part.rows))):
        text += f"\n{lead}\n\n{more.markdown()}" if more else ""
    return text


def scores(rows: Sequence[Row], baselines: Sequence[Row]) -> tuple[Table, list[str]]:
    """Match by task and length with the strict score behind it, and below it the two trivial baselines; and what its
    marks mean."""
    lengths = sorted({length for row in rows if (length := _length(row)) is not None})
    by: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        if (length := _length(row)) is not None:
            by.setdefault((row.get("task", ""), row.get("metric", "")), {})[length] = row
    lines: list[tuple[str, ...]] = []
    links = []
    for task in dict.fromkeys(task for task, _ in by):
        match, strict = by.get((task, "accuracy"), {}), by.get((task, "strict_accuracy"), {})
        lines.append((task, *(_cell(match.get(n), strict.get(n)) for n in lengths)))
        links.append(led([match.get(n) for n in lengths], named=True))
        for metric, name in OTHER.items():
            if other := by.get((task, metric)):
                lines.append((f"{task}, {name}", *(_cell(other.get(n), None) for n in lengths)))
                links.append(led([other.get(n) for n in lengths]))
    for name in dict.fromkeys(row.get("model", "") for row in baselines):
        mine = [row for row in baselines if row.get("model") == name]
        means = [[row.get("value", 0.0) for row in mine if _length(row) == n] for n in lengths]
        lines.append((f"{name}, mean of the tasks", *(f"{sum(v) / len(v):.1f}" if v else "" for v in means)))
        links.append(led(mine[:1], named=True)._replace(cells={}))
    beyond = positions(rows)
    past = [n for n in lengths if beyond is not None and n > beyond]
    heads = Column("task"), *(Column(f"{n} {BEYOND}" if n in past else str(n), number=True) for n in lengths)
    marks = {_mark(row) for cells in by.values() for row in cells.values()}
    notes = [NOTES[mark] for mark in NOTES if mark in marks]
    if past:
        notes.append(f"{BEYOND} Beyond the {beyond:,} positions that the model was made for.")
    return Table(heads, tuple(lines), links=tuple(links)), notes


def _cell(match: Row | None, strict: Row | None) -> str:
    """Returns "91.2 (88.0)" with the mark of its status; "" where nothing was asked."""
    if match is None:
        return ""
    scored = [f"{row['value']:.1f}" for row in (match, strict) if row and "value" in row]
    text = "{} ({})".format(*scored) if len(scored) == 2 else "".join(scored)
    return text + _mark(match)


def _mark(row: Row) -> str:
    """Returns the mark of a row's status, or what stands in place of a score."""
    status = row.get("status", "")
    return BROKEN if status == "diverged" and "value" not in row else MARKS.get(status, "")


def middle(gaps: Gaps, rows: Sequence[Row] = ()) -> Table | None:
    """How much better the outer thirds of the text are than the middle one, by task and length.

    rows: to which the gaps lead.
    """
    own = {(row.get("task", ""), _length(row)): row for row in rows if row.get("metric") == "middle_gap"}
    lines, links = [], []
    for (task, length), (outer, inner, alike) in gaps.items():
        low, high = newcombe((outer.mean, outer.independent), (inner.mean, inner.independent), alike=alike)
        gap = f"{100 * (outer.mean - inner.mean):+z.1f} ({100 * low:+z.1f} to {100 * high:+z.1f})"
        lines.append((task, str(length), gap))
        links.append(led([own.get((task, length))]))
    heads = Column("task"), Column("length", number=True, measured=False), Column("gap", number=True)
    return Table(heads, tuple(lines), links=tuple(links)) if lines else None


def sliced(rows: Sequence[Row]) -> Table | None:
    """Match by kind of question and length, for sets whose questions have kinds; None without any."""
    cells: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        place = pairs(row.get("at", ""))
        length = place.pop("length", "")
        if row.get("metric") == "accuracy" and length and place and "depth" not in place and "value" in row:
            kind = ", ".join(f"{name}: {value}" for name, value in place.items())
            cells.setdefault((row.get("task", ""), kind), {})[int(length)] = row
    lengths = sorted({length for found in cells.values() for length in found})
    heads = Column("task"), Column("questions"), *(Column(str(length), number=True) for length in lengths)
    lines = [(*place, *(_sliced(found.get(length)) for length in lengths)) for place, found in cells.items()]
    links = (led([None, *(found.get(length) for length in lengths)]) for found in cells.values())
    return Table(heads, tuple(lines), links=tuple(links)) if lines else None


def _sliced(row: Row | None) -> str:
    return f"{row['value']:.1f} (n={row.get('n', 0)})" if row and "value" in row else ""


def part_notes(rows: Sequence[Row], notes: Sequence[str], anchor: str = "") -> list[str]:
    """Returns what is said below the table of scores. notes: what its marks mean. anchor: where averages are listed."""
    return [*effective_length.lines(rows, anchor), *asked(rows), *notes]


def asked(rows: Sequence[Row]) -> list[str]:
    """Says how questions were put, and how much a model behind a server thought; [] where rows do not say so."""
    said = dict.fromkeys(row["asked"] for row in rows if "asked" in row)
    notes = [f"Asked by {each}." for each in said]
    thinking = [row for row in rows if row.get("metric") == THINKING and "value" in row]
    if thinking:
        mean = sum(row.get("value", 0.0) for row in thinking) / len(thinking)
        tokens = marked(f"{mean:,.0f} tokens", list_of(thinking[0]))
        notes.append(f"It thought for {tokens} an answer, on average over the cells.")
    for metric, lead in COUNTED.items():
        if found := [row for row in rows if row.get("metric") == metric]:
            total = marked(f"{sum(row.get('value', 0.0) for row in found):,.0f}", list_of(found[0]))
            cells = (f"{row.get('value', 0.0):,.0f} of {row.get('task', '')} at {_length(row)}" for row in found)
            notes.append(f"{lead}: {total} ({', '.join(cells)}).")
    return notes


def positions(rows: Sequence[Row]) -> int | None:
    """Returns the number of positions the model was made for, where its rows say so."""
    return next((row["positions"] for row in rows if "positions" in row), None)


def _length(row: Row) -> int | None:
    """Returns the length of a row that is about one as a whole, else None."""
    place = pairs(row.get("at", ""))
    return int(place["length"]) if set(place) == {"length"} else None


def tasks(rows: Sequence[Row]) -> Figure | None:
    """One panel: tasks downwards, lengths to the right."""
    grid, counts, anchors = Grid(), Counts(), Anchors()
    for row in rows:
        if row.get("metric") == "accuracy" and "value" in row and (length := _length(row)) is not None:
            place = row.get("task", ""), float(length)
            grid.setdefault(place, []).append(row["value"])
            counts[place], anchors[place] = row.get("n", 0), anchor_of(row)
    model = ", ".join(dict.fromkeys(row.get("model", "") for row in rows))
    return _drawn({model: grid}, {model: counts}, {model: anchors}, axis="task", rows=rows) if grid else None


def depths(rows: Sequence[Row]) -> Figure | None:
    """A panel for each task that hides needles: depth downwards, lengths to the right."""
    panels: dict[str, Grid] = {}
    counts: dict[str, Counts] = {}
    anchors: dict[str, Anchors] = {}
    for row in rows:
        at = pairs(row.get("at", ""))
        if row.get("metric") == "accuracy" and set(at) == {"length", "depth"} and "value" in row:
            task, place = row.get("task", ""), (at["depth"], float(at["length"]))
            panels.setdefault(task, {}).setdefault(place, []).append(row["value"])
            counts.setdefault(task, {})[place] = row.get("n", 0)
            anchors.setdefault(task, {})[place] = anchor_of(row)
    return _drawn(panels, counts, anchors, axis="depth", rows=rows) if panels else None


def _drawn(
    panels: Mapping[str, Grid],
    counts: Mapping[str, Counts],
    anchors: Mapping[str, Anchors],
    *,
    axis: str,
    rows: Sequence[Row],
) -> Figure:
    beyond = positions(rows)
    return heatmaps.draw(panels, axis, (0.0, 100.0), LABEL, counts=counts, beyond=beyond, anchors=anchors)
