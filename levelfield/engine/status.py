"""Says how far a study is, from the folder of its runs alone: on any machine, whoever executes them.

    study_status(out, "demo", "minutes").runs["listops-..."].state     done, running, silent, failed or waiting

What is done and what failed is in the runs' folders; who works on what is in their leases. The age of a heartbeat is
the difference of two times that the file system gave, that of the heartbeat and that of a file made now. Where machines
stamp files by clocks of their own, it is wrong by as much as these differ, and so is what counts as silent; both are
only shown.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

from levelfield.files import FULL
from levelfield.runs import claims, store
from levelfield.runs.claims import Folder
from levelfield.spec import UserError

State = Literal["done", "running", "silent", "failed", "waiting"]
STATES: tuple[State, ...] = ("done", "running", "silent", "failed", "waiting")
ROOM = 1 << 14  # bytes that a disk needs to keep that a run failed, and why


@dataclass(frozen=True)
class RunStatus:
    """The state of one run. Of a run that nobody works on, most is absent.

    silent: its owner was not heard of for its deadline, or has ended, so that another process may take the run over.
    host, pid, job: who works on it, and what a scheduler calls that. since: seconds since 1970 by the owner's clock.
    heartbeat_s: seconds since the last one. claims: how many processes have worked on it so far. why: of a failure.
    diverged: it is done, and its loss, weights or outputs were NaN or infinite.
    """

    state: State
    host: str = ""
    pid: int = 0
    job: str = ""
    since: float = 0.0
    heartbeat_s: float = 0.0
    claims: int = 0
    why: str = ""
    diverged: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """What is known, without what is absent."""
        return {name: value for name, value in vars(self).items() if value or name == "state"}


@dataclass(frozen=True)
class StudyStatus:
    """The state of a study at an effort.

    no_room: the disk is full, so that a run that failed may look as if it waited, or as if its owner were silent.
    """

    study: str
    effort: str
    runs: Mapping[str, RunStatus]
    no_room: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many runs are in each state, in the order of `STATES`."""
        found = Counter(run.state for run in self.runs.values())
        return {state: found[state] for state in STATES}

    @property
    def diverged(self) -> int:
        """How many of the runs that are done diverged."""
        return sum(run.diverged for run in self.runs.values())

    @property
    def taken_over(self) -> int:
        """How often a run that is not done was claimed again, after a failure, a kill or the loss of a machine."""
        return sum(max(0, run.claims - 1) for run in self.runs.values())


def study_status(out: Path, study: str, effort: str, asked: str = "") -> StudyStatus:
    """Returns where each run is that the index of a study names. Raises UserError where nothing was started.

    asked: what the command line calls the study, where that is not its name.
    """
    index, now = store.started(out, study, effort, asked), _now(out)
    found = {
        run_id: run_status(out / run_id, now, len(spec["protocol"]["phases"]), index.probes.get(run_id))
        for run_id, spec in index.runs.items()
    }
    return StudyStatus(study, effort, found, no_room(out))


def run_status(where: Path, now: float, phases: int, wanted: Sequence[str] | None = None) -> RunStatus:
    """Returns where one run is, whose protocol has so many phases. now: the time in seconds as the file system has it.

    wanted: the probes that it is measured by, as of `store.measured`. A run that is done, of which some file cannot be
    read, has failed, and so has one whose folder may not be looked into. One that has no rows yet of a probe of its
    study is not done.
    """
    try:
        found = store.measured(where, phases, wanted) if store.complete(where) else None
    except UserError as error:
        return RunStatus("failed", why=str(error))
    if found and not found.unprobed:
        return RunStatus("done", diverged=any(row.get("status") == "diverged" for row in found.rows))
    disk = Folder(where)
    number = disk.last()
    count, entry = disk.claims(number), disk.read(number) if number else None
    if entry is not None and entry.kind not in ("free", "failed"):
        silent_s = max(0.0, now - disk.heard(number))
        ended = claims.ended(entry.owner) or silent_s >= entry.owner.deadline_s
        return RunStatus(
            "silent" if ended else "running",
            host=entry.owner.host,
            pid=entry.owner.pid,
            job=entry.owner.job,
            since=entry.owner.since,
            heartbeat_s=round(silent_s, 1),
            claims=count,
        )
    if (where / store.ERROR).exists():
        return RunStatus("failed", claims=count, why=store.why_failed(where))
    return RunStatus("waiting", claims=count)


def to_json(runs: StudyStatus | None, trials: StudyStatus | None) -> str:
    """Writes all that is known as one JSON object, for other programs: the runs of a study, and under `trials` the same
    of its trials, where it has any; None is what was not started."""
    found = runs or replace(trials, runs={}) if trials else runs
    assert found is not None
    return json.dumps(_facts(found) | ({"trials": _facts(trials)} if trials else {}), indent=1)


def _facts(found: StudyStatus) -> dict[str, Any]:
    facts = {"study": found.study, "effort": found.effort, "counts": found.counts, "taken_over": found.taken_over}
    facts |= {"diverged": found.diverged, "no_room": found.no_room}
    return facts | {"runs": {run_id: run.facts for run_id, run in found.runs.items()}}


def _now(out: Path) -> float:
    try:
        with TemporaryFile(dir=out) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:  # a folder that may only be read
        return time.time()


def no_room(out: Path) -> bool:
    """Tells whether the disk of a folder is too full to keep that a run failed, and why."""
    try:
        with TemporaryFile(dir=out) as file:
            file.write(os.urandom(ROOM))  # which no file system makes smaller
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in FULL
    return False


def untold(out: Path) -> str:
    """Returns what is said of the states of runs where `no_room` is true."""
    return f"No room is left in {out} to keep why a run failed, so such runs are counted as waiting or silent."
