"""Draws what a number of the verdict is computed from, where it is computed from several scores, as a sum that a reader
can check: each line is the mean of an arm's scores, with a weight, and leads to its rows.

    +1   listops, s4 · scratch          53.0800    +53.0800
    -1   listops, attention · scratch   48.1500    -48.1500
         together                                   +4.9300

The anchor of such a number holds weights and anchors (`links.computed`), so nothing but the text of the verdict and the
rows is needed here. An interval beside the number is over seeds and test examples, as docs/verdicts.md says.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from levelfield.report.links import Terms, list_html, sums
from levelfield.report.row_index import RowIndex
from levelfield.report.tables import Column, Link, Table, number

COLUMNS = (
    Column("Times", True, measured=False),
    Column("Mean of", wrap=True),
    Column("Mean %", True, "of the scores of this arm, one for each seed"),
    Column("Comes to", True),
)
Line = tuple[str, str, str, str]


def drawn(anchors: Iterable[str], index: RowIndex) -> str:
    """Returns a list for every anchor that is of a sum; "" where none is."""
    found = [_list(anchor, parts, index) for anchor in anchors if (parts := sums(anchor))]
    return "\n".join(["<h3>Computed from several scores</h3>", *found]) if found else ""


def _list(anchor: str, parts: tuple[Terms, ...], index: RowIndex) -> str:
    lines: list[Line] = []
    links: list[Link] = []
    for terms in parts:
        lines += [_line(weight, term, index) for weight, term in terms]
        lines.append(("", "together", "", _signed(_value(terms, index))))
        links += [*(Link(term) for _, term in terms), Link("")]
    titles = [_title(terms, index) for terms in parts]
    if len(parts) > 1:
        first, second = (_value(terms, index) for terms in parts)
        lines.append(("", "the first over the second", "", f"{100 * first / second:.2f} %" if second else "–"))
        links.append(Link(""))
        titles = [f"({title})" for title in titles]
    return list_html(anchor, " / ".join(titles), Table(COLUMNS, tuple(lines), links=tuple(links)).html())


def _line(weight: float, anchor: str, index: RowIndex) -> Line:
    if not anchor:
        return "", "the limit of the question", "", _signed(weight)
    mean = fmean(index.scores(anchor))
    return f"{weight:+g}".replace("-", "−"), index.named(anchor), number(mean, 4), _signed(weight * mean)


def _value(terms: Terms, index: RowIndex) -> float:
    return sum(weight * (fmean(index.scores(anchor)) if anchor else 1.0) for weight, anchor in terms)


def _title(terms: Terms, index: RowIndex) -> str:
    """Returns the sum in words, what is added first: "listops: s4 · scratch − attention · scratch"."""
    names = [index.named(anchor).partition(", ")[::2] for _, anchor in terms]
    tasks = {task for task, what in names if what}
    said = ""
    for (weight, _), (task, what) in sorted(zip(terms, names, strict=True), key=lambda each: each[0][0] < 0):
        whole = what if len(tasks) == 1 else f"{task}, {what}".strip(", ")
        named = " × ".join(filter(None, (f"{abs(weight):g}", whole))).removeprefix("1 × ")
        said += f"{' − ' if weight < 0 else ' + '}{named}"
    said = said.removeprefix(" + ").strip()
    return f"{tasks.pop()}: {said}" if len(tasks) == 1 else said


def _signed(value: float) -> str:
    return f"{value:+z.4f}".replace("-", "−")
