"""Decides who may work on a run, and whose results are the run's, among machines that share nothing but a folder.

A lock of the file system (`flock`) is not safe on every network file system, and nobody can ask whether a process of
another machine still lives. So a run has a list of numbered entries, each of which is written once and never changed:

    .lease/1    held by A      A asked first, and touches the entry every few seconds: its heartbeat
    .lease/2    held by B      A was not heard of for its deadline, so B has taken the run over
    .lease/3    done by B      what B has staged is the run's result

The number of a holder is its fencing number. All that a holder does to the list is to add the entry after its own, by
one atomic operation that fails where the number is taken. So taking over and committing compete for one name: of a
holder that paused and of whoever took its run over, one alone can commit, whenever either wakes up and however long
its operations are under way. Each holder stages its results in a folder of its own, and only when its entry `done`
stands are they moved into the run's folder, `done.json` last. Moving can be repeated by anyone, so a holder that dies
in the middle of it leaves nothing half done. That a run failed is said in the same way, by an entry `failed` that
competes for the same name, and `error.txt`, which whoever takes the run over moves before it begins: so none of an
earlier holder appears later.

What this needs of the file system is what POSIX says: `link` and `rename` are atomic, `link` fails where the name
exists, and whoever has just added to a folder sees what was in it before. What it does not need is that clocks agree:
a deadline is measured by the clock of whoever waits, from when it last saw a heartbeat. Time decides only how soon a
run is taken over, never whether two results can stand. What it cannot prevent is that a paused holder, before it
notices, does work for nothing.

Nothing here touches a disk: each step yields what it asks of one, so that a test can delay, lose and reorder it.
`claims` has the disk, the heartbeat and the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeVar

DONE = "done.json"  # moved last: without it a run is not complete
ERROR = "error.txt"  # why a run failed

T = TypeVar("T")


@dataclass(frozen=True)
class Owner:
    """One claim of one process. Its token is drawn for each claim, so no two owners are equal.

    machine: a boot of a kernel and a space of process ids, "" where unknown. started: when the process started, as the
    kernel counts. since: seconds since 1970 by the owner's clock, to be shown and never compared. deadline_s: seconds
    without a heartbeat after which others may take the run over. saved: what had been saved of the run when it was
    claimed, as `claims.saved` has it.
    """

    token: str
    host: str = ""
    machine: str = ""
    pid: int = 0
    started: str = ""
    since: float = 0.0
    deadline_s: float = 90.0
    job: str = ""  # what a scheduler calls it, such as "slurm 4242_7"
    saved: str = ""


@dataclass(frozen=True)
class Entry:
    """One entry of the list. files: for `done` and `failed`, the names of what its owner has staged, in the order to
    move them."""

    kind: Literal["held", "done", "free", "failed"]
    owner: Owner
    files: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Entry:
        """Reads an entry. One that cannot be read, as after a power cut, is held by an owner that nobody knows."""
        try:
            fields = json.loads(text)
            return Entry(fields["kind"], Owner(**fields["owner"]), tuple(fields["files"]))
        except (ValueError, TypeError, KeyError):
            return Entry("held", Owner(""))


class Disk(Protocol):
    """What the steps ask of a run's folder. Each operation takes effect at one moment."""

    def last(self) -> int:
        """Returns the number of the newest entry, 0 where there is none."""
        ...

    def read(self, number: int) -> Entry | None: ...

    def add(self, number: int, entry: Entry) -> bool:
        """Adds an entry, whole, if that number is free; returns whether it was."""
        ...

    def pulse(self, number: int) -> object:
        """Returns something that another heartbeat changes."""
        ...

    def move(self, token: str, name: str) -> None:
        """Moves a file that this owner staged into the run's folder; does nothing where that has been done."""
        ...

    def published(self) -> bool:
        """Tells whether `done.json` is there."""
        ...

    def clear(self) -> None:
        """Removes all entries and whatever is staged."""
        ...


Steps = Generator[Callable[[Disk], Any], Any, T]
Gone = Callable[[int, Entry, object], bool]  # whether the owner of a numbered entry, with this pulse, has gone


def take(owner: Owner, gone: Gone) -> Steps[int]:
    """Claims the run for an owner, and returns its number; 0 where another one has it.

    Where an earlier owner committed without having moved all of its results, they are moved: the run is complete then.
    """
    number: int = yield lambda disk: disk.last()
    if number:
        entry: Entry | None = yield lambda disk: disk.read(number)
        if entry is None:  # the list was cleared in between
            return 0
        if entry.kind not in ("free", "failed"):
            pulse: object = yield lambda disk: disk.pulse(number)
            if not gone(number, entry, pulse):
                return 0
    taken = yield from _add(number + 1, Entry("held", owner))
    if taken:
        complete: bool = yield lambda disk: disk.published()
        yield from _finish(number, ("failed",) if complete else ("failed", "done"))
    return taken


def _finish(last: int, kinds: Sequence[str]) -> Steps[None]:
    """Moves what was committed, if anything was. Nothing changes the entries so far, since another one follows them."""
    for number in range(1, last + 1):
        entry: Entry | None = yield lambda disk, number=number: disk.read(number)
        if entry is not None and entry.kind in kinds:
            yield from _publish(entry)
            if entry.kind == "done":
                return


def commit(owner: Owner, number: int, files: Sequence[str]) -> Steps[int]:
    """Makes what the owner has staged the results of the run, and returns the owner's number from then on.

    It is 0 where the run was taken over or is complete: then nothing in its folder was touched. (The list of a complete
    run is cleared, so a late holder may find its next number free again; hence the look at `done.json`.)
    """
    done = Entry("done", owner, tuple(sorted(files, key=lambda name: name == DONE)))
    added = yield from _add(number + 1, done)
    if not added or (yield lambda disk: disk.published()):
        return 0
    yield from _publish(done)
    return added


def fail(owner: Owner, number: int) -> Steps[int]:
    """Gives the claim back as that of a run that failed, and moves the reason that the owner has staged.

    Returns the number of the entry; 0 where the run was taken over or another owner completed it, and no reason was
    moved. (The look at the owner's own entry is for a list that was cleared, as in `commit`.) A run that its own owner
    completed may fail as well, by a probe.
    """
    held: Entry | None = yield lambda disk: disk.read(number)
    if held is None or held.owner != owner:
        return 0
    failed = Entry("failed", owner, (ERROR,))
    added = yield from _add(number + 1, failed)
    if added:
        yield from _publish(failed)
    return added


def _publish(entry: Entry) -> Steps[None]:
    for name in entry.files:
        yield lambda disk, name=name: disk.move(entry.owner.token, name)


def finish(owner: Owner, number: int) -> Steps[int]:
    """Moves what the owner has committed, where an error kept it from moving all, and returns the owner's number.

    Of a complete run nothing is moved: the entry may be one that came too late, as `commit` explains.
    """
    after: Entry | None = yield lambda disk: disk.read(number + 1)
    if after is not None and (after.kind, after.owner) == ("done", owner):
        if not (yield lambda disk: disk.published()):
            yield from _publish(after)
        return number + 1
    return number


def release(owner: Owner, number: int) -> Steps[None]:
    """Gives the claim back, at once for others to take. The list of a complete run is cleared."""
    if (yield lambda disk: disk.published()):
        if (yield lambda disk: disk.last()) == number:
            yield lambda disk: disk.clear()
    else:
        yield from _add(number + 1, Entry("free", owner))


def _add(number: int, entry: Entry) -> Steps[int]:
    """Adds an entry, and returns its number; 0 where another one has it.

    An entry that is there may be this one: a server may have done what it was asked, and been asked again since its
    answer was lost.
    """
    if (yield lambda disk: disk.add(number, entry)):
        return number
    found: Entry | None = yield lambda disk: disk.read(number)
    return number if found == entry else 0


def perform(steps: Steps[T], disk: Disk) -> T:
    """Performs steps on a disk, one after another, and returns what they return."""
    answer: Any = None
    while True:
        try:
            asked = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = asked(disk)


@dataclass
class Watch:
    """One observer's memory of one run: the entry and pulse that it saw last, and since when by its own clock."""

    number: int = 0
    pulse: object = None
    since: float = 0.0

    def silent_s(self, number: int, pulse: object, now: float) -> float:
        """Returns for how many seconds this pulse has been seen without a change."""
        if (number, pulse) != (self.number, self.pulse):
            self.number, self.pulse, self.since = number, pulse, now
        return now - self.since
