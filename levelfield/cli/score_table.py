"""Displays a table of scores while a language model answers: tasks downwards, lengths across.

    with score_table(console, tasks=("niah_single_1", "vt"), lengths=(1024, 2048), total=400) as shown:
        shown.add("vt", 1024, 60.0)

On a terminal the table stays in place; anywhere else a line is printed every ten seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from rich.console import Console
from rich.live import Live
from rich.table import Table

from levelfield.cli.console import redraws
from levelfield.cli.run_screen import PLAIN_EVERY_S
from levelfield.report.tables import duration


class ScoreTable:
    """Mean scores so far, in percent, of every task and length. lines: whether it prints one from time to time."""

    def __init__(
        self, tasks: Sequence[str], lengths: Sequence[int], total: int, console: Console, *, lines: bool
    ) -> None:
        self.tasks, self.lengths, self.total = tasks, lengths, total
        self.console, self.lines = console, lines
        self.scores: dict[tuple[str, int], list[float | None]] = {}
        self.done, self.new = 0, 0
        self.began = self.shown = time.monotonic()

    def add(self, task: str, length: int, score: float | None, new: bool = True) -> None:
        """Adds the score of an answer, in percent; None where logits were no numbers.

        new: whether it was generated now rather than read from a file.
        """
        self.scores.setdefault((task, length), []).append(score)
        self.done, self.new = self.done + 1, self.new + new
        now = time.monotonic()
        if self.lines and new and now - self.shown > PLAIN_EVERY_S:
            self.shown = now
            self.console.print(f"{self.headline()}  {task} {length}: {self.cell(task, length)}", highlight=False)

    def clear(self) -> None:
        """Forgets all answers, which are to be added again with other scores."""
        self.scores.clear()
        self.done = 0

    def headline(self) -> str:
        """How many answers there are, and how long the rest takes at the pace so far."""
        each = (time.monotonic() - self.began) / max(1, self.new)
        left = duration(each * (self.total - self.done)) if self.new else "?"
        return f"{self.done} of {self.total} answers, {left} left" if self.done < self.total else f"{self.done} answers"

    def cell(self, task: str, length: int) -> str:
        found = self.scores.get((task, length), [])
        if found and all(score is None for score in found):
            return "diverged"
        return f"{fmean(score or 0.0 for score in found):.1f}" if found else ""

    def table(self) -> Table:
        shown = Table(title=self.headline(), title_justify="left", box=None, pad_edge=False)
        shown.add_column("match, %")
        for length in self.lengths:
            shown.add_column(str(length), justify="right")
        for task in self.tasks:
            shown.add_row(task, *(self.cell(task, length) for length in self.lengths))
        return shown


@contextmanager
def score_table(console: Console, tasks: Sequence[str], lengths: Sequence[int], total: int) -> Iterator[ScoreTable]:
    """Yields a table that suits the console, and prints it in full at the end."""
    shown = ScoreTable(tasks, lengths, total, console, lines=not redraws(console))
    if shown.lines:
        yield shown
    else:
        with Live(console=console, get_renderable=shown.table, refresh_per_second=4, transient=True):
            yield shown
    console.print(shown.table())
