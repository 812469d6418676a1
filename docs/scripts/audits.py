"""Writes docs/audits.md, which ranks audited tasks by the steps that are enough for them, from committed rows.

python docs/scripts/audits.py           # reads results/audits/**/*.csv, the rows.csv of `levelfield audit`
python docs/scripts/audits.py --check   # exit 1 if the page is out of date
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import audits_figure
import contents

from levelfield.report.audit import words
from levelfield.report.audit.figures import draw
from levelfield.report.audit.reading import FAR, Reading, width
from levelfield.report.audit.shares import DISORDERED, RULE
from levelfield.report.audit.terms import rule_words
from levelfield.spec import Row

DOCS = Path(__file__).resolve().parents[1]
PAGE, ROWS = DOCS / "audits.md", DOCS.parent / "results" / "audits"
RULES = ROWS / "without-models"
FIGURE = DOCS / "figures" / "audits.png"
SHOWN, ONE = ROWS / "digits-minutes.csv", DOCS / "figures" / "audit.png"  # the audit that docs/audit.md shows
KINDS = get_type_hints(Row)
HEAD = """# Which long-range benchmarks are long-range?

Compare tasks by how many adjacent steps a model must see. Each row is an [audit](audit.md), ranked by the narrowest
window with 95 % of what was learnt, where a window is the steps that a trained convolution sees, or the n of counted
n-grams. *Learnt* is how far the best model or rule has come from guessing to no error; the shares in the other columns
are of that. Where a range is [certified](reach.md), a window one step wider suffices by proof, whatever trained windows
have learnt. At effort `minutes` an audit trains for 500 optimizer steps, or more where sequences are short. Where one
step or the first few steps are enough, the row names them. Where an audit is older than its rules, the score of the
best rule stands in place of its share. Written by `python docs/scripts/audits.py` from the rows in `results/audits/`.
"""
FIRST = """
## The window that suffices
"""
REST = """
## Where nothing is claimed

Of these tasks, less than half was learnt, or windows did not learn it, or no model that sees everything learnt as much
as windows did, though more was left to learn. So short an audit has missed most of what they hold, or what windows
learn with longer training, or cannot tell what lies further away.
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


SIMPLE = ("length", *(f"{end} {steps}" for end in ("first", "last") for steps in (1, 8, 32)), "place", "latest 1")
SECOND = """
## What needs no sequence model

How well naive Bayes or ridge regression solve each task from the length alone, from some steps, from each step with its
place, or from counts of n-grams: what a benchmark gives away whether or not a model reads its order. Where answers
stand at single steps, the rule is the label that is commonest in training given the place of such a step, the latest 1,
2 or 3 symbols (windows of so many steps), or the symbol after the last step that had an answer, which may reveal that
answer. Where one state answers at all steps, the rule is given the place alone. Each row is
`levelfield audit TASK --without-models`, on at most 8,000 training and 2,000 test examples, fewer where sequences are
long. `speech_part` is a part of Speech Commands, and `retrieval_2k` reads pairs of papers that stand in for the
release's. *Of all* is how far the best rule has come from guessing to no error. The best rule is chosen on validation,
and so is the best of the simplest rules, which know only the length, the first or last steps of the sequence, or, of a
step with an answer, its place or its symbol. A task can be long-range although a rule solves much of it: if the two
steps that matter stand in fixed places, *each step with its place* finds them. If the best rule knows the latest
symbols and there are answers at the first steps as well, its score after these is given too: if that is the score of
guessing, as of running products, the rule only solves the first steps, at which there are no other symbols. Rules of
single tasks, such as naming the commonest or the last value so far, are not in the table. [Their pages](tasks.md) say
what these score, which is more: 61 % on `listops` for reading one level, 30 % on `copying`, 25 % on `mqar`, 21 % on
`needle` and 20 % on `selective_copying`.
"""
RULE_COLUMNS = (
    ("task", ":--"),
    ("median steps", "--:"),
    ("guessing", "--:"),
    ("best rule", ":--"),
    ("its score", "--:"),
    ("of all", "--:"),
    ("best of the simplest rules", ":--"),
    ("test examples that are in train too", "--:"),
)


def read(path: Path) -> Reading:
    """Returns what the rows of one audit say."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = [{k: KINDS[k](v) for k, v in line.items() if v and k in KINDS} for line in csv.DictReader(file)]
    return Reading.of([Row(**line) for line in lines])


def page(audits: list[Reading], ruled: list[Reading]) -> str:
    """Returns the whole page: what takes the longest windows first, then those of which nothing is claimed; then what
    rules have."""
    found = ranked(audits)
    picture = f"![{audits_figure.caption(found)}](figures/{FIGURE.name})\n\n" if found else ""
    claimed = [each for each in found if words.claims(each)]
    parts = (FIRST, picture, claimed), (REST, "", found[len(claimed) :])
    tables = (f"{said}\n{shown}{_table(COLUMNS, map(_cells, those))}" for said, shown, those in parts if those)
    first = HEAD + ("".join(tables) or f"\n{NONE}")
    rules = sorted(ruled, key=lambda each: (-_gained(each), each.task))
    return contents.filled(first + (f"{SECOND}\n{_table(RULE_COLUMNS, map(_rule_cells, rules))}" if rules else ""))


def _table(columns: Sequence[tuple[str, str]], lines: Iterable[Sequence[str]]) -> str:
    heads = (" | ".join(name for name, _ in columns), *(" | ".join(cells) for cells in lines))
    first, *rest = (f"| {line} |\n" for line in heads)
    return "".join([first, f"|{'|'.join(rule for _, rule in columns)}|\n", *rest])


def ranked(audits: list[Reading]) -> list[Reading]:
    """Returns audits by the window that is enough, longest first, then those of which nothing is claimed."""
    return sorted(audits, key=lambda f: (not words.claims(f), not f.learnable, -f.enough.steps, -f.learnt, f.task))


def _cells(found: Reading) -> tuple[str, ...]:
    shuffled = found.of_kind(DISORDERED).get("unordered")
    return (
        f"`{found.task}`{_settings(found)}",
        found.effort,
        f"{found.fact('steps', 'test', 'median'):,.0f}",
        f"{100 * max(0.0, found.learnt):.0f} %",
        _sufficient(found) if found.learnable else "–",
        _plausible(found) if found.learnable else "–",
        shuffled.percent() if shuffled else "–",
        _best_rule(found),
        words.lead(found),
    )


def _best_rule(found: Reading) -> str:
    """The best rule with its share, or with its score where it has none, as that of an audit without models."""
    best = found.best_rule()
    if best in found.shares:
        return f"{rule_words(best)}: {found.shares[best].percent()}"
    return f"{rule_words(best)}: scores {found.scores[best].score()}{_later(found, best)}" if best else "–"


def _rule_cells(found: Reading) -> tuple[str, ...]:
    best, simple = found.best_rule(), found.best_rule(SIMPLE)
    return (
        f"`{found.task}`{_settings(found)}",
        f"{found.fact('steps', 'test', 'median'):,.0f}",
        f"{100 * found.guessing:.0f} %" if found.in_percent else "–",
        rule_words(best) if found.learnable else "nothing learnt",
        f"{found.scores[best].score()}{_later(found, best)}" if found.in_percent else "–",
        f"{100 * _gained(found):.0f} %" if found.learnable else "–",
        f"{rule_words(simple)}: {found.shares[simple].percent()} of that" if found.learnable else "–",
        f"{100 * found.fact('leaked', 'test'):.0f} %",
    )


def _later(found: Reading, rule: str) -> str:
    """What a rule that knows the latest few symbols scores after so many steps, where it scores anything."""
    if not found.learnable or rule not in found.later:
        return ""
    return f"; after the first {width(rule)}, {found.later[rule].score()}"


def _gained(found: Reading) -> float:
    """How far the best rule has come from guessing to no error; 0 where nothing is learnt."""
    perfect = 1.0 if found.in_percent else 0.0
    gain = (found.scores[found.best_rule()].value - found.guessing) / ((perfect - found.guessing) or 1.0)
    return max(0.0, gain) if found.learnable else 0.0


def _settings(found: Reading) -> str:
    """The setting of a task that no other row of the table says."""
    proved = found.fact("certified_range")
    return f", range {proved:.0f}" if proved else ""


def _sufficient(found: Reading) -> str:
    """The window that is enough, or what needs none: the length, or so many steps at one end; else that windows have
    not learnt it."""
    if found.simplest and found.simplest not in FAR and not width(found.simplest):
        return rule_words(found.simplest)
    if math.isinf(found.enough.steps):
        return f"not learnt by up to {found.widest:.0f}"
    return f"{found.enough.steps:.0f}{', by proof' if found.proved else ''}"


def _plausible(found: Reading) -> str:
    """The windows that intervals leave as the narrowest that is enough."""
    enough = found.enough
    if math.isinf(enough.least):
        return f"none of up to {found.widest:.0f}"
    ends = f"{enough.least:.0f}", f"{enough.most:.0f}"
    return " to ".join(dict.fromkeys(ends)) if math.isfinite(enough.most) else f"{enough.least:.0f} or wider"


def committed() -> list[Reading]:
    """Returns the audits in results/audits/ for which models were trained; one without rules has the scores of those in
    results/audits/without-models/, where guessing says that both are of the same test examples. Each is under the name
    that `levelfield list tasks` has."""
    ruled = {each.task: each for each in of_rules()}
    found = (replace(read(path), task=path.stem.rpartition("-")[0]) for path in sorted(ROWS.glob("*.csv")))
    return [_with_rules(each, ruled) for each in found]


def _with_rules(found: Reading, ruled: Mapping[str, Reading]) -> Reading:
    rules = ruled.get(found.task)
    if rules is None or rules.guessing != found.guessing or any(n.kind == RULE for n in found.scores.values()):
        return found
    joined = ("scores", "validation", "later", "commonest")
    return replace(found, **{name: {**getattr(found, name), **getattr(rules, name)} for name in joined})


def of_rules() -> list[Reading]:
    """Returns the audits in results/audits/without-models/, each under such a name, too."""
    return [replace(read(path), task=path.stem) for path in sorted(RULES.glob("*.csv"))]


def main() -> None:
    """Writes the page, its figure and that of one audit, or checks the page."""
    text = page(committed(), of_rules())
    if "--check" in sys.argv:
        raise SystemExit(
            0 if PAGE.read_text() == text else "docs/audits.md is out of date: run python docs/scripts/audits.py"
        )
    PAGE.write_text(text)
    FIGURE.write_bytes(audits_figure.draw(ranked(committed())))
    ONE.write_bytes(draw(read(SHOWN))["windows"].png)


if __name__ == "__main__":
    main()
