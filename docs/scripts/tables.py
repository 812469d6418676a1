"""Writes the README's tables from what the package really has, and tables of two pages of docs from its results.

    python docs/scripts/tables.py           # rewrites what lies between the markers in README.md and these pages
    python docs/scripts/tables.py --check   # exit 1 if that would change anything

A marker is a comment, `<!-- table: mixers -->`, and a table ends at `<!-- end -->`.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import listops_levels as levels

from levelfield import published
from levelfield import tasks as found
from levelfield.cli import listing
from levelfield.engine.find import Source
from levelfield.mixers import classes

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "verdicts.md", ROOT / "docs" / "tasks.md")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def mixers() -> str:
    """What each is, from the first sentence of its file."""
    rows = [(f"`{m.label}`", listing.first_sentence(m), m.paper) for m in classes()]
    return table(("mixer", "what it is", "paper"), rows)


def tasks() -> str:
    """A line for each file: what it is, its first setting's input and output, and the names of its other settings."""
    lines = dict(listing.tasks())
    rows = []
    for name, module in found.modules().items():
        others = ", ".join(f"`{n}`" for n in module.TASKS if n != name) or "–"
        about = (module.__doc__ or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
        rows.append((f"`{name}`", about, lines[name], others))
    return table(("task", "what it is", "input and output", "more settings"), rows)


def studies() -> str:
    """Each with the printed tables that it answers to."""
    rows = []
    for name, claim in listing.studies():
        study = Source(name).find()
        tables: dict[str, list[str]] = {}
        for p in study.published:
            tables.setdefault(p.paper, []).append(p.table)
        answers = ", ".join(f"{paper} table{'s' * (len(t) > 1)} {', '.join(t)}" for paper, t in tables.items()) or "–"
        count = sum(len(published.rows(p.paper, p.table)) for p in study.published)
        rows.append((f"`{name}`", claim, answers, str(count or "–")))
    return table(("study", "claim it puts to the test", "answers to", "printed rows"), rows)


def probes() -> str:
    return table(("probe", "what it measures"), [(f"`{name}`", about) for name, about in listing.probes()])


def protocols() -> str:
    return table(("protocol", "what it is"), [(f"`{name}`", about) for name, about in listing.protocols()])


def false_alarms() -> str:
    """How often each rule decides something where it should decide nothing, and in which simulation most often."""
    made: dict[str, list[Mapping[str, str]]] = {}
    with (ROOT / "results" / "false-alarms.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            truth = f", {line['truth']}" if line["rule"] == "huang2024_small" else ""  # it makes two claims
            made.setdefault(f"`{line['rule']}`{truth}", []).append(line)
    rows = []
    for rule, lines in made.items():
        worst = max(lines, key=lambda line: float(line["rate"]))
        where = f" ({worst['law']}, seeds: {worst['seeds']})" if int(worst["false_alarms"]) else ""
        reports, wrong = (sum(int(line[column]) for line in lines) for column in ("reports", "false_alarms"))
        rows.append((rule, f"{len(lines)}", f"{reports:,}", f"{wrong}", f"{float(worst['rate']):.1%}{where}"))
    head = ("rule", "lines", "reports", "false alarms", "worst line")
    return table(head, [[cell.replace("%", " %") for cell in row] for row in rows])


def listops_levels() -> str:
    return "\n".join(levels.told())


TABLES: dict[str, Callable[[], str]] = {
    "mixers": mixers,
    "tasks": tasks,
    "studies": studies,
    "probes": probes,
    "protocols": protocols,
    "false_alarms": false_alarms,
    "listops_levels": listops_levels,
}


def filled(text: str) -> str:
    """The text with every marked table made anew."""

    def make(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{TABLES[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", make, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        before = page.read_text()
        after = filled(before)
        if "--check" in sys.argv and before != after:
            sys.exit(f"{page.name} is out of date: run python docs/scripts/tables.py")
        page.write_text(after)
