"""Leases on a real disk: held, lost, taken over, and held by processes that are paused and killed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from levelfield.engine import jobs
from levelfield.longcontext.blocks import PART
from levelfield.runs import checkpoint, claims, lease
from levelfield.runs.claims import Folder, Lost, claim, holder
from levelfield.runs.lease import DONE, Entry, Owner
from levelfield.spec import UserError

FILES = ("rows", "weights", DONE)


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "run"


def stage(mine: claims.Lease, text: str) -> None:
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


def test_an_owner_that_stages_its_results_after_another_one_has_completed_the_run_changes_nothing(where: Path) -> None:
    """The list of a complete run is cleared, so the number after that of the first owner is free again."""
    with suppress(Lost), claim(where, beat_s=60.0, deadline_s=0.1) as first:
        assert first is not None
        with claim(where) as early:
            assert early is None
        time.sleep(0.15)
        with claim(where) as second:
            assert second is not None
            stage(second, "B")
            second.commit()
        assert not Folder(where).path.exists()
        stage(first, "A")
        first.commit()
        raise AssertionError("two owners have committed")
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


def test_an_owner_that_was_taken_over_does_not_mark_the_run_as_failed(where: Path) -> None:
    def wake_up(mine: claims.Lease) -> None:
        other = Owner("other", host="node9")  # another machine takes the run over, which this process does not notice
        assert lease.perform(lease.take(other, lambda *asked: True), Folder(where)) == mine.number + 1
        raise RuntimeError("no GPU any more")

    assert jobs.attempt(where, wake_up) == ("busy", "")
    assert contents(where) == {}
    entry = holder(where)
    assert entry is not None and entry.owner.token == "other"


def test_a_reason_that_its_owner_had_no_time_to_move_is_there_before_the_next_owner_begins_and_not_after(
    where: Path,
) -> None:
    disk, owner = Folder(where), Owner("a")
    number = lease.perform(lease.take(owner, lambda *asked: True), disk)
    disk.staging("a").mkdir()
    (disk.staging("a") / lease.ERROR).write_text("why")
    assert disk.add(number + 1, Entry("failed", owner, (lease.ERROR,)))  # here it pauses
    with claim(where) as other:
        assert other is not None and contents(where) == {lease.ERROR: "why"}
        (where / lease.ERROR).unlink()
        disk.move("a", lease.ERROR)  # it wakes up
        assert contents(where) == {}


def test_a_failure_is_free_for_others_and_keeps_its_reason(where: Path) -> None:
    with claim(where) as mine:
        assert mine is not None
        mine.fail("no such luck")
    assert contents(where) == {lease.ERROR: "no such luck"}
    with claim(where) as other:
        assert other is not None and other.count == 2
        assert contents(where) == {lease.ERROR: "no such luck"}


def test_a_claim_is_shared_with_a_process_that_commits_and_given_back_by_the_one_that_has_it(where: Path) -> None:
    with claim(where) as mine:
        assert mine is not None
        with claims.shared(where, mine.number) as also:
            stage(also, "A")
            also.commit()
        assert (where / claims.FOLDER).exists()
        mine.look()
    assert contents(where) == dict.fromkeys(FILES, "A")
    assert not (where / claims.FOLDER).exists()


def test_a_claim_that_was_lost_is_not_shared(where: Path) -> None:
    with claim(where) as mine:
        assert mine is not None
        assert Folder(where).add(2, Entry("held", replace(mine.owner, token="other")))
        with pytest.raises(Lost), claims.shared(where, mine.number):
            pytest.fail("it is another owner's")


def test_losses_count_at_what_is_saved_of_a_run_and_no_further_back_than_asked(where: Path) -> None:
    disk, numbers = Folder(where), iter(range(1, 20))

    def lose() -> Owner:
        lost = Owner(uuid4().hex, saved=claims.saved(where))
        where.mkdir(exist_ok=True)
        assert disk.add(next(numbers), Entry("held", lost))
        return lost

    assert claims.losses(where, "") == 0
    lose()
    first = lose()
    assert (claims.losses(where, ""), claims.losses(where, first.token)) == (2, 0)
    lose()
    assert (claims.losses(where, ""), claims.losses(where, first.token)) == (3, 1)
    given_back = Entry("free", lose())
    assert disk.add(next(numbers), given_back)
    assert claims.losses(where, "") == 3, "what was given back was not lost"
    (where / "checkpoint-0-00000003-aaaa.safetensors").write_text("x")
    assert claims.losses(where, "") == 0
    lose()
    (where / "checkpoint-0-00000003-aaaa.safetensors").rename(where / "checkpoint-0-00000003-bbbb.safetensors")
    lose()
    assert claims.losses(where, "") == 2, "the same step, saved again"
    assert [path.name for path in checkpoint.listing(where)] == ["checkpoint-0-00000003-bbbb.safetensors"]
    part = PART.format(3)
    for name, content in ((part, "x"), (part, "xx"), ("probe-recall-a1.jsonl", "\n")):
        (where / name).write_text(content)
        assert claims.losses(where, "") == 0
        lose()
        assert claims.losses(where, "") == 1
    (where / PART.format(12)).touch()
    assert claims.losses(where, "") == 1, "a file without an answer"


def test_entries_of_earlier_versions_are_read(where: Path) -> None:
    fields = asdict(Owner("t", "node", "boot", 1, "1"))
    del fields["saved"]
    assert Entry.from_json(json.dumps({"kind": "free", "owner": fields, "files": []})).owner.token == "t"


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


@pytest.mark.parametrize(
    "read, signalled, free",
    [
        (FileNotFoundError, PermissionError, False),  # hidden by hidepid=2
        (PermissionError, PermissionError, False),  # hidden by hidepid=1
        (FileNotFoundError, ProcessLookupError, True),
        (ProcessLookupError, ProcessLookupError, True),  # ended between opening and reading
    ],
)
def test_a_process_that_the_system_hides_has_not_ended(
    read: type[OSError], signalled: type[OSError], free: bool, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Owner("t", "node", claims.machine(), 2**22 + 1, "1", since=time.time())
    (where / claims.FOLDER).mkdir(parents=True)
    (where / claims.FOLDER / "1").write_text(Entry("held", other).to_json())

    def hidden(error: type[OSError]) -> Callable[..., None]:
        def fail(*_: object) -> None:
            raise error(0, "hidden")

        return fail

    text = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, **how: hidden(read)() if path.name == "stat" else text(path, **how)
    )
    monkeypatch.setattr(os, "kill", hidden(signalled))
    with claim(where) as mine:
        assert (mine is not None) == free


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

    with monkeypatch.context() as patch, pytest.raises(UserError, match="gone"), claim(where) as mine:
        assert mine is not None
        patch.setattr(Folder, "move", once)
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


@pytest.mark.parametrize("fault", [OSError(errno.ESTALE, "stale"), KeyboardInterrupt()])
def test_what_was_committed_is_moved_where_moving_it_was_interrupted(
    where: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    move, moved = Folder.move, []

    def interrupted(self: Folder, token: str, name: str) -> None:
        moved.append(name)
        if len(moved) == 2:
            raise fault
        move(self, token, name)

    def execute(mine: claims.Lease) -> None:
        stage(mine, "A")
        mine.commit()

    monkeypatch.setattr(Folder, "move", interrupted)
    with suppress(KeyboardInterrupt):
        assert jobs.attempt(where, execute) == ("busy", "")
    assert contents(where) == dict.fromkeys(FILES, "A")


def test_an_entry_that_cannot_be_read_is_of_an_owner_that_nobody_knows(where: Path) -> None:
    for text in ("", "{", "[]", '{"kind": "held"}', json.dumps({"kind": "held", "owner": {"x": 1}, "files": []})):
        assert Entry.from_json(text) == Entry("held", Owner(""))
    (where / claims.FOLDER).mkdir(parents=True)
    (where / claims.FOLDER / "1").write_bytes(b"\xff\xfe\x80")
    assert claims.holder(where) == Entry("held", Owner("")), "nor one that is no text"
    whole = Entry("done", Owner("t", "node", "boot", os.getpid(), "1"), ("rows", DONE))
    assert Entry.from_json(whole.to_json()) == whole


def test_what_is_staged_is_on_the_disk_before_it_is_committed(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut could leave `done.json` beside files of zeros."""
    synced: dict[int, bool] = {}
    monkeypatch.setattr(os, "fsync", lambda number: synced.update({os.fstat(number).st_ino: (where / DONE).exists()}))
    with claim(where) as mine:
        assert mine is not None
        stage(mine, "A")
        mine.commit()
    assert synced == {(where / name).stat().st_ino: False for name in FILES}


@pytest.mark.parametrize("name", ["\u00b2", "9" * 30, "0", "staged-x"])
def test_what_is_no_entry_is_not_taken_for_one(where: Path, name: str) -> None:
    (where / claims.FOLDER).mkdir(parents=True)
    (where / claims.FOLDER / name).touch()
    with claim(where) as mine:
        assert mine is not None and mine.number == mine.count == 1


def test_a_folder_in_place_of_an_entry_is_an_owner_that_nobody_knows(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (where / claims.FOLDER / "1").mkdir(parents=True)
    with claim(where) as mine:
        assert mine is None
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + claims.DEADLINE_S + 1)
    with claim(where) as mine:
        assert mine is not None and mine.number == 2
