"""Makes the page of a leaderboard: filters, one table for each study at each effort, and the rows of every cell.

Without JavaScript everything is shown; with it, tables sort by a click on a heading and filters choose among them. A
cell is a link to its rows, further down on the page; what it cost is told when a pointer or the keyboard comes to it.

    <td class="number" data-task="listops" data-value="49.34"><a href="#cell-7" title="...">49.3</a>...</td>
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from levelfield.report import committed
from levelfield.report.arms import Arm
from levelfield.report.cells import is_baseline, row_value, rule_of
from levelfield.report.leaderboard.reading import Board, Standing
from levelfield.report.links import back, return_link
from levelfield.report.page import document
from levelfield.report.tables import (
    DASH,
    Column,
    Table,
    baseline_name,
    decimals,
    interval_text,
    ledger_table,
    number,
    test_text,
)
from levelfield.spec import Row

FILTERS = ("task", "model", "protocol", "study", "effort")
READING = (
    "Each table is one study at one effort. Its arms were trained by one set of rules, so their order means something; "
    "between tables the data, the sizes and the budgets differ. A cell is the median test score over seeds; below it "
    "stand their range and their number. It links to its rows, and tells its ledger when pointed at or focused."
)
OLD_COUNT = "FLOPs were counted by an earlier rule: do not compare them with others."


class Place(NamedTuple):
    """A cell on the page: its table, and the anchor of its rows."""

    board: Board
    anchor: str
    standing: Standing


def page(boards: Sequence[Board], left_out: Sequence[str], at: Path) -> str:
    """Returns the whole document. left_out: why folders are not on it, a sentence each. at: the folder of the page."""
    number_of = count(1)
    places = [[Place(b, f"cell-{next(number_of)}", each) for each in b.standings] for b in boards]
    parts = [_top(boards, left_out), _filters(boards)]
    parts += [_table(board, mine, index, at) for index, (board, mine) in enumerate(zip(boards, places, strict=True))]
    rows = [_rows(place, at) for mine in places for place in mine]
    rules = [_rules(board, index, at) for index, board in enumerate(boards) if board.baseline_rows]
    parts.append('<section id="rows">\n<h2>The rows of every cell</h2>\n' + "\n".join([*rows, *rules]) + "</section>")
    return document("leaderboard", parts, style=_file("page.css"), script=_file("page.js"))


def _file(name: str) -> str:
    return files(__package__ or "levelfield.report.leaderboard").joinpath(name).read_text(encoding="utf-8")


def _data(**facts: str) -> str:
    """Returns attributes that filters read."""
    return "".join(f' data-{name}="{escape(value, quote=True)}"' for name, value in facts.items())


def _top(boards: Sequence[Board], left_out: Sequence[str]) -> str:
    arms = [each.cell.arm for board in boards for each in board.standings]
    models, tasks = len({arm.model for arm in arms}), len({arm.task for arm in arms})
    title = f"{len(arms)} cells: {models} models on {tasks} tasks, in {len(boards)} results folders"
    without = "".join(f"<li>{escape(sentence)}</li>" for sentence in left_out)
    return (
        f'<header>\n<p class="kicker">levelfield · leaderboard</p>\n<h1>{title}</h1>\n<p>{escape(READING)}</p>\n'
        + (f'<details class="note"><summary>Left out</summary><ul>{without}</ul></details>' if without else "")
        + "</header>"
    )


def _filters(boards: Sequence[Board]) -> str:
    """Returns the form, which is hidden until the script works."""
    arms = [each.cell.arm for board in boards for each in board.standings]
    choices: Mapping[str, Iterable[str]] = {
        "task": (arm.task for arm in arms),
        "model": (arm.model for arm in arms),
        "protocol": (arm.protocol for arm in arms),
        "study": (board.study for board in boards),
        "effort": (board.effort for board in boards),
    }
    selects = "".join(
        f'<label>{name} <select name="{name}"><option value="">all</option>'
        + "".join(f'<option value="{escape(v, quote=True)}">{escape(v)}</option>' for v in sorted({*choices[name]}))
        + "</select></label>"
        for name in FILTERS
    )
    end = '<button type="reset">Show all</button><output aria-live="polite"></output>'
    return f'<form id="filters" aria-label="Filters" hidden>{selects}{end}</form>'


def _link(board: Board, name: str, at: Path) -> str:
    """Returns a link to a file of the folder, relative to the page where the two are on one drive."""
    path = (board.folder / name).resolve()
    try:
        where = quote(Path(os.path.relpath(path, at.resolve())).as_posix())
    except ValueError:
        where = path.as_uri()
    return f'<a href="{escape(where, quote=True)}">{escape(name)}</a>'


def _table(board: Board, places: Sequence[Place], index: int, at: Path) -> str:
    by_line: dict[tuple[str, str], dict[str, Place]] = {}
    for place in places:
        arm = place.standing.cell.arm
        by_line.setdefault((arm.model_label, arm.protocol), {})[arm.task] = place
    lines = [_line(board, named, mine) for named, mine in by_line.items()]
    rules = dict.fromkeys(rule for by_rule in board.baselines.values() for rule in by_rule)
    anchors = _rule_anchors(board, index)
    quiet = [_rule(board, rule, anchors) for rule in rules]
    names = "".join(_head(name, "") for name in ("Model", "Protocol"))
    heads = names + "".join(_head(task, _metric(board, task), task) for task in board.tasks)
    runs = len({score.run for place in places for score in place.standing.cell.scores})
    links = ", ".join(_link(board, name, at) for name in (committed.ROWS, committed.SUMMARY))
    return (
        f'<section class="board"{_data(study=board.study, effort=board.effort)}>\n'
        f"<h2>{escape(board.study)} · {escape(board.effort)}</h2>\n"
        f'<p class="note">{runs} runs in {escape(board.folder.name)}: {links}</p>\n'
        f'<div class="scroll"><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(quiet)}{''.join(lines)}</tbody></table></div>\n</section>"
    )


def _metric(board: Board, task: str) -> str:
    return f"{board.tasks[task].replace('_', ' ')}{', %' if board.units[task] == 'percent' else ''}"


def _head(name: str, metric: str, task: str = "") -> str:
    below = f"<small>{escape(metric)}</small>" if metric else ""
    style = f' class="number"{_data(task=task)}' if task else ""
    return f'<th scope="col"{style}><button type="button">{escape(name)}</button>{below}</th>'


def _line(board: Board, named: tuple[str, str], places: Mapping[str, Place]) -> str:
    model, protocol = named
    cells = "".join(_cell(places.get(task), task) for task in board.tasks)
    arm = next(iter(places.values())).standing.cell.arm
    return (
        f'<tr class="arm"{_data(model=arm.model, protocol=protocol)}><th scope="row">{escape(model)}</th>'
        f"<td>{escape(protocol)}</td>{cells}</tr>"
    )


def _cell(place: Place | None, task: str) -> str:
    if place is None:
        return f'<td class="number"{_data(task=task)}></td>'
    cell = place.standing.cell
    median = cell.summary.median if cell.summary else None
    value = _data(task=task, value="" if median is None else repr(median))
    told = escape(_told(place.board, place.standing), quote=True)
    shown = number(median, decimals(cell.unit))
    return (
        f'<td class="number"{value}><a href="#{place.anchor}" id="{back(place.anchor)}" title="{told}">{shown}</a>'
        f"<small>{escape(_seeds(place.standing))}</small></td>"
    )


def _seeds(standing: Standing) -> str:
    """Returns range and number of seeds, and how many of them failed: "48.9 to 50.1, n 5"."""
    cell, digits = standing.cell, decimals(standing.cell.unit)
    summary = cell.summary
    done = summary.n if summary else 0
    parts = [f"{number(summary.low, digits)} to {number(summary.high, digits)}"] if summary and done > 1 else []
    parts.append(f"n {done}" if done == standing.planned else f"n {done} of {standing.planned}")
    failed = _failed(standing)
    return ", ".join([*parts, f"{failed} failed"] if failed else parts)


def _failed(standing: Standing) -> int:
    """Returns how many of the planned seeds failed: those at chance or diverged, and those that left no row though they
    were begun and ended by an error."""
    unfinished = int(standing.cell.cost("unfinished") or 0)
    return sum(standing.cell.failures.values()) + standing.planned - len(standing.cell.scores) - unfinished


def _name(board: Board, arm: Arm) -> str:
    return f"{board.study} · {board.effort} · {arm.task} · {arm}"


def _ledger(standing: Standing) -> list[tuple[str, str]]:
    """Returns what one run cost, name by name; what is not known is left out."""
    table = ledger_table([standing.cell])
    named = zip((column.name for column in table.columns), table.rows[0], strict=True)
    return [(name, text) for name, text in named if name not in ("Model", "Protocol") and text != DASH]


def _told(board: Board, standing: Standing) -> str:
    """Returns what is said of a cell when a pointer or the keyboard comes to it."""
    cell = standing.cell
    seeds = ", ".join(str(score.seed) for score in cell.scores)
    lines = [_name(board, cell.arm), f"Seeds: {seeds or 'none'} ({standing.planned} planned)"]
    lines += [f"{why}: {times}" for why, times in cell.failures.items()]
    if (interval := interval_text(cell)) != DASH:
        lines.append(f"95 % interval of the mean: {interval}")
    lines += [f"{name}: {text}" for name, text in _ledger(standing)]
    return "\n".join([*lines, OLD_COUNT] if _old_count(standing) else lines)


def _old_count(standing: Standing) -> bool:
    """Tells whether FLOPs are those of the rule by which useful ones were not told apart."""
    return standing.cell.cost("flops") is not None and standing.cell.cost("flops_useful") is None


def _rule_anchors(board: Board, index: int) -> dict[tuple[str, str], str]:
    """Returns (task, rule) -> the anchor of its line among the rows of the simple rules."""
    places = ((task, rule) for task, by_rule in board.baselines.items() for rule in by_rule)
    return {place: f"rules-{index}-{line}" for line, place in enumerate(places)}


def _rule(board: Board, rule: str, anchors: Mapping[tuple[str, str], str]) -> str:
    """Returns the line of a rule that learns no sequence model."""
    cells = []
    for task in board.tasks:
        value = board.baselines[task].get(rule)
        shown, known = number(value, decimals(board.units[task])), value is not None
        link = f'<a href="#{anchors[task, rule]}">{shown}</a>' if known else ""
        cells.append(f'<td class="number"{_data(task=task, value=repr(value) if known else "")}>{link}</td>')
    return (
        f'<tr class="quiet"><th scope="row">{escape(baseline_name(rule))}</th><td>no training</td>{"".join(cells)}</tr>'
    )


def _rows(place: Place, at: Path) -> str:
    """Returns the rows of a cell, behind a line that opens."""
    board, standing = place.board, place.standing
    cell, arm = standing.cell, standing.cell.arm
    median = number(cell.summary.median if cell.summary else None, decimals(cell.unit))
    more = f" It has {standing.elsewhere:,} more rows of the same runs, of slices and probes." * bool(
        standing.elsewhere
    )
    words = (
        f"Mean over seeds and test examples, 95 %: {interval_text(cell)}; over test examples alone: {test_text(cell)}. "
        f"{_seeds(standing)}."
    )
    named = _data(study=board.study, effort=board.effort, task=arm.task, model=arm.model, protocol=arm.protocol)
    old = f'<p class="note">{OLD_COUNT}</p>' if _old_count(standing) else ""
    return (
        f'<details class="rows"{named}><summary>{escape(_name(board, arm))}: {median}</summary>'
        f'<div id="{place.anchor}"><p class="note">{escape(words)} From {_link(board, committed.ROWS, at)}.{more} '
        f"{return_link(place.anchor)}</p>"
        f"{_row_table(standing.rows)}{ledger_table([cell]).html()}{old}</div></details>"
    )


def _rules(board: Board, index: int, at: Path) -> str:
    named = _data(study=board.study, effort=board.effort)
    anchors = _rule_anchors(board, index)
    table = _row_table(board.baseline_rows, lambda row: anchors.pop(_place(board, row), ""))
    return (
        f'<details class="rules"{named}><summary>{escape(f"{board.study} · {board.effort}")}: simple rules</summary>'
        f'<div id="rules-{index}"><p class="note">From {_link(board, committed.ROWS, at)}.</p>'
        f"{table}</div></details>"
    )


def _place(board: Board, row: Row) -> tuple[str, str]:
    """Returns the task and the rule of which a row is the score."""
    task = row.get("task", "")
    return task, rule_of(row, board.tasks.get(task, "")) if row_value(row) is not None else ""


def _row_table(rows: Sequence[Row], anchor: Callable[[Row], str] = lambda row: "") -> str:
    """Returns rows as they are stored, numbers unrounded, each once. anchor: of the line of a row; "" for none."""
    columns = (
        Column("Run"),
        Column("Split"),
        Column("Metric"),
        Column("Value", True),
        Column("Standard error", True),
        Column("Examples", True),
        Column("Status"),
    )
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        found.setdefault(_row(row), row)  # a rule is stored again with every run
    names = {line: name for line, row in enumerate(found.values()) if (name := anchor(row))}
    return Table(columns, tuple(found), names=names).html() if rows else "<p>No run has finished.</p>"


def _row(row: Row) -> tuple[str, ...]:
    metric = row.get("metric", "")
    unit = row.get("unit", "")
    return (
        f"{row.get('task')}, {row.get('model')}" if is_baseline(row) else row.get("run", ""),
        row.get("split", ""),
        f"{metric} ({unit})" if unit else metric,
        repr(row["value"]) if "value" in row and row_value(row) is not None else DASH,
        repr(row["stderr"]) if "stderr" in row else DASH,
        f"{row['n']:,}" if "n" in row else DASH,
        row.get("status", ""),
    )
