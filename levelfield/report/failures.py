"""Lists the answers that are not right, so that a reader can see what goes wrong: asked, expected, answered, where.

    section([Failure("vt", 4096, 3, "", "ABCDE FGHIJ", "ABCDE", 50.0)], "../../runs/ruler/mine/predictions.jsonl")

The list is folded away. The page's script sorts it, and filters it by words where it is long; without it all rows stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol, TypeVar
from urllib.parse import quote

from levelfield.report.tables import Column, Table
from levelfield.spec.failure import Failure

MOST = 300  # shown of one part
LETTERS = 240  # of an answer
LAST = 160  # letters of what was written before it: those at its end
REASONED = "end of reasoning"


class Placed(Protocol):
    """What is listed by task and length."""

    @property
    def task(self) -> str: ...

    @property
    def length(self) -> int: ...


class Asked(Protocol):
    """What may have its question."""

    @property
    def question(self) -> str: ...


Listed = TypeVar("Listed", bound=Placed)


def section(found: Sequence[Failure], stored: str = "") -> str:
    """Returns the list as HTML; "" without failures. Where there are more than fit, it shows some of every cell.

    stored: the address of the file with all answers, to which the list leads; "" for none.
    """
    if not found:
        return ""
    shown = chosen(found)
    heads = ("task", False), ("length", True), ("sample", True), ("depth", True), ("score (%)", True)
    empty = {"question": not any_asked(shown), REASONED: not any(one.reasoning for one in shown)}
    texts = [name for name in ("question", "expected", "answered", REASONED) if not empty.get(name)]
    columns = (*(Column(name, number=number) for name, number in heads), *map(Column, texts))
    table = Table(columns, tuple(_cells(one, *texts) for one in shown))
    file = f'<a href="{escape(quote(stored))}">{escape(stored.rpartition("/")[2])}</a>'
    note = f'<p class="note">All answers, in full: {file}.</p>' if stored else ""
    return folded("Answers that are not right", table, len(found), note)


def folded(title: str, table: Table, total: int, note: str = "") -> str:
    """Returns a table that is folded away. total: of which its rows are some. note: HTML above the table."""
    some = f", {len(table.rows):,} of them here" if len(table.rows) < total else ""
    return f"<details><summary>{escape(f'{title}: {total:,}{some}')}</summary>{note}{table.html()}</details>"


def chosen(found: Sequence[Listed], most: int = MOST) -> list[Listed]:
    """Takes at most so many, equally many of each task and length as far as there are, in the given order."""
    cells: dict[tuple[str, int], list[Listed]] = {}
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


def any_asked(found: Sequence[Asked]) -> bool:
    """Whether the question of any of them was stored, so that a list has a column for it."""
    return any(one.question for one in found)


def _cells(one: Failure, *texts: str) -> tuple[str, ...]:
    said = {"question": one.question, "expected": one.expected, "answered": shown_answer(one.answered)}
    said[REASONED] = shown_end(one.reasoning)
    numbers = (str(one.length), str(one.sample), one.depth, f"{one.score:.0f}")
    return (one.task, *numbers, *(said[name] for name in texts))


def shown_answer(text: str) -> str:
    """Returns an answer in one line, the end of a long one left out."""
    answer = " ".join(text.split())
    return (answer if len(answer) <= LETTERS else f"{answer[:LETTERS]} ...") or "(nothing)"


def shown_end(text: str) -> str:
    """Returns the end of a text in one line, the beginning of a long one left out."""
    whole = " ".join(text.split())
    return whole if len(whole) <= LAST else f"... {whole[-LAST:]}"
