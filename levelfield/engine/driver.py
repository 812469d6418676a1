"""Executes the units of a job on an engine: submits them, watches how they end, and submits again those that were lost.

    Driver(job, Local(["cpu"] * 4), screen).execute(runs)

A unit is named by its folder: the id of a run, or of a block of questions. An engine places units on processes, on this
machine or on others, and reports how they ended. Whether a unit is done, its folder alone decides. So a driver that was
killed can be started again, on another machine too, and continues from what is there. Two drivers may share a folder:
claims keep them apart.

    driver --- submit(ids) ---> engine --- one process each ---> Units.attempt
           <-- Event(id) ---           done, busy (another process has it), failed (why), died (how)
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import uuid4

from levelfield.engine.jobs import LOSSES, NO_PROGRESS, Job, Order, give_up, tidy
from levelfield.files import disk_errors, made
from levelfield.runs import claims
from levelfield.spec import UserError

ASK_AGAIN_S = 1.0  # for a unit that another process has
LISTEN_S = 0.2


@dataclass(frozen=True)
class Outcome:
    """Ids that are complete now, and why the others are not."""

    done: tuple[str, ...]
    failed: Mapping[str, str]


class Screen(Protocol):
    """The display that the driver reports to."""

    def say(self, sentence: str) -> None: ...

    def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None: ...


@dataclass(frozen=True)
class Event:
    """The end of a unit. why: the reason of a failure, or how its process died. words: the last that process said."""

    unit: str
    outcome: Literal["done", "busy", "failed", "died"]
    why: str = ""
    words: str = ""


class Engine(Protocol):
    """What executes units. It knows how to place, to watch and to cancel them, and nothing of what they are."""

    def open(self, order: Order) -> Sequence[str]:
        """Gets ready, and returns the units that an earlier driver left under way.

        Raises UserError where units cannot be executed; nothing is submitted then.
        """
        ...

    def room(self) -> int:
        """Returns how many more units it takes now."""
        ...

    def submit(self, units: Sequence[str]) -> None:
        """Starts units, or puts them into a queue."""
        ...

    def heard(self, seconds: float) -> Sequence[Event]:
        """Returns what has ended, after waiting for that long at most. Raises UserError where no unit can start."""
        ...

    def running(self) -> Sequence[str]:
        """Returns the units that a process works on now."""
        ...

    def cancel(self) -> None:
        """Ends the units that were submitted here; those that an earlier driver left go on."""
        ...

    def close(self) -> None:
        """Ends what cannot outlive this process."""
        ...


@dataclass
class Driver:
    """Executes the units of a job on one engine."""

    job: Job
    engine: Engine
    screen: Screen
    waiting: deque[str] = field(default_factory=deque)
    busy: dict[str, float] = field(default_factory=dict)  # unit -> when to ask again
    under_way: set[str] = field(default_factory=set)
    died: Counter[tuple[str, str]] = field(default_factory=Counter)  # by unit and what was saved of it by then
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def execute(self, units: Sequence[Any], opened: Callable[[], None] = lambda: None) -> Outcome:
        """Executes units, as `Job.order` takes them, until each is complete or failed.

        opened: called once the engine has taken what it has room for; what is refused has no trace then. Raises
        UserError where no unit can start.
        """
        self.order = self.job.order(units)
        check_folder(self.job.out)
        try:
            left: list[str] = []
            for unit in self.order.units:
                (self.done if self.order.finished(unit) else left).append(unit)
            for unit in self.done:
                tidy(self.order.where(unit))
            if left:
                self.under_way = set(self.engine.open(self.order)) & set(left)
                self.waiting.extend(unit for unit in left if unit not in self.under_way)
                self._feed()
            opened()
            self._drive(len(self.order.units))
        except UserError:
            self.engine.cancel()
            raise
        finally:
            self.engine.close()
        return Outcome(tuple(self.done), dict(self.failed))

    def _drive(self, total: int) -> None:
        while self.waiting or self.busy or self.under_way:
            self._feed()
            for event in self.engine.heard(LISTEN_S):
                self._take_in(event)
            paths = [self.order.where(unit) for unit in self.engine.running()]
            self.screen.show(paths, len(self.done), len(self.failed), total)

    def _feed(self) -> None:
        """Submits what the engine has room for. A unit that another process had may be complete by now."""
        for unit in [busy for busy, when in self.busy.items() if when <= time.monotonic()]:
            del self.busy[unit]
            (self.done if self.order.finished(unit) else self.waiting).append(unit)
        room = min(self.engine.room(), len(self.waiting)) if self.waiting else 0
        if room > 0:
            units = [self.waiting.popleft() for _ in range(room)]
            self.under_way.update(units)
            self.engine.submit(units)

    def _take_in(self, event: Event) -> None:
        unit = event.unit
        self.under_way.discard(unit)
        if event.outcome == "done":
            self.done.append(unit)
        elif event.outcome == "busy":
            self.busy[unit] = time.monotonic() + ASK_AGAIN_S
        elif event.outcome == "failed":
            self.failed[unit] = event.why
            self.screen.say(f"{unit} failed: {event.why}")
        else:
            self._bury(event)

    def _bury(self, event: Event) -> None:
        unit, how, where = event.unit, event.why, self.order.where(event.unit)
        at = unit, claims.saved(where)
        self.died[at] += 1
        why = f"its worker {how}, {LOSSES} times {NO_PROGRESS}"
        if self.died[at] < LOSSES:
            self.screen.say(f"The worker of {unit} {how}; trying it again.")
            self.waiting.appendleft(unit)
            return
        if not give_up(where, f"The run failed: {why}.\n\n{event.words}\n"):
            self.busy[unit] = time.monotonic() + ASK_AGAIN_S
            return
        self.failed[unit] = why
        self.screen.say(f"{unit} failed: {why}.")


def check_folder(out: Path) -> None:
    """Raises UserError where claims would not be safe in a folder: it needs hard links, and atomic renames over a file.

    A lock that two machines may hold at once is not needed.
    """
    made(out, "--runs-dir")
    tried = [out / f".try-{uuid4().hex[:12]}-{number}" for number in range(3)]
    first, second, third = tried
    try:
        with disk_errors(out, "--runs-dir"):
            first.write_text("1")
            second.write_text("2")
        sound = _links(first, third) and not _links(second, third)
        if sound:
            os.replace(second, third)
            sound = third.read_text() == "2" and first.read_text() == "1"
    except OSError as error:
        raise UserError(
            f"{out} cannot hold runs ({error.strerror}): it needs hard links, so choose another --runs-dir."
        )
    finally:
        for path in tried:
            path.unlink(missing_ok=True)
    if not sound:
        raise UserError(f"{out} cannot hold runs: two processes could claim one there, so choose another --runs-dir.")


def _links(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    return True
