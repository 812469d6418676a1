"""The lease of runs: simulated on a disk that delays, loses and repeats what it is asked, and held by real processes.

The simulation decides at random, for each operation, when it takes effect, whether its answer arrives, and whether it
is carried out a second time later. Reading may show the past, as far as the reader has not changed the folder since.
Owners pause for as long as chance has it, die, and take each other's claim over at any moment, since whether an owner
is gone is left to chance too: what holds here holds for any clocks.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from levelfield.runs import claims, lease
from levelfield.runs.claims import Folder, Lost, claim, holder
from levelfield.runs.lease import DONE, Entry, Owner

FILES = ("rows", "weights", DONE)


class DoubleCommit(Exception):
    """Two results stood for one run."""


@dataclass
class State:
    """The content of a run's folder: entries by number, what each owner staged, and the results, each by its maker."""

    entries: dict[int, Entry] = field(default_factory=dict)
    staged: set[tuple[str, str]] = field(default_factory=set)
    results: dict[str, str] = field(default_factory=dict)

    def copy(self) -> State:
        return State(dict(self.entries), set(self.staged), dict(self.results))


class Server:
    """The one true folder, its past, and requests that are still under way."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.now, self.past = dice, State(), [State()]
        self.under_way: list[Callable[[], Any]] = []

    def change(self, act: Callable[[State], Any]) -> Any:
        before = self.now.copy()
        answer = act(self.now)
        if DONE in before.results and self.now.results != before.results:
            raise DoubleCommit("results changed after the run was complete")
        if DONE in self.now.results and set(self.now.results.values()) != {self.now.results[DONE]}:
            raise DoubleCommit("results of two owners lie side by side")
        self.past.append(self.now.copy())
        return answer


class Client:
    """The folder as one owner's machine sees it: a `lease.Disk`."""

    def __init__(self, server: Server) -> None:
        self.server, self.changed = server, 0

    def _seen(self) -> State:
        """Returns some state since this client last changed anything."""
        past, dice = self.server.past, self.server.dice
        return past[dice.randrange(self.changed, len(past))] if dice.random() < 0.3 else past[-1]

    def _change(self, act: Callable[[State], Any]) -> Any:
        answer = self.server.change(act)
        self.changed = len(self.server.past) - 1
        return answer

    def last(self) -> int:
        return max(self._seen().entries, default=0)

    def read(self, number: int) -> Entry | None:
        return self._seen().entries.get(number)

    def add(self, number: int, entry: Entry) -> bool:
        return self._change(lambda now: now.entries.setdefault(number, entry) is entry)

    def pulse(self, number: int) -> object:
        return None

    def stage(self, token: str, name: str) -> None:
        self._change(lambda now: now.staged.add((token, name)))

    def move(self, token: str, name: str) -> None:
        def rename(now: State) -> None:
            if (token, name) in now.staged:
                now.staged.remove((token, name))
                now.results[name] = token

        self._change(rename)

    def published(self) -> bool:
        return DONE in self._seen().results

    def clear(self) -> None:
        """Removes one thing at a time, in any order, each whenever it happens to get there."""
        for number in list(self.server.now.entries):
            self.server.under_way.append(lambda n=number: self.server.change(lambda now: now.entries.pop(n, None)))
        for one in list(self.server.now.staged):
            self.server.under_way.append(lambda o=one: self.server.change(lambda now: now.staged.discard(o)))


class Forgetful(Client):
    """A disk that never shows that the run is complete."""

    def published(self) -> bool:
        return False


def unfenced(owner: Owner, number: int, files: Sequence[str]) -> lease.Steps[int]:
    """Commits without asking the list: whoever is ready moves its results."""
    for name in files:
        yield lambda disk, name=name: disk.move(owner.token, name)
    return number


def looking(owner: Owner, number: int, files: Sequence[str]) -> lease.Steps[int]:
    """Commits where nobody has added to the list and the run is not complete, both looked up before moving."""
    if (yield lambda disk: disk.last()) != number or (yield lambda disk: disk.published()):
        return 0
    return (yield from unfenced(owner, number, files))


Commit = Callable[[Owner, int, Sequence[str]], lease.Steps[int]]


def work(owner: Owner, client: Client, committed: list[str], gone: lease.Gone, commit: Commit) -> lease.Steps[None]:
    """All that an owner does: as `claims.claim`, `run.execute` and `Claim.commit` do it."""
    number = yield from lease.take(owner, gone)
    if not number:
        return
    if not (yield lambda disk: disk.published()):
        for name in FILES:
            yield lambda disk, name=name: client.stage(owner.token, name)
        number = yield from commit(owner, number, FILES)
        if not number:
            return
        committed.append(owner.token)
    yield from lease.release(owner, number)


class Lives:
    """The owners of one seed, whose operations a scheduler lets happen in some order."""

    def __init__(self, seed: int, kind: type[Client], commit: Commit) -> None:
        self.dice = random.Random(seed)
        self.server, self.kind, self.commit = Server(self.dice), kind, commit
        self.committed: list[str] = []
        self.born = 0

    def owner(self, patient: bool) -> Iterator[None]:
        """One owner from its claim to its end; each `next` lets a moment pass in which it did something."""
        self.born += 1
        client, dice = self.kind(self.server), self.dice
        owner, gone = Owner(str(self.born)), lambda *asked: not patient or dice.random() < 0.8
        steps = work(owner, client, self.committed, gone, self.commit)
        try:
            asked = next(steps)
            while True:
                fate = dice.random() if patient else 1.0
                yield  # under way
                if fate < 0.02:  # it dies, before or after what it asked has happened
                    return
                answer = asked(client)
                if fate < 0.10:  # the answer is lost, so it asks again
                    yield
                    answer = asked(client)
                elif fate < 0.18:  # the request comes twice, the second time whenever it likes
                    self.server.under_way.append(lambda asked=asked: asked(client))
                yield  # the answer is under way
                asked = steps.throw(OSError()) if 0.18 <= fate < 0.20 else steps.send(answer)
        except (StopIteration, OSError):
            return

    def simulate(self) -> None:
        """Lets six owners live, then an undisturbed one, then all that was under way. Raises DoubleCommit."""
        owners: list[Iterator[None]] = []
        while owners or self.born < 6:
            if self.born < 6 and (not owners or self.dice.random() < 0.3):
                owners.append(self.owner(patient=True))
            one = self.dice.choice(owners)  # all others pause
            for _ in range(self.dice.choice((1, 3, 10, 30))):
                if next(one, self) is self:
                    owners.remove(one)
                    break
            if self.server.under_way and self.dice.random() < 0.3:
                self.server.under_way.pop(self.dice.randrange(len(self.server.under_way)))()
        for _ in range(20):
            if DONE not in self.server.now.results:
                for _ in self.owner(patient=False):
                    pass
        for late in self.server.under_way:
            late()
        if len(set(self.committed)) > 1:
            raise DoubleCommit("two owners were told that theirs are the results")


def double_commits(seeds: int, kind: type[Client] = Client, commit: Commit = lease.commit) -> int:
    found = 0
    for seed in range(seeds):
        lives = Lives(seed, kind, commit)
        try:
            lives.simulate()
        except DoubleCommit:
            found += 1
            continue
        assert DONE in lives.server.now.results, f"seed {seed}: the run was never completed"
        assert lives.committed in ([], [lives.server.now.results[DONE]]), f"seed {seed}"
    return found


def test_a_thousand_lives_of_a_run_end_in_one_commit_each() -> None:
    assert double_commits(1000) == 0


@pytest.mark.parametrize("commit", [unfenced, looking])
def test_without_its_fence_the_same_simulation_finds_double_commits(commit: Commit) -> None:
    assert double_commits(200, commit=commit) > 0


def test_the_look_at_what_is_complete_is_needed_too() -> None:
    assert double_commits(100, kind=Forgetful) > 0


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "run"


def stage(mine: claims.Claim, text: str) -> None:
    for name in FILES:
        (mine.staging / name).write_text(text)


def contents(where: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in where.iterdir() if path.is_file()}


def test_who_commits_leaves_its_results_and_nothing_else(where: Path) -> None:
    with claim(where) as mine:
        assert mine is not None
        stage(mine, "A")
        assert contents(where) == {}
        mine.commit()
        assert holder(where) == Entry("done", mine.owner, holder(where).files)
    assert contents(where) == dict.fromkeys(FILES, "A")
    assert [path.name for path in where.iterdir() if path.is_dir()] == []


def test_a_silent_owner_is_taken_over_and_finds_its_claim_lost(where: Path) -> None:
    """The first owner beats once a minute and promises a heartbeat every tenth of a second: it seems dead."""
    with claim(where, beat_s=60.0, deadline_s=0.1) as first:
        assert first is not None
        stage(first, "A")
        with claim(where) as early:
            assert early is None
        time.sleep(0.15)
        with claim(where) as second:
            assert second is not None and second.number == 2
            with pytest.raises(Lost):
                first.commit()
            stage(second, "B")
            second.commit()
        with pytest.raises(Lost):
            first.check()
    assert contents(where) == dict.fromkeys(FILES, "B")


def test_only_a_heartbeat_unseen_for_the_whole_deadline_frees_a_claim(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(claims, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))

    def free() -> bool:
        with claim(where) as other:
            return other is not None

    with claim(where, beat_s=60.0, deadline_s=90.0) as mine:
        assert mine is not None
        assert not free()  # seen for the first time
        now += 80.0
        assert Folder(where).beat(mine.number)
        assert not free()
        now += 89.0
        assert not free()
        now += 2.0
        assert free()


def test_an_owner_notices_at_its_next_heartbeat_that_it_was_taken_over(where: Path) -> None:
    with claim(where, beat_s=0.02) as mine:
        assert mine is not None
        mine.check()
        assert Folder(where).add(2, Entry("held", replace(mine.owner, token="other")))
        deadline = time.monotonic() + 30
        while not mine.lost:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(Lost):
            mine.check()


HOLDS = """
import sys, time
from pathlib import Path
from levelfield.runs.claims import claim
with claim(Path(sys.argv[1]), beat_s=0.1, deadline_s=0.5) as mine:
    for name in ("rows", "weights", "done.json"):
        (mine.staging / name).write_text("A")
    print(mine.number, flush=True)
    sys.stdin.readline()
    try:
        mine.commit()
        print("committed", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


def holding(where: Path) -> subprocess.Popen[str]:
    """Another process that claims the run, stages results, and commits once it hears a line."""
    command = [sys.executable, "-c", HOLDS, str(where)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "1\n"
    return process


def test_a_process_that_was_paused_cannot_overwrite_what_another_one_has_committed(where: Path) -> None:
    process = holding(where)
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 30
    while True:
        with claim(where) as mine:
            if mine is not None:
                stage(mine, "B")
                mine.commit()
                break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGCONT)
    said, _ = process.communicate("go on\n", timeout=60)
    assert said == "Lost\n"
    assert contents(where) == dict.fromkeys(FILES, "B")


def test_the_claim_of_a_killed_process_is_free_at_once(where: Path) -> None:
    process = holding(where)
    process.kill()
    process.communicate()
    with claim(where) as mine:
        assert mine is not None and mine.number == 2


def test_what_was_committed_but_not_moved_is_moved_by_the_next_owner(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails after the first file, as if the disk had gone."""
    move, moved = Folder.move, []

    def once(self: Folder, token: str, name: str) -> None:
        if moved:
            raise OSError(errno.EIO, "gone")
        moved.append(name)
        move(self, token, name)

    kept: list[Path] = []
    with monkeypatch.context() as patch, pytest.raises(OSError, match="gone"), claim(where) as mine:
        assert mine is not None
        patch.setattr(Folder, "move", once)
        patch.setattr(claims.shutil, "rmtree", lambda path, **_: kept.append(path))  # as where a process is killed
        stage(mine, "A")
        mine.commit()
    assert DONE not in contents(where)
    entry = holder(where)
    assert entry is not None and entry.kind == "done"
    number = Folder(where).last()
    dead = replace(entry.owner, started="0")
    (where / claims.FOLDER / str(number)).write_text(Entry("done", dead, entry.files).to_json())
    with claim(where) as other:
        assert other is not None
        assert contents(where) == dict.fromkeys(FILES, "A")


def test_an_entry_that_cannot_be_read_is_of_an_owner_that_nobody_knows(where: Path) -> None:
    for text in ("", "{", "[]", '{"kind": "held"}', json.dumps({"kind": "held", "owner": {"x": 1}, "files": []})):
        assert Entry.from_json(text) == Entry("held", Owner(""))
    whole = Entry("done", Owner("t", "node", "boot", os.getpid(), "1"), ("rows", DONE))
    assert Entry.from_json(whole.to_json()) == whole
