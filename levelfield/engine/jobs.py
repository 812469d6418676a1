"""Defines what engines execute: a job, the units that it is made of, and how both reach a worker.

    job = read(text)             # in a worker, from what `to_json` made where the command runs
    units = job.loaded()         # runs of a study, or questions with the model that answers them
    units.attempt(unit)          # ("done", ""), ("busy", "") where another process has it, or ("failed", why)

A unit is a name: that of its folder in the folder of the job. Engines know no more of it, so that what trains and what
asks are placed, watched and started again in the same way.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from levelfield.files import NO_ROOM, disk_errors, refusal
from levelfield.runs import store
from levelfield.runs.claims import FOLDER, Lease, Lost, Stopped, claim, holder
from levelfield.spec import UserError
from levelfield.spec.interrupt import raise_interrupt
from levelfield.spec.memory import reason

LOSSES = 3  # of workers in a unit of which nothing more was saved meanwhile, after which it has failed
ALIKE = 70  # letters of a folder's name that each message about it has, however long it is
NO_PROGRESS = "with nothing saved in between"
KINDS = {"runs": "training", "questions": "questions"}  # modules beside this one, each with a `Job` of its own


Spared = Callable[[Path], bool]


class Units(Protocol):
    """The units of a job as a worker has loaded them. name: what a message calls all of them."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    def finished(self, unit: str) -> bool:
        """Tells whether nothing is left to do of a unit."""
        ...

    def attempt(self, unit: str, spared: Spared | None = None) -> tuple[str, str]:
        """Does a unit, if it is free, and returns the outcome and why.

        spared: says of a unit's folder whether it is to be left alone, once it has been claimed: a look before the
        claim may come too early.
        """
        ...


class Job(Protocol):
    """A job: text and numbers only, so that it travels to a worker. out: the folder of its units.

    device, threads: of each worker.
    """

    @property
    def out(self) -> Path: ...

    @property
    def device(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells it from other jobs in the same folder, beside its device and threads."""
        ...

    def order(self, units: Sequence[Any], /) -> Order:
        """Returns what is to be done of these units. Raises UserError where the job cannot be loaded."""
        ...

    @property
    def processes_flag(self) -> str:
        """The option that says how many processes or devices work on a unit, for a message."""
        ...

    def processes(self, units: Sequence[Any], /) -> int:
        """Returns the most processes, or devices, that work on one of these units together."""
        ...

    def on(self, device: str, workers: int) -> Job:
        """Returns the same job for a worker with that device, which so many workers share."""
        ...

    def absolute(self) -> Job:
        """Returns the same job for workers that start in another folder."""
        ...

    def prepare(self, units: Sequence[str]) -> None:
        """Does once what several workers would do at the same time."""
        ...

    def loaded(self) -> Units:
        """Loads what a worker needs. Raises UserError."""
        ...

    def to_json(self) -> str:
        """Writes the job for `read`."""
        ...


@dataclass(frozen=True)
class Order:
    """What an engine executes. fingerprint: as `Units.fingerprint` has it in a worker of the same code.

    finished: tells whether nothing is left to do of a unit. processes: at most so many work on one unit.
    """

    job: Job
    units: Sequence[str]
    fingerprint: str
    finished: Callable[[str], bool]
    processes: int = 1

    def where(self, unit: str) -> Path:
        return self.job.out / unit


def by_reason(failed: Mapping[str, str], out: Path) -> list[tuple[str, list[str]]]:
    """Returns each reason of failures once, with the units that failed for it. failed: reason by unit.

    That the disk of the folder of units is full is one reason, whichever file it was that could not be written.
    """
    found: dict[str, tuple[str, list[str]]] = {}
    full = tuple(f"{NO_ROOM} {str(where)[:ALIKE]}" for where in (out, out.absolute()))
    for unit, why in failed.items():
        found.setdefault(NO_ROOM if why.startswith(full) else why, (why, []))[1].append(unit)
    return list(found.values())


def read(text: str) -> Job:
    """Reads a job of any kind."""
    kind = json.loads(text).get("kind", "runs")
    made: Job = import_module(f"levelfield.engine.{KINDS[kind]}").Job.from_json(text)
    return made


def failure(error: Exception) -> str:
    """Returns what a failed unit keeps of an error: the reason in its first line, then the traceback of a surprise."""
    detail = "" if isinstance(error, UserError) else "\n" + "".join(traceback.format_exception(error))
    return f"{reason(error)}\n{detail}"


def attempt(where: Path, execute: Callable[[Lease], None], spared: Spared | None = None) -> tuple[str, str]:
    """Executes the unit of a folder, if it is free, and returns the outcome and why, as `Units.attempt` does.

    Whatever it raises is kept in the folder, unless another process has taken the unit over.
    """
    try:
        with claim(where) as mine:
            if mine is None or (spared is not None and spared(where)):
                return "busy", ""
            with disk_errors(where):
                (where / store.ERROR).unlink(missing_ok=True)
            try:
                return _executed(mine, execute)
            except (Lost, Stopped):
                _clear_late(where)
                return "busy", ""
    except UserError as error:  # a full disk or an unwritable folder
        return "failed", str(error)
    except OSError as error:
        return "failed", str(refusal(error))


def _executed(mine: Lease, execute: Callable[[Lease], None]) -> tuple[str, str]:
    try:
        execute(mine)
    except (Lost, Stopped):
        raise
    except Exception as error:
        raise_interrupt(error)
        mine.fail(failure(error))
        return "failed", reason(error)
    return "done", ""


def _clear_late(where: Path) -> None:
    """Removes checkpoints that this process may have saved after another one had completed the unit."""
    from levelfield.runs import checkpoint

    with suppress(UserError):
        if store.complete(where):
            checkpoint.clear(where)


def give_up(where: Path, why: str) -> bool:
    """Marks a unit as failed whose workers die; returns whether it did, for another process may be at it.

    why: what `error.txt` says. Raises UserError where the folder cannot be written to.
    """
    with suppress(Lost), claim(where) as mine:
        if mine is not None:
            mine.fail(why)
            return True
    return False


def tidy(where: Path) -> None:
    """Removes what a kill between the commit of a unit and the end of its claim has left: the claim, and checkpoints.

    A claim that another process has stays, and that the last one failed, as by a probe of another study.
    """
    if not (where / FOLDER).exists() or ((last := holder(where)) is not None and last.kind == "failed"):
        return
    from levelfield.runs import checkpoint

    with suppress(UserError), claim(where) as mine:
        if mine is not None:
            checkpoint.clear(where)
