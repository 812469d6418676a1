"""Draws the last part of a report's page: a list of rows for every cell, which the numbers of the page lead to.

    <td class="number"><a href="#rows-listops-s4-scratch-accuracy" id="of-rows-...">59.6</a></td>
    ...
    <details><summary>s4 · scratch: 59.6</summary><div id="rows-listops-s4-scratch-accuracy">its runs</div></details>

Browsers open a closed list when a link leads into it, without a script. The page shows at most about `LINES` lines of
rows; of what is left out each list says where it is in rows.csv.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from html import escape
from itertools import groupby
from typing import Any

from levelfield.report import computed_lists
from levelfield.report.cells import Cell, Cells, Score, row_value, shown, shown_unit
from levelfield.report.links import back, list_html, return_link
from levelfield.report.row_index import Place, Placed, RowIndex, RowList, RuleList
from levelfield.report.tables import (
    DASH,
    Column,
    Link,
    Table,
    baseline_name,
    decimals,
    interval_text,
    ledger_row,
    ledger_table,
    number,
    prose,
    range_text,
    test_text,
)
from levelfield.spec import Row

LINES = 1_000
SEEDS = 10  # columns of what was measured elsewhere
FILE = '<a href="rows.csv">rows.csv</a>'
READING = (
    "A number in a table or in the verdict leads to its list here: a line for each run, with its seed, its score and "
    "what it cost. Below stands what else was measured of the same runs, a column for each seed."
)
KEPT = "What each run cost is not kept, only the medians in the ledger of its arm."


def with_links(tables: tuple[Table, Table], index: RowIndex, cells: Cells, task: str) -> tuple[Table, Table]:
    """Returns the tables of scores and of costs of one task, whose numbers lead to their rows."""
    scores, ledger = tables
    rules = index.rules.get((task, cells.metric))
    quiet = [Link(rules.anchor, "" if i else back(rules.anchor)) for i in range(scores.quiet)] if rules else []
    anchors = [index.anchor(cell.arm, cells.metric) for cell in cells.of(task)]
    own = [Link(anchor, back(anchor)) for anchor in anchors]
    return replace(scores, links=(*quiet, *own)), replace(ledger, links=tuple(Link(anchor) for anchor in anchors))


def section(index: RowIndex, cited: Set[str], others: Iterable[str] = ()) -> str:
    """Returns all lists.

    cited: anchors that verdict and figures lead to, whose lines are never left out. others: lists of what is no row
    of a run, as HTML.
    """
    runs, places = _bounds(index.lists)
    parts = [f'<p class="note">{READING} All rows: {FILE}.</p>']
    for (task, metric), lists in groupby(index.lists, lambda each: (each.cell.arm.task, each.metric)):
        parts.append(f"<h3>{escape(task)}: test {escape(metric.replace('_', ' '))}</h3>")
        if rules := index.rules.get((task, metric)):
            parts.append(_rules(rules))
        parts += [_list(each, index.ledgers, most=(runs, places), cited=cited) for each in lists]
    parts += filter(None, [computed_lists.drawn(cited, index), *others])
    return '<section id="rows">\n<h2>The rows behind the numbers</h2>\n' + "\n".join(parts) + "\n</section>"


def _bounds(lists: Sequence[RowList]) -> tuple[int, int]:
    """Returns how many runs and how many other lines each list may show."""
    runs = LINES // max(1, len(lists))
    left = LINES - sum(min(runs, len(each.cell.scores)) for each in lists)
    return runs, left // max(1, len(lists))


def _list(each: RowList, ledgers: Mapping[str, Mapping[str, Any]], most: tuple[int, int], cited: Set[str]) -> str:
    """Returns the list of one cell. most: runs and other lines that it may show."""
    cell = each.cell
    scores = cell.scores[: most[0]]
    elsewhere = dict(_chosen(each, most[1], cited))
    seeds = cell.scores[:SEEDS]
    said = len(scores) + sum(score.run in placed.rows for placed in elsewhere.values() for score in seeds)
    everything = len(cell.scores) + sum(len(placed.rows) for placed in each.elsewhere.values())
    median = number(cell.summary.median if cell.summary else None, decimals(cell.unit))
    median += " %" if cell.unit == "percent" and cell.summary else ""
    parts = [f"<p>{escape(_summed(cell))} {return_link(each.anchor)}</p>"]
    parts += [_runs(each, scores).html(), _costs(cell, scores, ledgers)] if scores else []
    parts += [_elsewhere(each, elsewhere, seeds, cited).html()] if elsewhere else []
    parts += [_left_out(each, everything - said)] if everything > said else []
    return list_html(each.anchor, f"{cell.arm}: {median}", "".join(parts))


def _summed(cell: Cell) -> str:
    """Says what the scores come to, in the words of the table."""
    if cell.summary is None:
        return "No run has a score."
    summary, places = cell.summary, decimals(cell.unit)
    words = f"Median {number(summary.median, places)} and mean {number(summary.mean, places)}"
    words += f", {range_text(summary.low, summary.high, cell.unit)} over {summary.n} seed{'s' * (summary.n != 1)}."
    if (interval := interval_text(cell)) != DASH:
        words += f" 95 % interval of the mean: {interval}."
    if (test := test_text(cell)) != DASH:
        words += f" Over test examples alone: {test}."
    return words


def _left_out(each: RowList, rows: int) -> str:
    arm = each.cell.arm
    where = f"task is `{arm.task}`, model is `{arm.model}`, protocol is `{arm.protocol}`"
    variant = f", of the runs with `{arm.variant}`" if arm.variant else ""
    return f'<p class="note">{rows:,} more rows of this arm are in {FILE}, where {prose(where + variant)}.</p>'


def _runs(each: RowList, scores: Sequence[Score]) -> Table:
    """A line for each run: its score and its id."""
    unit = each.cell.unit
    columns = (
        Column("Seed"),
        Column(each.metric.replace("_", " ") + (" %" if unit == "percent" else ""), True),
        Column("Standard error", True),
        Column("Examples", True),
        Column("Ended"),
        Column("Run"),
    )
    lines = tuple(
        (
            str(score.seed),
            exact(score.value, unit),
            exact(score.stderr, unit),
            f"{score.examples:,}" if score.examples else DASH,
            each.cell.failure(score) or score.status,
            score.run,
        )
        for score in scores
    )
    return Table(columns, lines)


def _costs(cell: Cell, scores: Sequence[Score], ledgers: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each run: what it cost, by the columns of the table of costs."""
    known = [(score, ledgers[score.run]) for score in scores if score.run in ledgers]
    if not all("phases" in ledger for _, ledger in known):
        return f'<p class="note">{KEPT}</p>'
    columns = (Column("Seed"), *(Column(column.name, column.number) for column in ledger_table([]).columns[2:]))
    lines = tuple((str(score.seed), *ledger_row(replace(cell, ledgers=(ledger,)))) for score, ledger in known)
    return Table(columns, lines, caption="Ledger of each run").html() if lines else ""


def exact(value: float | None, unit: str) -> str:
    """Returns a number with more digits than the tables have: four decimals of a percent, else six digits."""
    if value is None or unit == "percent":
        return number(value, 4)
    return f"{value:.6g}".replace("-", "−")


def _chosen(each: RowList, most: int, cited: Set[str]) -> Iterator[tuple[Place, Placed]]:
    """Yields the places that are cited and, as far as there is room, the first of the others."""
    room = most - sum(placed.anchor in cited for placed in each.elsewhere.values())
    for place, placed in each.elsewhere.items():
        led = placed.anchor in cited
        room -= not led
        if led or room >= 0:
            yield place, placed


def _elsewhere(each: RowList, places: Mapping[Place, Placed], seeds: Sequence[Score], cited: Set[str]) -> Table:
    """A line for each place with a column for each seed."""
    columns = [Column("Where"), Column("Metric"), Column("Split"), *(Column(f"Seed {s.seed}", True) for s in seeds)]
    lines = [
        (
            place.at or "the whole split",
            place.metric.replace("_", " "),
            place.split or DASH,
            *(_value(placed.rows.get(score.run)) for score in seeds),
        )
        for place, placed in places.items()
    ]
    anchors = [placed.anchor for placed in places.values()]
    names = {index: anchor for index, anchor in enumerate(anchors) if anchor in cited}
    return Table(tuple(columns), tuple(lines), caption="What else was measured of the same runs", names=names)


def _value(row: Row | None) -> str:
    if row is None:
        return DASH
    unit = shown_unit([row], row.get("metric", ""))
    value = row_value(row)
    return number(value, 2) if unit == "percent" else exact(value, unit)


def _rules(rules: RuleList) -> str:
    """Returns the rows of the rules that learn no sequence model."""
    heads = ("Score %" if rules.unit == "percent" else "Score", "Standard error", "Examples")
    columns = (Column("Rule"), *(Column(head, True) for head in heads))
    lines = []
    names = {index: rules.anchors[name] for index, name in enumerate(rules.rows)}
    for name, row in rules.rows.items():
        value, stderr = (shown(row.get(key), row.get("unit", "fraction"), rules.metric) for key in ("value", "stderr"))
        counted = f"{row['n']:,}" if "n" in row else DASH
        lines.append((baseline_name(name), exact(value, rules.unit), exact(stderr, rules.unit), counted))
    told = f"<p>Rules that learn no sequence model. {return_link(rules.anchor)}</p>"
    return list_html(rules.anchor, "no training", told + Table(columns, tuple(lines), names=names).html())
