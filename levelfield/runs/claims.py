"""Claims runs: the disk, the heartbeat and the clock of the protocol that `lease` explains.

    with claim(where) as mine:              # None where another process has the run, here or on another machine
        if mine is not None:
            write_rows(mine.staging / "rows.jsonl", rows)
            mine.check()                    # raises Lost where the run was taken over meanwhile
            mine.commit()                   # makes what is staged the results of the run, or raises Lost
                                            # or mine.fail("why") gives it back as one that failed, or raises Lost

A claim is lost in three ways. It is given back. Its process ends: on the same machine that is seen at once, so that a
killed command goes on without waiting. Or its heartbeat has not been seen for DEADLINE_S, which is how the end of
another machine is told from a slow one; a process that was only paused then finds its claim lost when it wakes up.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

from levelfield.files import disk_errors, sync, write_text
from levelfield.runs import lease
from levelfield.runs.lease import Entry, Owner, Watch
from levelfield.spec import UserError

FOLDER = ".lease"
NUMBER = re.compile("[1-9][0-9]{0,5}")  # the name of an entry
SAVED = re.compile(r"(checkpoint-\d+-\d+)-\w+\.safetensors|part-\d+\.jsonl|probe-.+\.jsonl|done\.json")
UNTOLD = "?"  # in place of when a process started
BEAT_S = 10.0
DEADLINE_S = 90.0  # network file systems show a change of another machine within 60 s at most
JOB = "LEVELFIELD_JOB"  # the environment variable in which an engine says what its scheduler calls this process


class Lost(Exception):
    """The error for work on a run that another process has taken over, or has completed."""


class Stopped(Exception):
    """The error for work that this process was asked to stop; a checkpoint has been saved."""


_STOP = threading.Event()


def stop() -> None:
    """Asks this process to save its run and give it back, as a signal before a time limit does."""
    _STOP.set()


def stopping() -> bool:
    """Tells whether `stop` was called."""
    return _STOP.is_set()


def pause(seconds: float) -> None:
    """Waits, or returns at once where this process is asked to stop."""
    _STOP.wait(seconds)


class Folder:
    """The list of entries of a run as files, beside what is staged: a `lease.Disk`."""

    def __init__(self, where: Path) -> None:
        self.where, self.path = where, where / FOLDER

    def last(self) -> int:
        try:
            return max((int(name) for name in os.listdir(self.path) if NUMBER.fullmatch(name)), default=0)
        except (FileNotFoundError, NotADirectoryError):  # where a file is in its place, `add` says so
            return 0

    def read(self, number: int) -> Entry | None:
        try:
            return Entry.from_json((self.path / str(number)).read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            return Entry.from_json("")

    def add(self, number: int, entry: Entry) -> bool:
        """Writes the entry beside its place and links it there: with its whole content, or not at all."""
        if number == 1:
            self.path.mkdir(parents=True, exist_ok=True)
        written = self.path / f"{entry.owner.token}.{entry.kind}"
        try:
            written.write_text(entry.to_json())
            os.link(written, self.path / str(number))
        except (FileExistsError, FileNotFoundError):  # taken, or cleared
            return False
        finally:
            with suppress(OSError):
                written.unlink()
        return True

    def entries(self, last: int) -> list[Entry]:
        """Returns the entries up to that number, the oldest first."""
        found = (self.read(number) for number in range(1, last + 1))
        return [entry for entry in found if entry is not None]

    def claims(self, last: int) -> int:
        """Counts how many claims there were, up to the entry of that number."""
        return sum(entry.kind == "held" for entry in self.entries(last))

    def pulse(self, number: int) -> object:
        return self.heard(number)

    def heard(self, number: int) -> float:
        """Returns the time of the last heartbeat, 0 where there is no such entry.

        It is opened, so that a network file system asks its server. Of a folder that is in its place it is 0 too.
        """
        try:
            with (self.path / str(number)).open("rb") as file:
                return os.fstat(file.fileno()).st_mtime
        except (FileNotFoundError, IsADirectoryError):
            return 0.0

    def beat(self, number: int) -> bool:
        """Touches an entry; returns whether it is still the newest."""
        try:
            os.utime(self.path / str(number))
        except FileNotFoundError:
            return False
        return self.last() == number

    def staging(self, token: str) -> Path:
        return self.path / f"staged-{token}"

    def move(self, token: str, name: str) -> None:
        with suppress(FileNotFoundError):
            os.replace(self.staging(token) / name, self.where / name)

    def published(self) -> bool:
        return (self.where / lease.DONE).exists()

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class Lease:
    """What `claim` gives one process, and those that it starts, on a run, with its heartbeat in a thread."""

    def __init__(self, disk: Folder, owner: Owner, number: int, beat_s: float) -> None:
        self.disk, self.owner, self.number, self.beat_s = disk, owner, number, beat_s
        self.lost = False
        self._ended, self._changing = threading.Event(), threading.Lock()
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()

    @property
    def count(self) -> int:
        """How many processes have claimed the run so far, this one included."""
        return self.disk.claims(self.number)

    @property
    def staging(self) -> Path:
        """The folder, made where it is missing, in which results wait for `commit`."""
        folder = self.disk.staging(self.owner.token)
        with disk_errors(self.disk.where):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def check(self) -> None:
        """Raises Lost where the last heartbeat found another owner. It asks no disk, so it may be called often."""
        if self.lost:
            raise Lost(f"{self.disk.where} was taken over by another process.")

    def commit(self) -> None:
        """Moves what is staged into the run's folder, `done.json` last. Raises Lost where another owner has the run."""
        with disk_errors(self.disk.where):
            for path in self.staging.iterdir():
                with suppress(FileNotFoundError):  # of a run that another owner has completed
                    sync(path)  # or a power cut could leave `done.json` beside files that are empty
        with self._changing, disk_errors(self.disk.where):
            names = [path.name for path in self.staging.iterdir()]
            number = lease.perform(lease.commit(self.owner, self.number, names), self.disk)
            self.lost = not number
            self.number = number or self.number
        self.check()

    def fail(self, why: str) -> None:
        """Gives the run back as one that failed. Raises Lost where another owner has the run, whose folder then has no
        word of it.

        why: the content of `error.txt`, unless a process that shares the claim has staged one.
        """
        path = self.staging / lease.ERROR
        if not path.exists():
            write_text(path, why)
        with self._changing, disk_errors(self.disk.where):
            number = lease.perform(lease.fail(self.owner, self.number), self.disk)
            self.lost = True  # it is given back
        if not number:
            self.check()

    def look(self) -> None:
        """Asks the disk whether the run still has this owner. Raises Lost where it has not."""
        with self._changing, disk_errors(self.disk.where):
            self._look()
        self.check()

    def end(self) -> None:
        """Ends the heartbeat."""
        self._ended.set()
        self._heart.join()

    def release(self) -> None:
        """Ends the heartbeat, and gives back what was not lost. What is committed and cannot be moved stays staged."""
        self.end()
        with suppress(OSError):  # a full disk: others see that the heartbeat has ended
            self.number = lease.perform(lease.finish(self.owner, self.number), self.disk)
            shutil.rmtree(self.disk.staging(self.owner.token), ignore_errors=True)
            if not self.lost:
                lease.perform(lease.release(self.owner, self.number), self.disk)

    def _beat(self) -> None:
        while not self.lost and not self._ended.wait(self.beat_s):
            with self._changing, suppress(OSError):  # a disk that is away for a moment is asked again
                self._look()

    def _look(self) -> None:
        """Touches the newest entry, if it is this owner's: a process that shares the claim may have committed."""
        if not self.lost and not self.disk.beat(self.number):
            number = self.disk.last()
            entry = self.disk.read(number)
            self.lost = entry is None or entry.owner != self.owner
            self.number = self.number if self.lost else number


_WATCHES: dict[Path, Watch] = {}


def gone(where: Path, number: int, entry: Entry, pulse: object) -> bool:
    """Tells whether the owner of an entry has ended, or was silent for its deadline while this process watched."""
    if ended(entry.owner):
        return True
    watch = _WATCHES.setdefault(where.absolute(), Watch())
    return watch.silent_s(number, pulse, time.monotonic()) >= entry.owner.deadline_s


def ended(owner: Owner) -> bool:
    """Tells whether the owner was a process of this machine that has ended. Of other machines nothing is known."""
    here = bool(owner.machine) and owner.machine == machine()
    return here and started(owner.pid) not in (owner.started, UNTOLD)


@contextmanager
def claim(where: Path, beat_s: float = BEAT_S, deadline_s: float = DEADLINE_S) -> Iterator[Lease | None]:
    """Yields the claim on a run, whose folder is made, or None where another process has it.

    beat_s, deadline_s: seconds between heartbeats, and without one until others take over. Raises UserError where the
    folder cannot be written to.
    """
    disk, owner = Folder(where), _owner(where, deadline_s)
    with disk_errors(where):
        where.mkdir(parents=True, exist_ok=True)
        steps = lease.take(owner, lambda number, entry, pulse: gone(where, number, entry, pulse))
        number = lease.perform(steps, disk)
    if not number:
        yield None
        return
    held = Lease(disk, owner, number, beat_s)
    try:
        yield held
    finally:
        held.release()


@contextmanager
def shared(where: Path, number: int) -> Iterator[Lease]:
    """Yields the claim of that number, which the process that started this one has, and gives back.

    Raises Lost where another owner has the run.
    """
    disk = Folder(where)
    if (entry := disk.read(number)) is None:
        raise Lost(f"{where} is complete.")
    held = Lease(disk, entry.owner, number, BEAT_S)
    try:
        held.look()
        yield held
    finally:
        held.end()


@contextmanager
def claimed(where: Path, given: Lease | None = None, here: bool = True) -> Iterator[Lease | None]:
    """Yields the claim that is given, or one for the block, or None where the run is not claimed here.

    Raises UserError where another process has the run.
    """
    if given is not None or not here:
        yield given
        return
    with claim(where) as mine:
        if mine is None:
            raise UserError(f"Another process has {where.name}: wait for it, or choose another folder.")
        yield mine


def holder(where: Path) -> Entry | None:
    """Returns the newest entry of a run, None where it has none."""
    disk = Folder(where)
    return disk.read(number) if (number := disk.last()) else None


def saved(where: Path) -> str:
    """Returns what the next owner of a run would continue from, as text that another step, probe or answer changes.

    A checkpoint goes by its phase and step, for its hash differs between two that were saved at the same step.
    """
    found = set[str]()
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in filter(None, map(SAVED.fullmatch, os.listdir(where))):
            with suppress(FileNotFoundError):  # another one has just taken its place
                size = (where / name[0]).stat().st_size
                found |= {name[1] or f"{name[0]} {size}"} if size else set()
    return " ".join(sorted(found))


def losses(where: Path, since: str) -> int:
    """Counts the owners that a run lost at what is saved of it now: those that neither committed nor gave it back.

    since: only claims later than that of this token count, where it is there.
    """
    disk = Folder(where)
    entries = disk.entries(disk.last())
    tokens = [entry.owner.token for entry in entries]
    first = len(tokens) - tokens[::-1].index(since) if since in tokens else 0
    followed = [*zip(entries, [*tokens[1:], ""], strict=False)][first:]
    lost = [entry.owner.saved for entry, after in followed if entry.kind == "held" and entry.owner.token != after]
    return lost.count(saved(where)) if lost else 0


def _owner(where: Path, deadline_s: float) -> Owner:
    pid = os.getpid()
    return Owner(
        token=uuid4().hex,
        host=platform.node(),
        machine=machine(),
        pid=pid,
        started=started(pid),
        since=time.time(),
        deadline_s=deadline_s,
        job=os.environ.get(JOB, ""),
        saved=saved(where),
    )


@cache
def machine() -> str:
    """Returns what tells this boot of this kernel, and its space of process ids, from all others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return platform.node()


def started(pid: int) -> str:
    """Returns when a process of this machine started, as its kernel counts, or "" where there is none.

    Where neither /proc nor `ps` says it, as on Windows, it is UNTOLD for every process, and so it is for those of other
    users that /proc hides (hidepid). Such a process does not count as ended, and what a killed one had is free when its
    heartbeat has not been seen for DEADLINE_S.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if stat[0] in "ZX" else stat[19]
    except PermissionError:
        return UNTOLD
    except (FileNotFoundError, ProcessLookupError):  # the second where it ends while it is read
        if Path("/proc/self").exists():
            return UNTOLD if _of_another_user(pid) else ""
    try:
        said = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    except OSError:
        return UNTOLD
    return said.stdout.strip()


def _of_another_user(pid: int) -> bool:
    """Tells whether there is a process that this one may not send signals to."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False
