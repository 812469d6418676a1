"""The protocol of leases, simulated on a disk that delays, loses and repeats what it is asked.

The simulation decides at random, for each operation, when it takes effect, whether its answer arrives, and whether it
is carried out a second time later. Reading may show the past, as far as the reader has not changed the folder since.
Owners pause for as long as chance has it, die, and take each other's claim over at any moment, since whether an owner
is gone is left to chance too: what holds here holds for any clocks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from levelfield.runs import lease
from levelfield.runs.lease import DONE, ERROR, Entry, Owner

FILES = ("rows", "weights", DONE)
TRAINS = 20  # moments at most: others may complete the run and clear its list meanwhile


class DoubleCommit(Exception):
    """Two results stood for one run, or a run that another owner had was marked as failed."""


@dataclass
class State:
    """The content of a run's folder: entries by number, what each owner staged, and the results, each by its maker."""

    entries: dict[int, Entry] = field(default_factory=dict)
    staged: set[tuple[str, str]] = field(default_factory=set)
    results: dict[str, str] = field(default_factory=dict)
    error: str = ""  # whose reason of a failure is there

    def copy(self) -> State:
        return State(dict(self.entries), set(self.staged), dict(self.results), self.error)


class Server:
    """The one true folder, its past, and requests that are still under way."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.now, self.past = dice, State(), [State()]
        self.under_way: list[Callable[[], Any]] = []
        self.begun: dict[str, int] = {}  # the owners that have begun to work, and their numbers
        self.renamed: set[tuple[str, str]] = set()
        self.failures = 0

    def change(self, act: Callable[[State], Any]) -> Any:
        before = self.now.copy()
        answer = act(self.now)
        if DONE in before.results and self.now.results != before.results:
            raise DoubleCommit("results changed after the run was complete")
        if DONE in self.now.results and set(self.now.results.values()) != {self.now.results[DONE]}:
            raise DoubleCommit("results of two owners lie side by side")
        if self.now.error not in ("", before.error) and DONE not in before.results:
            self.failures += 1
            if self.begun[self.now.error] < max(self.begun.values()):
                raise DoubleCommit("an owner that was taken over marked the run as failed")
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
        """Stages a file, which is written beside its place and renamed: a repeated request finds none to rename."""
        if (token, name) not in self.server.renamed:
            self.server.renamed.add((token, name))
            self._change(lambda now: now.staged.add((token, name)))

    def move(self, token: str, name: str) -> None:
        def rename(now: State) -> None:
            if (token, name) in now.staged:
                now.staged.remove((token, name))
                if name == ERROR:
                    now.error = token
                else:
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


def unfenced_failure(owner: Owner, number: int) -> lease.Steps[int]:
    """Gives the run back as failed without asking the list."""
    yield lambda disk: disk.move(owner.token, ERROR)
    return number


def unlooking_finish(owner: Owner, number: int) -> lease.Steps[int]:
    """Moves what the owner has an entry for, whether the run is complete or not."""
    after: Entry | None = yield lambda disk: disk.read(number + 1)
    if after is not None and (after.kind, after.owner) == ("done", owner):
        for name in after.files:
            yield lambda disk, name=name: disk.move(owner.token, name)
        return number + 1
    return number


Commit = Callable[[Owner, int, Sequence[str]], lease.Steps[int]]
Fail = Callable[[Owner, int], lease.Steps[int]]
Finish = Callable[[Owner, int], lease.Steps[int]]


@dataclass(frozen=True)
class Ends:
    """How an owner ends its work: the steps of `lease`, or others that lack something."""

    commit: Commit = lease.commit
    fail: Fail = lease.fail
    finish: Finish = lease.finish


WHOLE = Ends()


def work(
    owner: Owner, client: Client, committed: list[str], gone: lease.Gone, ends: Ends, fails: bool
) -> lease.Steps[None]:
    """All that an owner does: as `claims.claim`, `run.execute`, and a `claims.Lease` do it.

    fails: whether the run raises an error.
    """
    number = yield from lease.take(owner, gone)
    if not number:
        return
    client.server.begun[owner.token] = number
    if fails and not (yield lambda disk: disk.published()):
        yield lambda disk: client.stage(owner.token, ERROR)
        yield from ends.fail(owner, number)
        return
    lost = False
    if not (yield lambda disk: disk.published()):
        for _ in range(client.server.dice.randrange(TRAINS)):
            yield lambda disk: None
        for name in FILES:
            yield lambda disk, name=name: client.stage(owner.token, name)
        with suppress(OSError):
            added = yield from ends.commit(owner, number, FILES)
            lost, number = not added, added or number
            committed += [owner.token] if added else []
    number = yield from ends.finish(owner, number)
    if not lost:
        yield from lease.release(owner, number)


class Lives:
    """The owners of one seed, whose operations a scheduler lets happen in some order."""

    def __init__(self, seed: int, kind: type[Client], ends: Ends) -> None:
        self.dice = random.Random(seed)
        self.server, self.kind, self.ends = Server(self.dice), kind, ends
        self.committed: list[str] = []
        self.born = 0

    def owner(self, patient: bool) -> Iterator[None]:
        """One owner from its claim to its end; each `next` lets a moment pass in which it did something."""
        self.born += 1
        client, dice = self.kind(self.server), self.dice
        owner, gone = Owner(str(self.born)), lambda *asked: not patient or dice.random() < 0.8
        fails = patient and dice.random() < 0.3
        steps = work(owner, client, self.committed, gone, self.ends, fails)
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


def double_commits(seeds: int, kind: type[Client] = Client, ends: Ends = WHOLE) -> int:
    """Returns in how many lives more than one result stood, or a failure that was none; some fail as they may."""
    found = failures = 0
    for seed in range(seeds):
        lives = Lives(seed, kind, ends)
        try:
            lives.simulate()
        except DoubleCommit:
            found += 1
            continue
        failures += lives.server.failures
        assert DONE in lives.server.now.results, f"seed {seed}: the run was never completed"
        assert lives.committed in ([], [lives.server.now.results[DONE]]), f"seed {seed}"
    assert failures or found == seeds
    return found


def test_a_thousand_lives_of_a_run_end_in_one_commit_each() -> None:
    assert double_commits(1000) == 0


@pytest.mark.parametrize("commit", [unfenced, looking])
def test_without_its_fence_the_same_simulation_finds_double_commits(commit: Commit) -> None:
    assert double_commits(200, ends=Ends(commit=commit)) > 0


def test_without_its_fence_an_owner_that_was_taken_over_marks_the_run_as_failed() -> None:
    assert double_commits(200, ends=Ends(fail=unfenced_failure)) > 0


def test_without_a_look_at_what_is_complete_an_owner_that_comes_too_late_replaces_the_results() -> None:
    assert double_commits(1000, ends=Ends(finish=unlooking_finish)) > 0


def test_the_look_at_what_is_complete_is_needed_too() -> None:
    assert double_commits(100, kind=Forgetful) > 0
