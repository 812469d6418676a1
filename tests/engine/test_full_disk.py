"""A disk that is full when a run fails: nothing can be written of it, and every command says so in the same words."""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import refusals
import toys
from stages import Stage, Threads

from levelfield.cli import train_commands
from levelfield.cli.app import main
from levelfield.engine import pool
from levelfield.engine.driver import Event, check_folder
from levelfield.engine.jobs import Order, by_reason
from levelfield.engine.pool import Pool
from levelfield.files import disk_errors
from levelfield.runs import store
from levelfield.spec import UserError

SENTENCE = "No room is left in runs to keep why a run failed, so such runs are counted as waiting or silent."


@contextmanager
def full() -> Iterator[None]:
    """Has no file take more than some bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def roomless(where: Path) -> str:
    with pytest.raises(UserError) as refusal, disk_errors(where):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return str(refusal.value)


class Fails:
    """An engine on which every unit fails, with nothing written, for the disk is full."""

    def open(self, order: Order) -> Sequence[str]:
        self.order, self.given = order, list[str]()
        return ()

    def room(self) -> int:
        return 9

    def submit(self, units: Sequence[str]) -> None:
        self.given += units

    def heard(self, seconds: float) -> Sequence[Event]:
        return [Event(unit, "failed", roomless(self.order.where(unit) / f"staged-{unit}")) for unit in self.given]

    def running(self) -> Sequence[str]:
        return ()

    def cancel(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    toys.write(tmp_path / "toys.py", runs=3)
    return Stage(tmp_path)


def test_run_and_status_say_that_no_reason_could_be_kept(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_commands.placements, "engine", lambda *_: Fails())
    for lacking in (False, True):
        monkeypatch.setattr(train_commands, "no_room", lambda out, lacking=lacking: lacking)
        with pytest.raises(SystemExit) as end:
            main(["run", "toys.py", "--effort", "smoke", "--device", "cpu"])
        said = capsys.readouterr().out
        assert (end.value.code, SENTENCE in said) == (1, lacking)
        assert "0 of 3 runs complete" in said and "and 2 more for the same reason: No room left in runs/" in said
    command = ["status", "toys.py", "--effort", "smoke"]
    main(command)
    assert SENTENCE not in capsys.readouterr().out
    with full():
        main(command)
        main([*command, "--json"])
    shown, _, facts = capsys.readouterr().out.partition("{")
    assert "0 failed, 3 waiting" in shown and SENTENCE in shown
    assert json.loads("{" + facts)["no_room"] is True


def test_what_failed_on_a_full_disk_is_one_reason_and_other_reasons_are_their_own() -> None:
    deep = Path("runs") / ("x" * 90)
    failed = {unit: roomless(deep / unit / ".lease") for unit in ("a", "b")} | {"c": "no such luck"}
    failed |= {"d": roomless(deep.absolute() / "d"), "e": roomless(Path("data")), "f": "no such luck"}
    assert [units for _, units in by_reason(failed, deep)] == [["a", "b", "d"], ["c", "f"], ["e"]]


def test_a_folder_without_room_is_refused_and_nothing_is_left_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_text(path: Path, text: str) -> int:
        path.touch()  # a name takes no room on most disks
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", write_text)
        with pytest.raises(UserError, match="No room left"):
            check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_workers_on_a_cluster_that_can_write_nothing_end_the_command_with_what_it_may_be(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their logs lie on the same disk, so they are empty."""

    class Mute(Threads):
        def last_words(self) -> str:
            return ""

    monkeypatch.setattr(pool, "POLL_S", 0.0)
    with pytest.raises(UserError, match=r"they left no log; is .*runs shared, and not full\?"):
        stage.execute(Pool(Mute(broken=True), most=1))
    assert not store.complete(stage.where(0))


def test_status_on_a_full_disk_still_answers(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    with full():
        said = refusals.refused(capsys, "status", "toys.py", "--effort", "smoke")
    assert "No runs of toys.py" in said
