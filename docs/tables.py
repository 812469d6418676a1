"""Writes the README's tables from what the package really has.

    python docs/tables.py           # rewrites what lies between the markers in README.md
    python docs/tables.py --check   # exit 1 if that would change anything

A marker is a comment, `<!-- table: mixers -->`, and a table ends at `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from levelfield import published
from levelfield import tasks as found
from levelfield.cli import listing
from levelfield.engine.find import Source
from levelfield.mixers import MIXERS

README = Path(__file__).resolve().parent.parent / "README.md"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def mixers() -> str:
    """What each is, from the first sentence of its file."""
    rows = [(f"`{m.label}`", listing.first_sentence(m), m.paper) for m in MIXERS]
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


TABLES: dict[str, Callable[[], str]] = {
    "mixers": mixers,
    "tasks": tasks,
    "studies": studies,
    "probes": probes,
    "protocols": protocols,
}


def filled(text: str) -> str:
    """The text with every marked table made anew."""

    def make(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{TABLES[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", make, text, flags=re.DOTALL)


if __name__ == "__main__":
    before = README.read_text()
    after = filled(before)
    if "--check" in sys.argv:
        sys.exit(before != after and "README.md is out of date: run python docs/tables.py")
    README.write_text(after)
