"""Makes the tables of the main comparison: one of scores and, always with it, one of what they cost.

    scores, ledger = main_tables(cells, counterparts, task="listops")
    print(scores.markdown())

    | Model     | Protocol   | Seeds | Failed | Median | Min-max   | 95 % interval | ... | Printed | Difference |
    | attention | scratch    | 3     | 1      | 38.1   | 17.3-39.5 | 0.7-62.5      | ... | 47.90   | -9.9       |

A table is plain text in cells (a line break within a cell is "\n"); HTML, Markdown and CSV are made from the same one.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, NamedTuple

from levelfield.report.against_printed import Counterpart
from levelfield.report.arms import Arm, Difference, group
from levelfield.report.cells import COSTS, Cell, Cells
from levelfield.report.links import linked, marked, plain
from levelfield.spec import Row

DASH = "–"
# The printed numbers of a task: none, of other runs only, or of some run here.
PrintedColumns = Literal["none", "other", "same"]
BASELINE_NAMES = {"chance": "chance", "label_prior": "label prior", "greedy_root": "greedy root rule"}


@dataclass(frozen=True)
class Column:
    """The heading of a column. Numbers are set flush right; `help` says what the column holds."""

    name: str
    number: bool = False
    help: str = ""
    wrap: bool = False  # long text that may be broken into lines
    measured: bool = True  # False for numbers of others, which have no rows here


class Link(NamedTuple):
    """The anchor to which the numbers of a row lead; "" for numbers of others, which have no rows here.

    name: that of the first of them, to come back to. cells: where numbers of some columns lead instead, such as to the
    line of their own row within the same list.
    """

    to: str
    name: str = ""
    cells: Mapping[int, str] = {}  # by column


@dataclass(frozen=True)
class Table:
    """Headings and rows of text. `quiet` counts leading rows that are baselines, set in grey.

    links: in HTML, where the measured numbers of each row lead; none, or one for each row. names: anchors of rows.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    quiet: int = 0
    caption: str = ""
    links: tuple[Link, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)

    def html(self) -> str:
        heads = "".join(
            f'<th scope="col"{_class(c)}{f" title={_quoted(c.help)}" if c.help else ""}>{escape(c.name)}</th>'
            for c in self.columns
        )
        body = "".join(self._row(index, cells) for index, cells in enumerate(self.rows))
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        return f'<div class="scroll"><table>{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'

    def _row(self, index: int, cells: Sequence[str]) -> str:
        tags = ("th scope=row" if cells[0] else "td", *["td"] * (len(cells) - 1))
        texts = [prose(text).replace("\n", "<br>") for text in cells]
        if self.links:
            texts = self._leading(texts, self.links[index]) if self.links[index].to else texts
        named = zip(tags, self.columns, texts, strict=True)
        inside = "".join(f"<{tag}{_class(c)}>{text}</{tag[:2]}>" for tag, c, text in named)
        name = f' id="{self.names[index]}"' if index in self.names else ""
        return f"<tr{name}{' class=quiet' if index < self.quiet else ''}>{inside}</tr>"

    def _leading(self, texts: Sequence[str], link: Link) -> list[str]:
        """Makes links of a row's numbers. Tab stops at the first alone: the others lead into the same list."""
        found, first = [], True
        for place, (column, text) in enumerate(zip(self.columns, texts, strict=True)):
            if column.number and column.measured and text not in ("", DASH):
                more = (f' id="{link.name}"' if link.name else "") if first else ' tabindex="-1"'
                to = link.to if first else link.cells.get(place, link.to)
                text, first = f'<a href="#{to}"{more}>{text}</a>', False
            found.append(text)
        return found

    def markdown(self) -> str:
        lines = [[c.name for c in self.columns], ["---:" if c.number else "---" for c in self.columns], *self.rows]
        clean = [[plain(str(t)).replace("|", "\\|").replace("\n", "<br>") for t in line] for line in lines]
        return "".join(f"| {' | '.join(line)} |\n" for line in clean)


def prose(text: str) -> str:
    """Text as HTML, with what stands in backticks as code and what is marked as a link."""
    return linked(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(text)))


def _class(column: Column) -> str:
    name = "number" if column.number else "wrap" if column.wrap else ""
    return f' class="{name}"' if name else ""


def _quoted(text: str) -> str:
    return f'"{escape(text, quote=True)}"'


def number(value: float | None, digits: int = 1) -> str:
    """Returns a number with fixed decimals and a true minus sign; a dash where there is none."""
    return DASH if value is None else f"{value:z.{digits}f}".replace("-", "−")


def signed(value: float | None, digits: int = 1) -> str:
    """Returns the same with a sign before it, which what rounds to zero has too, a plus."""
    return DASH if value is None else f"{value:+z.{digits}f}".replace("-", "−")


def si(value: float | None) -> str:
    """Returns a number with three digits and an SI prefix: 804874 is "805 k", 3.1e13 is "31.0 T"."""
    if value is None or not math.isfinite(value):
        return DASH
    power = 0 if abs(value) < 1000 else min(6, int(math.log10(abs(value)) // 3))
    scaled = value / 1000**power
    if power and abs(scaled) >= 999.5 and power < 6:
        power, scaled = power + 1, scaled / 1000
    digits = 0 if power == 0 and scaled == int(scaled) else max(0, 2 - int(math.log10(max(abs(scaled), 1))))
    return f"{scaled:.{digits}f}{['', ' k', ' M', ' G', ' T', ' P', ' E'][power]}"


DAY = 24 * 3600
YEAR = 365.25 * DAY
UNITS_OF_TIME = (("s", 1, 119.5), ("min", 60, 119.5), ("h", 3600, 95.95), ("days", DAY, 2 * YEAR / DAY))
"""A unit, its seconds, and how many of it are the first that are told in the next: by `figures`, 119.5 are 120."""


def duration(seconds: float | None) -> str:
    """Returns a time in seconds below two minutes, in minutes below two hours, in hours below four days, in days below
    two years, then in years. What is rounded up to such a limit is told in the longer unit, as the limit itself is."""
    if seconds is None:
        return DASH
    for unit, per, limit in UNITS_OF_TIME:
        if seconds / per < limit:
            return f"{figures(seconds / per)} {unit}"
        seconds = max(seconds, per * round(limit))
    return f"{figures(seconds / YEAR)} years"


def figures(value: float) -> str:
    """Returns a number with three digits, or as a whole one of more: "0.00411", "12.5", "3,150"."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def decimals(unit: str) -> int:
    return 1 if unit == "percent" else 3


def range_text(low: float, high: float, unit: str) -> str:
    """Returns "0.7 to 62.5", with the decimals of the table."""
    return f"{number(low, decimals(unit))} to {number(high, decimals(unit))}"


def interval_text(cell: Cell) -> str:
    """Returns the interval over seeds and test examples, which is never hidden because it is wide."""
    return range_text(*cell.summary.interval, cell.unit) if cell.summary and cell.summary.interval else DASH


def test_text(cell: Cell) -> str:
    """Returns the 95 % interval over test examples alone."""
    return range_text(*cell.summary.test, cell.unit) if cell.summary and cell.summary.test else DASH


def failures_text(cell: Cell) -> str:
    return "\n".join(f"{count} {why}" for why, count in cell.failures.items()) or "0"


def baseline_name(rule: str) -> str:
    return BASELINE_NAMES.get(rule, rule.replace("_", " "))


def main_tables(cells: Cells, counterparts: Mapping[Arm, Sequence[Counterpart]], task: str) -> tuple[Table, Table]:
    """Returns the tables of scores and of costs of one task, with the same arms in the same order."""
    mine = cells.of(task)
    rules = cells.baselines.get(task, {})
    matches = [m for c in mine for m in counterparts.get(c.arm, ())]
    printed = ("same" if any(not m.unlike for m in matches) else "other") if matches else "none"
    columns = _score_columns(cells, printed)
    baseline_rows = [_baseline_row(baseline_name(n), v, len(columns), cells.unit) for n, v in rules.items()]
    rows = [_score_row(cell, counterparts.get(cell.arm, ()), printed) for cell in mine]
    return Table(columns, (*baseline_rows, *rows), quiet=len(baseline_rows)), ledger_table(mine)


def _score_columns(cells: Cells, printed: PrintedColumns) -> tuple[Column, ...]:
    unit = " %" if cells.unit == "percent" else ""
    ours = (
        Column("Model"),
        Column("Protocol"),
        Column(f"Median{unit}".replace(" ", "\u00a0"), True),
        Column("Seeds", True, "finished, of those planned"),
        Column("Failed", True, "diverged, not finished, or no better than chance and the label prior"),
        Column("Min to max", True, "over seeds"),
        Column("95 % interval", True, "of the mean, over seeds (Student's t) and test examples (Wilson)"),
        Column("Test 95 %", True, "of the mean of these seeds, over test examples alone (Wilson)"),
    )
    theirs = (
        Column("Printed", True, "where our run has all settings of the printed one", measured=False),
        Column("Difference", True, "our median minus the printed number"),
        Column("Source", wrap=True, help="of the printed number, or what is not as printed in our run"),
    )
    return ours + {"none": (), "other": theirs[-1:], "same": theirs}[printed]


def _baseline_row(name: str, value: float, width: int, unit: str) -> tuple[str, ...]:
    cells = [name, "no training", number(value, decimals(unit)), DASH, DASH]
    return (*cells, *[""] * (width - len(cells)))


def _score_row(cell: Cell, matches: Sequence[Counterpart], printed: PrintedColumns) -> tuple[str, ...]:
    summary, digits = cell.summary, decimals(cell.unit)
    done = sum(s.value is not None for s in cell.scores)
    ours = (
        cell.arm.model_label,
        cell.arm.protocol,
        number(summary.median if summary else None, digits),
        str(done) if done == len(cell.scores) else f"{done} of {len(cell.scores)}",
        failures_text(cell),
        range_text(summary.low, summary.high, cell.unit) if summary and summary.n > 1 else DASH,
        interval_text(cell),
        test_text(cell),
    )
    places = 2 if digits == 1 else 3
    same = [m for m in matches if not m.unlike]
    theirs = "\n".join(_printed(m, places) for m in same)
    distance = "\n".join(signed(m.difference, digits) for m in same)
    others = [f"Not {shown_match(m, places)}: {brief(m.unlike)}." for m in matches if m.unlike]
    source = "\n".join([*(m.where for m in same), *others])
    return ours + {"none": (), "other": (source,), "same": (theirs or DASH, distance or DASH, source)}[printed]


def shown_match(match: Counterpart, places: int) -> str:
    """The printed number, marked with its own row, and where it stands: "47.90 of amos2025 table 2"."""
    return f"{_printed(match, places)} of {match.where}"


def _printed(match: Counterpart, places: int) -> str:
    return marked(match.status if match.value is None else number(match.value, places), match.anchor)


def brief(unlike: Sequence[str], most: int = 5) -> str:
    """Returns the first of what differs, and how many more there are."""
    more = len(unlike) - most
    return "; ".join(unlike[:most]) + (f"; {more} more below" if more > 0 else "")


def ledger_table(cells: Sequence[Cell]) -> Table:
    """What each score cost: medians over seeds, of one run, all phases together."""
    columns = (
        Column("Model"),
        Column("Protocol"),
        Column("Parameters", True, "trainable numbers of the scored network"),
        Column("State", True, "numbers a causal copy carries from step to step"),
        Column("Tokens", True, "steps of sequence trained on, padding apart, all phases"),
        Column("Padding", True, "share of all positions computed that were padding"),
        Column("Steps", True, "optimizer steps, all phases"),
        Column("FLOPs", True, "forward and backward of the batches as they were, padding included"),
        Column("Useful FLOPs", True, "of the same steps, were every sequence computed at its own length"),
        Column("Wall time", True),
        Column("Tuning trials", True),
        Column("Device"),
    )
    lines = tuple((cell.arm.model_label, cell.arm.protocol, *ledger_row(cell)) for cell in cells)
    return Table(columns, lines, caption="Ledger: the cost of one run")


def ledger_row(cell: Cell) -> tuple[str, ...]:
    """Returns what a line of `ledger_table` says after the names of the arm."""
    tokens, padding = cell.cost("tokens"), cell.cost("padding")
    share = f"{100 * padding / (tokens + padding):.0f} %" if tokens and padding is not None else DASH
    threads = cell.words("threads")
    return (
        si(cell.cost("parameters")),
        si(cell.cost("state")),
        si(tokens),
        share,
        si(cell.cost("steps")),
        si(cell.cost("flops")),
        si(cell.cost("flops_useful")),
        duration(cell.cost("wall_s")),
        si(cell.cost("tuning_trials")),
        (cell.words("device") or DASH) + (f", {threads} thread{'s' * (threads != '1')}" if threads else ""),
    )


def differences_table(found: Sequence[Difference], arms: Sequence[Arm]) -> Table:
    """What differs between the arms of one task: a field once, then its values and who has them."""
    rows = []
    for difference in found:
        for index, (value, having) in enumerate(difference.values.items()):
            rows.append(("" if index else difference.field, value, group(having, arms)))
    return Table((Column("Field"), Column("Value", wrap=True), Column("Arms", wrap=True)), tuple(rows))


def summary_records(
    cells: Cells, counterparts: Mapping[Arm, Sequence[Counterpart]], study: str, effort: str
) -> list[dict[str, Any]]:
    """One record per arm and task, numbers unrounded: what `summary.csv` holds. Absent means it does not apply."""
    records: list[dict[str, Any]] = []
    for task, rules in cells.baselines.items():
        for name, value in rules.items():
            record = {"study": study, "effort": effort, "task": task, "model": name, "protocol": "none"}
            records.append(record | {"metric": cells.metric, "unit": cells.unit, "median": value})
    for cell in cells.cells:
        record = {"study": study, "effort": effort, "task": cell.arm.task, "model": cell.arm.model_label}
        record |= {"protocol": cell.arm.protocol, "metric": cells.metric, "unit": cells.unit}
        record |= {"planned": len(cell.scores), "failed": sum(cell.failures.values())}
        record |= {"unfinished": cell.unfinished or None}
        record |= {"failures": "; ".join(f"{n} {why}" for why, n in cell.failures.items()), "examples": cell.examples}
        if cell.summary:
            low, high = cell.summary.interval or (None, None)
            record |= {"n": cell.summary.n, "median": cell.summary.median, "mean": cell.summary.mean}
            record |= {"min": cell.summary.low, "max": cell.summary.high, "interval_low": low, "interval_high": high}
            low, high = cell.summary.test or (None, None)
            record |= {"test_low": low, "test_high": high}
        record |= {key: cell.cost(key) for key in (*COSTS, "tuning_trials")} | {"device": cell.words("device")}
        for index, m in enumerate(counterparts.get(cell.arm, ())):
            tail = f"_{index + 1}" if index else ""
            record |= {f"printed{tail}": m.value, f"printed_status{tail}": m.status, f"printed_source{tail}": m.where}
            record |= {f"difference{tail}": m.difference, f"not_as_printed{tail}": "; ".join(m.unlike)}
        records.append({k: v for k, v in record.items() if v not in (None, "")})
    return records


def to_csv(records: Sequence[Mapping[str, Any]] | Sequence[Row]) -> str:
    """Comma-separated, one column per key that occurs, in order of first appearance."""
    keys = list(dict.fromkeys(k for record in records for k in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(dict(record) for record in records)
    return text.getvalue()
