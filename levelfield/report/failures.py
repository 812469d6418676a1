"""Lists the answers that are not right, so that a reader can see what goes wrong: expected, answered, where.

    section([Failure("vt", 4096, 3, "", "ABCDE FGHIJ", "ABCDE", 50.0)])

The list is folded away. A field above it keeps the rows that have what is typed; without scripts all rows stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from levelfield.report.tables import Column, Table

MOST = 300  # shown of one part
LETTERS = 240  # of an answer
FIELD = (
    '<p><label>Search: <input type="search" oninput="const text=this.value.toLowerCase();'
    "for(const row of this.closest('details').querySelectorAll('tbody tr'))"
    'row.hidden=!row.textContent.toLowerCase().includes(text)"></label></p>'
)


class Failure(NamedTuple):
    """An answer that is not wholly right. depth: of the needle, as a share of the text; "" without exactly one."""

    task: str
    length: int
    sample: int
    depth: str
    expected: str
    answered: str
    score: float


def section(found: Sequence[Failure]) -> str:
    """Returns the list as HTML; "" without failures. Where there are more than fit, it shows some of every cell."""
    if not found:
        return ""
    shown = chosen(found)
    heads = ("task", False), ("length", True), ("sample", True), ("depth", True), ("score (%)", True)
    columns = *(Column(name, number=number) for name, number in heads), Column("expected"), Column("answered")
    table = Table(columns, tuple(_cells(one) for one in shown))
    some = f", {len(shown):,} of them here" if len(shown) < len(found) else ""
    title = escape(f"Answers that are not right: {len(found):,}{some}")
    return f"<details><summary>{title}</summary>{FIELD}{table.html()}</details>"


def chosen(found: Sequence[Failure], most: int = MOST) -> list[Failure]:
    """Takes at most so many, equally many of each task and length as far as there are, in the given order."""
    cells: dict[tuple[str, int], list[Failure]] = {}
    for one in found:
        cells.setdefault((one.task, one.length), []).append(one)
    taken = dict.fromkeys(cells, 0)
    left = min(most, len(found))
    while left:
        for place, group in cells.items():
            if left and taken[place] < len(group):
                taken[place] += 1
                left -= 1
    return [one for place, group in cells.items() for one in group[: taken[place]]]


def _cells(one: Failure) -> tuple[str, ...]:
    answer = " ".join(one.answered.split())
    answer = answer if len(answer) <= LETTERS else f"{answer[:LETTERS]} ..."
    return (
        one.task,
        str(one.length),
        str(one.sample),
        one.depth,
        f"{one.score:.0f}",
        one.expected,
        answer or "(nothing)",
    )
