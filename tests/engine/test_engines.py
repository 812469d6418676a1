"""The local engine against real worker processes: killed ones, failing ones, two engines at once."""

from __future__ import annotations

import errno
import fcntl
import gc
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pytest
import toys
from paced import wait_for
from repository import SUPPORT
from stages import Heard, Stage

from levelfield.engine import local
from levelfield.engine.driver import Event, Outcome, check_folder
from levelfield.engine.find import Source
from levelfield.engine.jobs import Order
from levelfield.engine.local import LAST, Local, _Worker, cause
from levelfield.engine.placement import Placement
from levelfield.engine.training import Job, attempt
from levelfield.engine.worker import work
from levelfield.files import locked
from levelfield.presets.options import Options
from levelfield.run import pick_device
from levelfield.runs import claims, store
from levelfield.runs.claims import claim
from levelfield.runs.lease import Entry
from levelfield.spec import Numerics, UserError


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_one_run_raises_one_kills_its_worker_and_the_others_go_on(stage: Stage) -> None:
    toys.write(stage.path, traps={0: "raise", 1: "die once"}, runs=3)
    outcome = stage.execute()
    raising, dying, _ = stage.runs()
    assert len(outcome.done) == 2
    assert outcome.failed == {raising.id: "ValueError: no such luck"}
    text = (stage.where(0) / "error.txt").read_text()
    assert text.splitlines()[0] == "ValueError: no such luck"
    assert "Traceback" in text
    assert [s for s in stage.heard.said if "no such luck" in s] == [f"{raising.id} failed: ValueError: no such luck"]
    (death,) = [s for s in stage.heard.said if dying.id in s]
    assert "SIGKILL" in death and "trying it again" in death


@pytest.mark.slow
def test_a_worker_that_always_dies_fails_one_run_only(stage: Stage) -> None:
    toys.write(stage.path, traps={1: "die"}, runs=3)
    outcome = stage.execute()
    assert len(outcome.done) == 2
    assert "3 times with nothing saved in between" in outcome.failed[stage.runs()[1].id]
    assert "SIGKILL" in (stage.where(1) / "error.txt").read_text()


class Dying:
    """An engine whose workers die, five times, and then finish their unit. saves: they save something before."""

    def __init__(self, saves: bool) -> None:
        self.saves, self.given = saves, list[str]()

    def open(self, order: Order) -> Sequence[str]:
        self.order = order
        return ()

    def room(self) -> int:
        return 1

    def submit(self, units: Sequence[str]) -> None:
        self.given += units

    def heard(self, seconds: float) -> Sequence[Event]:
        unit, count = self.given[-1], len(self.given)
        where = self.order.where(unit)
        where.mkdir(exist_ok=True)
        if self.saves:
            (where / f"checkpoint-0-{count}-x.safetensors").write_text("x")
        return [Event(unit, "died", "was killed", "its last words") if count <= 5 else Event(unit, "done")]

    def running(self) -> Sequence[str]:
        return ()

    def cancel(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("saves", [True, False])
def test_only_workers_that_die_with_nothing_saved_in_between_end_a_run(stage: Stage, saves: bool) -> None:
    toys.write(stage.path)
    engine, name = Dying(saves), stage.runs()[0].id
    outcome = stage.execute(engine)
    if saves:
        assert (outcome.done, len(engine.given)) == ((name,), 6)
    else:
        assert outcome.failed == {name: "its worker was killed, 3 times with nothing saved in between"}
        assert "its last words" in (stage.where(0) / store.ERROR).read_text()


def test_two_engines_share_the_runs_and_nothing_is_done_twice(stage: Stage, tmp_path: Path) -> None:
    """A run without any writes the same bytes: their number changes nothing. A failure of before is tried again."""
    toys.write(stage.path, runs=4, steps=8, pause=0.01)
    stage.where(1).mkdir(parents=True)
    (stage.where(1) / "error.txt").write_text("It failed before.\n")
    outcomes: list[Outcome] = []
    runs = stage.runs()  # here, as two threads of one process would import the study at once, which no two commands do
    command = threading.Thread(target=lambda: outcomes.append(stage.execute(runs=runs)))
    command.start()
    outcomes.append(stage.execute(screen=Heard(), runs=runs))
    command.join()
    assert [len(o.done) for o in outcomes] == [4, 4]
    for seed in range(4):
        steps = [json.loads(line)["step"] for line in (stage.where(seed) / "log.jsonl").read_text().splitlines()]
        assert steps == list(range(1, 9))
    assert not (stage.where(1) / "error.txt").exists()
    alone, last = replace(stage.job, out=tmp_path / "alone"), stage.runs()[3]
    assert attempt(last, alone, ()) == ("done", "")
    for name in ("weights.safetensors", "rows.jsonl"):
        assert (stage.where(3) / name).read_bytes() == (alone.out / last.id / name).read_bytes()


def test_what_is_done_starts_no_worker(stage: Stage) -> None:
    toys.write(stage.path, runs=1)
    stage.where(0).mkdir(parents=True)
    (stage.where(0) / store.DONE).write_text("{}")
    engine = Local(["cpu"])
    assert len(stage.execute(engine).done) == 1
    assert engine.workers == []


@pytest.mark.parametrize("kind, living", [("held", False), ("done", False), ("failed", False), ("held", True)])
def test_what_a_kill_after_the_commit_left_goes_without_a_worker_and_a_living_claim_or_a_failure_stays(
    stage: Stage, kind: Literal["held", "done", "failed"], living: bool
) -> None:
    toys.write(stage.path, runs=1)
    where = stage.where(0)
    with claim(where) as mine:
        assert mine is not None
        (where / store.DONE).write_text("{}")
        saved = where / "checkpoint-0-00000010-abcdefabcdef.safetensors"
        saved.touch()
        if not living:
            entry = where / claims.FOLDER / "1"
            entry.write_text(Entry(kind, replace(mine.owner, started="0")).to_json())
        engine = Local(["cpu"])
        assert len(stage.execute(engine).done) == 1
        assert engine.workers == []
        assert (where / claims.FOLDER).exists() == saved.exists() == (living or kind == "failed")


def test_a_worker_stops_where_the_study_changed_after_planning(stage: Stage) -> None:
    toys.write(stage.path, runs=1)
    planned = stage.job.source.fingerprint(stage.runs())
    stage.path.write_text(stage.path.read_text() + "# the same runs, other code\n")
    answer, before = io.StringIO(), gc.get_freeze_count()
    work(stage.job, planned, answer)
    assert gc.isenabled() and gc.get_freeze_count() > before, "what was imported is not looked through again"
    reply = json.loads(answer.getvalue())
    assert reply["outcome"] == "stop"
    assert "changed after its runs were planned" in reply["why"]


def test_a_worker_stops_where_the_study_broke_after_planning(stage: Stage) -> None:
    toys.write(stage.path)
    planned = stage.job.source.fingerprint(stage.runs())
    stage.path.write_text("study = (\n")
    answer = io.StringIO()
    work(stage.job, planned, answer)
    assert json.loads(answer.getvalue())["outcome"] == "stop"
    assert "line 1" in json.loads(answer.getvalue())["why"]


def test_killing_the_parent_ends_the_workers_and_frees_their_claims(stage: Stage) -> None:
    toys.write(stage.path, runs=1, steps=4000, pause=0.01)
    code = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
from pathlib import Path
from levelfield.engine.local import Local
from stages import Stage
stage = Stage(Path({str(stage.folder)!r}))
engine = Local(["cpu"])
class Tell:
    def say(self, sentence): pass
    def show(self, running, done, failed, total): print(engine.workers[0].process.pid, flush=True)
stage.execute(engine, Tell())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=stage.folder)
    assert parent.stdout
    worker = int(parent.stdout.readline())
    wait_for(lambda: (stage.where(0) / "log.jsonl").exists())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    wait_for(lambda: not alive(worker), 10.0)
    with claim(stage.where(0)) as mine:
        assert mine is not None
    assert not store.complete(stage.where(0))


def test_interrupting_stops_the_workers(stage: Stage) -> None:
    toys.write(stage.path, runs=1, steps=4000, pause=0.01)
    engine = Local(["cpu"])
    pids: list[int] = []

    class Interrupt(Heard):
        def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None:
            pids[:] = [w.process.pid for w in engine.workers]
            if any((where / "log.jsonl").exists() for where in running):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage.execute(engine, Interrupt())
    assert len(pids) == 1
    assert not any(alive(pid) for pid in pids)


def test_a_worker_that_cannot_start_says_why(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.write(stage.path, runs=1)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="could not start"):
        stage.execute()


def test_a_folder_without_hard_links_or_whose_links_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_folder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", lambda a, b: os.replace(a, b))
        with pytest.raises(UserError, match="two processes could claim one there"):
            check_folder(tmp_path)
    refusal = PermissionError(errno.EPERM, "Operation not permitted")
    monkeypatch.setattr(os, "link", Mock(side_effect=refusal))
    with pytest.raises(UserError, match="needs hard links"):
        check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_locked_for_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As Lustre without the option flock; the folder of temporary files is on another file system."""
    lockless, taken = tmp_path / "lustre", fcntl.flock
    (tmp_path / "tmp").mkdir()

    def flock(file: int, how: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{file}")).is_relative_to(lockless):
            raise OSError(number, os.strerror(number))
        taken(file, how)

    def busy() -> None:
        raise TimeoutError

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for _ in range(2):
        with (
            locked(lockless / ".lock"),
            locked(lockless / ".other", busy=busy),
            pytest.raises(TimeoutError),
            locked(lockless / ".lock", busy=busy),
        ):
            pytest.fail("two have it")
    monkeypatch.setattr(tempfile, "tempdir", str(lockless))
    with pytest.raises(UserError, match=r"has no locks .*: set TMPDIR"), locked(lockless / "x" / ".lock"):
        pytest.fail("nothing is locked")


def test_an_order_survives_the_journey_to_a_worker() -> None:
    source = Source("compare", "a.py:M", Options(("listops",), seeds=5, lr=0.1))
    job = Job(source, "hours", Path("o"), Path("d"), "x*", "cuda:1", 3)
    assert Job.from_json(job.to_json()) == job


def test_causes_are_words() -> None:
    assert "SIGKILL" in cause(-9) and "memory" in cause(-9)
    assert "SIGSEGV" in cause(-11)
    assert cause(-40) == "was killed (signal 40)", "one of those without a name"
    assert "3" in cause(3)


def test_of_what_a_worker_printed_the_end_alone_is_read() -> None:
    read = list[int]()

    class Printed(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            read.append(len(found := super().read(size)))
            return found

    worker = _Worker(Mock(), "cpu", Printed("größer\n".encode() * 1_000_000 + b"the reason\n"))
    words = worker.last_words()
    assert words.endswith("größer\nthe reason") and sum(read) == LAST
    assert _Worker(Mock(), "cpu", Printed(b"short\n")).last_words() == "short"


def test_a_device_without_memory_is_none() -> None:
    with pytest.raises(UserError, match=r"Device 'meta' cannot be used here: choose cpu"):
        pick_device("meta")


@pytest.mark.parametrize(("threads", "nproc", "workers"), [(1, 1, 8), (3, 1, 2), (2, 2, 2), (16, 1, 1)])
def test_workers_are_as_many_as_have_a_core_for_each_of_their_threads(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, threads: int, nproc: int, workers: int
) -> None:
    monkeypatch.setattr(local, "cores", lambda: 8)
    toys.write(stage.path, runs=20)
    job = replace(stage.job, device="cpu", threads=threads)
    runs = [replace(run, numerics=Numerics(nproc=nproc)) for run in stage.runs()]
    assert local.engine(Placement(), job, runs).devices == ["cpu"] * workers
    assert local.engine(Placement(jobs=5), job, runs).devices == ["cpu"] * 5, "as --jobs says"
