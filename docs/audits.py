"""Writes docs/audits.md, which ranks audited tasks by the steps that are enough for them, from committed rows.

python docs/audits.py           # reads results/audits/*.csv, the rows.csv of `levelfield audit`
python docs/audits.py --check   # exit 1 if the page is out of date
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path
from typing import get_type_hints

from levelfield.report.audit import words
from levelfield.report.audit.reading import GRAMS, Reading
from levelfield.report.audit.shares import DISORDERED, RULE
from levelfield.spec import Row

sys.path.insert(0, str(Path(__file__).resolve().parent))

import audits_figure

DOCS = Path(__file__).resolve().parent
PAGE, ROWS = DOCS / "audits.md", DOCS.parent / "results" / "audits"
FIGURE = DOCS / "figures" / "audits.png"
KINDS = get_type_hints(Row)
HEAD = """# Which long-range benchmarks are long-range?

Compare tasks by how many adjacent steps a model must see. Each row is an [audit](audit.md), ranked by the narrowest
window that has 95 % of what is learnt: that of a trained convolution, or counts of as many symbols in a row. *Learnt*
is how far the best model or rule has come from guessing to no error; the shares in the other columns are of that. Tasks
come last, and their rank means nothing, where less than half was learnt, or where no model that sees everything learnt
as much as windows did: so short an audit has missed most of what they hold, or cannot tell what lies further away.
Where one step or the first few steps are enough, the row names them. Written by `python docs/audits.py` from the rows
in `results/audits/`.
"""
NONE = "No audit is committed yet; [audit.md](audit.md) says how one is added.\n"
COLUMNS = (
    ("task", ":--"),
    ("effort", ":--"),
    ("median steps", "--:"),
    ("learnt", "--:"),
    ("sufficient window", "--:"),
    ("plausible windows", ":--"),
    ("steps shuffled", "--:"),
    ("best rule without a sequence model", ":--"),
    ("verdict", ":--"),
)


def read(path: Path) -> Reading:
    """Returns what the rows of one audit say."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = [{k: KINDS[k](v) for k, v in line.items() if v and k in KINDS} for line in csv.DictReader(file)]
    return Reading.of([Row(**line) for line in lines])


def page(audits: list[Reading]) -> str:
    """Returns the whole page: what takes the longest windows first, then those of which nothing is claimed."""
    if not audits:
        return f"{HEAD}\n{NONE}"
    lines = [f"| {' | '.join(name for name, _ in COLUMNS)} |", f"|{'|'.join(rule for _, rule in COLUMNS)}|"]
    found, picture = ranked(audits), f"![{audits_figure.caption(ranked(audits))}](figures/{FIGURE.name})\n"
    return "\n".join([HEAD, picture, *lines, *(f"| {' | '.join(_cells(each))} |" for each in found)]) + "\n"


def ranked(audits: list[Reading]) -> list[Reading]:
    """Returns audits by the window that is enough, longest first, then those of which nothing is claimed."""
    return sorted(audits, key=lambda f: (not words.claims(f), not f.learnable, -f.enough.steps, -f.learnt, f.task))


def _cells(found: Reading) -> tuple[str, ...]:
    enough, shares = found.enough, found.of_kind(RULE)
    best = max(shares, key=lambda name: shares[name].value, default="")
    shuffled = found.of_kind(DISORDERED).get("unordered")
    return (
        f"`{found.task}`{_settings(found)}",
        found.effort,
        f"{found.fact('steps', 'test', 'median'):,.0f}",
        f"{100 * max(0.0, found.learnt):.0f} %",
        _sufficient(found) if found.learnable else "–",
        f"{_steps(enough.least, found)} to {_steps(enough.most, found)}" if found.learnable else "–",
        shuffled.percent() if shuffled else "–",
        f"{words.rule_words(best)}: {shares[best].percent()}" if best else "–",
        words.lead(found),
    )


def _settings(found: Reading) -> str:
    """The setting of a task that no other row of the table says."""
    proved = found.fact("certified_range")
    return f", range {proved:.0f}" if proved else ""


def _sufficient(found: Reading) -> str:
    """The window that is enough, or what needs none: the length, or so many steps at one end."""
    if found.simplest and found.simplest != words.PLACES and not found.simplest.endswith(GRAMS):
        return words.rule_words(found.simplest)
    return _steps(found.enough.steps, found)


def _steps(steps: float, found: Reading) -> str:
    return f"{steps:.0f}" if math.isfinite(steps) else f"over {found.widest:.0f}"


def committed() -> list[Reading]:
    """Returns the audits in results/audits/."""
    return [read(path) for path in sorted(ROWS.glob("*.csv"))]


def main() -> None:
    """Writes the page and its figure, or checks the page."""
    text = page(committed())
    if "--check" in sys.argv:
        raise SystemExit(0 if PAGE.read_text() == text else "docs/audits.md is out of date: run python docs/audits.py")
    PAGE.write_text(text)
    FIGURE.write_bytes(audits_figure.draw(ranked(committed())))


if __name__ == "__main__":
    main()
