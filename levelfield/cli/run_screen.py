"""Displays the progress of runs: a live table on a terminal, a line every ten seconds anywhere else.

    3 of 24 done, 1 failed
    listops-attention-scratch-0-5f0c9a1e2b   classify 1/2   320/2000   loss 1.732   best 0.412   2 min left

Each run writes `progress.json` in its directory; this reads them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table

from levelfield.cli.console import redraws
from levelfield.report.tables import duration
from levelfield.runs import store

PLAIN_EVERY_S = 10.0
GAP = 2  # blanks between columns


def read(where: Path) -> dict[str, Any]:
    """Returns where a run is now; empty where it has not said yet."""
    try:
        facts = json.loads((where / store.PROGRESS).read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def columns(facts: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """Returns what a run does, its steps, loss, best validation score and time left; "" for what is not known."""
    if facts.get("state") != "training":
        return str(facts.get("state", "starting")), "", "", "", ""
    step, steps = int(facts["step"]), int(facts["steps"])
    loss, best = facts.get("loss"), facts.get("best")
    left = float(facts.get("elapsed_s", 0.0)) / max(1, step) * (steps - step)
    return (
        f"{facts['objective']} {facts['phase']}/{facts['phases']}",
        f"{step}/{steps}",
        f"loss {loss:.3f}" if isinstance(loss, float) else f"loss {loss}",
        f"best {best:.3f}" if isinstance(best, float) else "",
        f"{duration(left)} left",
    )


def headline(done: int, failed: int, total: int) -> str:
    return f"{done} of {total} done" + (f", {failed} failed" if failed else "")


class Plain:
    """Prints lines, for a log file or a pipe."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.shown = time.monotonic()
        self.last = ""
        self.told: dict[str, str] = {}

    def say(self, sentence: str) -> None:
        self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None:
        """Prints what has changed: how many are done at once, and what each run does every ten seconds."""
        head = headline(done, failed, total)
        now = time.monotonic()
        if head == self.last and now - self.shown < PLAIN_EVERY_S:
            return
        lines = {where.name: "  " + "  ".join([where.name, *filter(None, columns(read(where)))]) for where in running}
        new = [line for name, line in lines.items() if self.told.get(name) != line]
        if head != self.last:
            self.say(head)
        for line in new:
            self.say(line)
        self.shown, self.last, self.told = now, head, lines


class Terminal:
    """Shows a table that stays in place, of a line for each run, or of two where one would not fit."""

    def __init__(self, console: Console, live: Live) -> None:
        self.console, self.live = console, live

    def say(self, sentence: str) -> None:
        self.console.print(sentence, markup=False, highlight=False)

    def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None:
        rows = [(where.name, *columns(read(where))) for where in running]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        if sum(widths) + GAP * (len(widths) - 1) > self.console.width:  # and runs differ at the end of their names
            rows = [(line,) for name, *facts in rows for line in (name, "  " + "  ".join(filter(None, facts)))]
        table = Table.grid(Column(overflow="fold"), padding=(0, GAP))
        for row in rows:
            table.add_row(*row)
        self.live.update(Group(headline(done, failed, total), table))


@contextmanager
def screen(console: Console) -> Iterator[Plain | Terminal]:
    """Yields the display that suits where the output goes."""
    if not redraws(console):
        yield Plain(console)
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield Terminal(console, live)
