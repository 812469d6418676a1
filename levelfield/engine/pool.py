"""Executes units on a cluster: workers that a scheduler places, each of which takes what is free until nothing is left.

    Driver(job, Pool(Slurm(placement), most=16), screen).execute(runs)

A worker reads one file, the order: the job, the fingerprint of its code, the ids of its runs, and of each the token of
its newest claim when the order was given, so that only what happened since counts, by no clock. It goes through them,
claims one that is free (`claims.claim`) and does what is left of it. So the leases are the only queue: a lost worker
merely delays its run, which any other one continues, and a worker may be added at any time. The driver watches the
folder of runs, and starts workers where none is left. While some are left, they do the runs of those that were lost
with their machine, for whoever cancels a few to make room does not want them back. The driver may itself be killed and
started again, on any machine that sees the folder: then it starts what is missing of its workers.

On SIGTERM, as before a preemption, and on SIGUSR1, as before a time limit, a worker saves a checkpoint, gives its run
back and ends.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from levelfield.engine import jobs
from levelfield.engine.driver import Event
from levelfield.engine.jobs import LOSSES, Order
from levelfield.files import read_json, read_text, unreadable, write_json
from levelfield.runs import claims, store
from levelfield.spec import UserError

FOLDER = "jobs"  # in the folder of runs
POLL_S, POLLED = 1.0, 1000  # seconds between two looks at so many units, or for each so many: a disk may be slow
IDLE_S = claims.DEADLINE_S + 30.0  # that a worker waits for runs of others, in case their owners are lost
REFUSED = ".refused"  # beside the order: a line of each worker that cannot do it
STARTS = 5  # of workers, one after another, without a run that ended meanwhile


@dataclass(frozen=True)
class Workplace:
    """What a scheduler starts workers for. name: of the jobs, equal for the same command. path: of the order's file.

    cpus: of each worker, whose processes have so many threads.
    """

    name: str
    path: Path
    threads: int
    cpus: int


class Cluster(Protocol):
    """A scheduler, as far as a pool needs one."""

    def open(self, place: Workplace) -> None:
        """Raises UserError where the scheduler is not installed, cannot be reached, or lacks what was asked for."""
        ...

    def start(self, count: int) -> None:
        """Starts so many workers, or queues them. Raises UserError where they are refused; none is queued then."""
        ...

    def alive(self) -> int:
        """Counts the workers that run or wait in a queue, those of an earlier driver too."""
        ...

    def last_words(self) -> str:
        """Returns what a worker that ended said last."""
        ...

    def cancel(self) -> None:
        """Ends the workers that were started here, and none of an earlier driver."""
        ...

    def close(self) -> None: ...


@dataclass
class Pool:
    """An engine whose units are done by at most so many workers of a cluster."""

    cluster: Cluster
    most: int
    units: set[str] = field(default_factory=set)
    since: dict[str, str] = field(default_factory=dict)  # of each unit, the token of the newest claim before the order
    starts: int = 0
    started: int = 0  # workers, when some were started last
    polled: float = 0.0
    at_work: Sequence[str] = ()  # units that a worker had claimed by then

    def open(self, order: Order) -> Sequence[str]:
        """Starts what is missing of the workers where some are at this order. Raises UserError where they go by other
        code, or where others are refused."""
        self.order = order
        order.job.prepare(order.units)
        job, threads = order.job.absolute(), order.job.threads
        out, worker = job.out, (job.device, threads)  # other options of workers are another order
        name = f"levelfield-{hashlib.sha256(repr((str(out), *worker, *job.identity)).encode()).hexdigest()[:10]}"
        self.place = Workplace(name, out / FOLDER / f"{name}.json", threads, cpus=threads * order.processes)
        self.cluster.open(self.place)
        if not self.place.path.exists() or not self.cluster.alive():
            return ()
        known = read_json(self.place.path)
        if known["fingerprint"] != order.fingerprint:
            raise UserError(f"Workers of {name} go by other code: let them end, or cancel the jobs of that name.")
        self.units = {unit for unit in known["runs"] if not order.finished(unit)}
        self.since = known.get("since", {})
        self._start()
        return sorted(self.units)

    def room(self) -> int:
        return sys.maxsize

    def submit(self, units: Sequence[str]) -> None:
        self.units.update(units)
        newest = {unit: claims.holder(self.order.where(unit)) for unit in units}
        self.since.update({unit: entry.owner.token for unit, entry in newest.items() if entry is not None})
        made = {"fingerprint": self.order.fingerprint, "folder": os.getcwd(), "since": self.since}
        write_json(self.place.path, made | {"runs": sorted(self.units), "job": self.order.job.absolute().to_json()})
        try:
            self._start()
        except UserError:
            if not self.cluster.alive():  # nobody is going to read the order
                self.place.path.unlink(missing_ok=True)
                with suppress(OSError):  # other orders, and logs, stay
                    self.place.path.parent.rmdir()
            raise

    def heard(self, seconds: float) -> Sequence[Event]:
        """Returns what has ended by what lies in the folder of runs. Raises UserError where workers end at once."""
        time.sleep(seconds)
        if time.monotonic() - self.polled < POLL_S * max(1.0, len(self.units) / POLLED):
            return ()
        alive = self.cluster.alive()  # before a look at what they have done
        ended = [event for unit in sorted(self.units) if (event := self._ended(unit))]
        self.units.difference_update(event.unit for event in ended)
        self.at_work = [unit for unit in sorted(self.units) if (self.order.where(unit) / claims.FOLDER).exists()]
        self.polled = time.monotonic()
        self.starts = 0 if ended else self.starts
        if self.units and not alive:
            self._start()
        return ended

    def running(self) -> Sequence[str]:
        return self.at_work

    def cancel(self) -> None:
        self.cluster.cancel()

    def close(self) -> None:
        self.cluster.close()

    def _ended(self, unit: str) -> Event | None:
        if self.order.finished(unit):
            return Event(unit, "done")
        where, since = self.order.where(unit), self.since.get(unit, "")
        return Event(unit, "failed", store.why_failed(where)) if failed(where, since) else None

    def _start(self) -> None:
        """Starts what is missing of the workers. Raises UserError after `STARTS` times without any result, and where
        all of the last ones refused the order, which no other start mends."""
        refused = self.place.path.with_suffix(REFUSED)
        why = read_text(refused).splitlines() if self.starts and refused.exists() else []
        refused.unlink(missing_ok=True)
        if why and len(why) >= self.started:
            raise UserError(f"No worker can begin: {why[-1]}")
        if self.starts >= STARTS:
            words = self.cluster.last_words() or f"they left no log; is {self.order.job.out} shared, and not full?"
            raise UserError(f"Workers ended {STARTS} times before a run did: {words}")
        left = sum(self._ended(unit) is None for unit in self.units)
        missing = min(self.most, left) - self.cluster.alive()
        if missing > 0:
            self.starts, self.started = self.starts + 1, missing
            self.cluster.start(missing)


def failed(where: Path, since: str) -> bool:
    """Tells whether a run failed in a later claim than that of this token, the newest one before the order. One without
    a reason is tried again."""
    if not (where / store.ERROR).exists():
        return False
    disk = claims.Folder(where)
    later = takewhile(lambda entry: entry.owner.token != since or not since, reversed(disk.entries(disk.last())))
    return any(entry.kind == "failed" for entry in later)


def work(path: Path) -> str:
    """Does the units of an order until none is left for it; returns why it ended early, "" where it did not.

    Raises UserError where the order cannot be read here, or where the job is another one here.
    """
    share = "share the folder {} with every machine, under the same name"
    known = read_json(path, share.format(path.parent))
    try:
        os.chdir(known["folder"])
    except OSError as error:
        raise unreadable(Path(known["folder"]), error, share.format(known["folder"])) from error
    job = jobs.read(known["job"])
    units, since = _loaded(job, path, known["fingerprint"]), dict.fromkeys(known["runs"], "") | known.get("since", {})
    idle_since = time.monotonic()
    while left := [u for u in known["runs"] if not (units.finished(u) or failed(job.out / u, since[u]))]:
        for unit in left:
            where = job.out / unit
            if failed(where, since[unit]):  # meanwhile, in another worker
                continue
            if claims.losses(where, since[unit]) >= LOSSES:
                jobs.give_up(where, f"The run failed: its worker was lost {LOSSES} times {jobs.NO_PROGRESS}.\n")
                continue
            outcome, why = units.attempt(unit, spared=partial(failed, since=since[unit]))
            if claims.stopping():
                return "it was asked to stop"
            if outcome == "failed" and not failed(where, since[unit]):  # not even that could be written
                raise UserError(why)
            if outcome != "busy":
                idle_since = time.monotonic()
        if time.monotonic() - idle_since > IDLE_S:
            return ""
        claims.pause(POLL_S)
    return ""


def _loaded(job: jobs.Job, path: Path, fingerprint: str) -> jobs.Units:
    """Loads the units of an order. Raises UserError where this machine cannot do them, and says so beside the order."""
    try:
        if (units := job.loaded()).fingerprint == fingerprint:
            return units
        raise UserError(f"{units.name} is another one on this machine: give all machines the same files.")
    except UserError as error:
        with suppress(OSError), path.with_suffix(REFUSED).open("a", encoding="utf-8") as file:
            file.write(f"on {socket.gethostname()}, {' '.join(str(error).split())}\n")
        raise


def main(words: Sequence[str], ended: Any = sys.exit) -> None:
    """Works as one job of a scheduler: `python -m levelfield.engine.pool ORDER [COMMAND ...]`.

    After SIGUSR1 the command is called, which puts the job back into the queue.
    """
    path, *again = words
    limits: list[int] = []

    def stop(number: int, frame: Any) -> None:
        limits.append(number)
        claims.stop()

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, stop)
    try:
        work(Path(path))
    except UserError as error:
        ended(f"levelfield: {error}")
    if signal.SIGUSR1 in limits and again:
        os.execvp(again[0], again)


if __name__ == "__main__":
    main(sys.argv[1:])
