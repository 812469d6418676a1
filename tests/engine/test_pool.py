"""Pools of workers on a cluster that is made of threads: what they share, what they skip, what is started again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import toys
from stages import BYTES, Stage, Threads, undisturbed

from levelfield.cli import train_commands
from levelfield.engine import placement as placements
from levelfield.engine import pool
from levelfield.engine.driver import Driver, Outcome
from levelfield.engine.jobs import Job
from levelfield.engine.placement import HERE, Placement
from levelfield.engine.pool import Pool, Workplace
from levelfield.engine.training import Job as Training
from levelfield.engine.training import attempt
from levelfield.files import read_json, write_json
from levelfield.runs import claims, store
from levelfield.runs.claims import Folder, claim
from levelfield.runs.lease import Entry
from levelfield.spec import Numerics, Run, UserError


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(pool, "POLL_S", 0.02)
    monkeypatch.setattr(claims, "_STOP", threading.Event())
    monkeypatch.chdir(tmp_path)
    return Stage(tmp_path)


def execute(stage: Stage, cluster: Threads, most: int = 2) -> Outcome:
    return Driver(stage.job, Pool(cluster, most), stage.heard).execute(stage.runs())


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0])
def test_workers_share_the_runs_and_a_failure_is_tried_again_by_the_next_driver_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """ahead_s: seconds by which the clock that the order has its time from is before that of the workers."""

    def write(path: Path, value: object) -> None:
        write_json(path, value)
        os.utime(path, (time.time() + ahead_s, time.time() + ahead_s))

    monkeypatch.setattr(pool, "write_json", write)
    toys.write(stage.path, traps={1: "raise"}, runs=4)
    cluster = Threads(in_turn=True)
    outcome = execute(stage, cluster)
    assert len(cluster.started) == 2
    assert len(outcome.done) == 3
    assert outcome.failed == {stage.runs()[1].id: "ValueError: no such luck"}
    assert len([said for said in stage.heard.said if "no such luck" in said]) == 1
    found = {name: (stage.where(3) / name).read_bytes() for name in BYTES}
    assert found == undisturbed(stage, 3)
    assert read_json(stage.where(3) / store.LEDGER)["claims"] == 1
    where = stage.where(1)
    assert execute(stage, Threads(in_turn=True)).failed == outcome.failed
    assert Folder(where).claims(Folder(where).last()) == 2


def ordered(stage: Stage) -> Path:
    """Returns the file of an order of all runs, which nobody has begun."""
    made = Pool(Threads(broken=True), 1)
    order = stage.job.order(stage.runs())
    made.open(order)
    made.submit(order.units)
    return made.place.path


def test_a_run_that_fails_between_a_look_at_it_and_its_claim_is_not_executed_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the worker that only came too late goes on."""
    toys.write(stage.path, traps={0: "raise"}, runs=2)
    path, runs = ordered(stage), stage.runs()
    losses, others = claims.losses, [runs[0]]

    def meanwhile(where: Path, since: str) -> int:
        if others:
            assert attempt(others.pop(), stage.job, ())[0] == "failed"
        return losses(where, since)

    monkeypatch.setattr(claims, "losses", meanwhile)
    assert pool.work(path) == ""
    disk = Folder(stage.where(0))
    assert [entry.kind for entry in disk.entries(disk.last())] == ["held", "failed", "held", "free"]
    assert (stage.where(0) / store.ERROR).exists() and store.complete(stage.where(1))
    assert pool.failed(stage.where(0), "")


class Away(Threads):
    """A cluster that nobody can reach."""

    def open(self, place: Workplace) -> None:
        raise UserError("Nobody is there.")


def test_a_command_that_is_refused_leaves_no_record_of_its_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of later commands would count them as failed."""
    toys.write(stage.path, runs=1)
    monkeypatch.setattr(placements, "engine", lambda *about: Pool(Away(), 1))
    with pytest.raises(UserError, match="Nobody is there"):
        train_commands.execute(stage.job, stage.job.source.load(), HERE, stage.heard.say)
    assert not store.index_file(stage.job.out, "toys", "smoke").exists()


def test_a_worker_that_is_asked_to_stop_saves_and_the_next_one_ends_with_the_same_bytes(stage: Stage) -> None:
    toys.write(stage.path, runs=1, steps=40, pause=0.05)
    cluster = Threads(in_turn=True)
    where = stage.where(0)  # read here: two threads cannot parse a file at once in Python 3.11

    def stop_once() -> None:
        while not (where / store.LOG).exists():
            claims.pause(0.01)
        claims.stop()
        while not cluster.said:
            threading.Event().wait(0.01)
        assert cluster.said == ["it was asked to stop"]
        assert list(where.glob("checkpoint-*"))
        claims._STOP.clear()

    helper = threading.Thread(target=stop_once)
    helper.start()
    assert len(execute(stage, cluster).done) == 1
    helper.join()
    assert len(cluster.started) == 2
    assert {name: (stage.where(0) / name).read_bytes() for name in BYTES} == undisturbed(stage, 0)
    assert read_json(stage.where(0) / store.LEDGER)["claims"] == 2


def test_workers_that_end_at_once_are_started_a_few_times_and_then_quoted(stage: Stage) -> None:
    toys.write(stage.path, runs=1)
    cluster = Threads(broken=True)
    with pytest.raises(UserError, match=r"ended 5 times before a run did: no module named levelfield"):
        execute(stage, cluster)
    assert (len(cluster.started), cluster.cancelled) == (pool.STARTS, 1)


class Refusing(Threads):
    """A cluster whose workers end as a scheduler's do: what they raise is in nobody's hands."""

    def _work(self) -> None:
        with suppress(UserError):
            super()._work()


def test_workers_that_cannot_do_the_order_are_not_started_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on machines without a GPU; one of two that dies is no refusal."""
    toys.write(stage.path, runs=2)
    refusal = UserError("Device 'cuda' cannot be used here: choose cpu.")
    monkeypatch.setattr(Training, "check_device", Mock(side_effect=refusal))
    cluster = Refusing(in_turn=True)
    with pytest.raises(
        UserError, match=r"^No worker can begin: on .+, Device 'cuda' cannot be used here: choose cpu\.$"
    ):
        execute(stage, cluster)
    assert (len(cluster.started), cluster.cancelled) == (2, 1)
    assert not list((stage.job.out / pool.FOLDER).glob("*.refused")), "the next command begins anew"
    died = Refusing(in_turn=True)
    died.start = lambda count: Threads.start(died, 1)  # type: ignore[method-assign]
    with pytest.raises(UserError, match="ended 5 times before a run did"):
        execute(stage, died)


@pytest.mark.parametrize("saves", [True, False])
def test_a_run_whose_workers_are_lost_three_times_has_failed_where_nothing_was_saved_in_between(
    stage: Stage, saves: bool
) -> None:
    """The heartbeats of the lost ones have the time of a clock that is an hour behind that of the order."""
    toys.write(stage.path, runs=2)
    cluster = Threads(in_turn=True)
    lost = stage.where(0)

    def start(count: int) -> None:  # the losses are later than the order
        disk = Folder(lost)
        with claim(lost) as mine:
            assert mine is not None
            dead = replace(mine.owner, started="0")
        for number in range(disk.last() + 1, disk.last() + 4):
            if saves:
                (lost / "part-0.jsonl").write_text("x" * number)
            owner = replace(dead, token=str(number), saved=claims.saved(lost))
            assert disk.add(number, Entry("held", owner))
            os.utime(disk.path / str(number), (time.time() - 3600, time.time() - 3600))
        Threads.start(cluster, count)

    cluster.start = start  # type: ignore[method-assign]
    outcome = execute(stage, cluster)
    why = "The run failed: its worker was lost 3 times with nothing saved in between."
    assert outcome.failed == ({} if saves else {lost.name: why})
    assert len(outcome.done) == (2 if saves else 1)


def test_workers_of_other_code_are_not_joined_by_a_driver(stage: Stage) -> None:
    toys.write(stage.path, runs=1)
    cluster = Threads(broken=True)
    own = Pool(cluster, 1)
    with pytest.raises(UserError):
        Driver(stage.job, own, stage.heard).execute(stage.runs())
    known = read_json(own.place.path)
    write_json(own.place.path, known | {"fingerprint": "another"})
    cluster.alive = lambda: 1  # type: ignore[method-assign]
    with pytest.raises(UserError, match="go by other code"):
        execute(stage, cluster)
    with pytest.raises(UserError, match="is another one on this machine"):
        pool.work(own.place.path)


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    path = tmp_path / "levelfield-0.json"
    with pytest.raises(UserError, match="share the folder"):
        pool.work(path)
    write_json(path, {"folder": str(tmp_path / "of the command")})
    with pytest.raises(UserError, match=r"of the command cannot be read, it is missing: share .*command with"):
        pool.work(path)


def test_a_driver_that_is_started_again_starts_what_is_missing_beside_those_that_are_left(stage: Stage) -> None:
    """And counts what was done before once."""
    toys.write(stage.path, runs=4)
    ordered(stage)
    where = [stage.where(seed) for seed in range(4)]
    assert attempt(stage.runs()[0], stage.job, ()) == ("done", "")
    alone: list[bool] = []

    def lives() -> None:
        until = time.monotonic() + 100
        while not all(map(store.complete, where)) and time.monotonic() < until:
            time.sleep(0.05)
        alone.append(time.monotonic() >= until)

    cluster = Threads(in_turn=True)
    cluster.start = lambda count: (counts.append(count), Threads.start(cluster, count))  # type: ignore[method-assign]
    counts: list[int] = []
    cluster.started.append(threading.Thread(target=lives))
    cluster.started[0].start()
    outcome = execute(stage, cluster, most=3)
    assert (sorted(outcome.done), counts, alone) == (sorted(path.name for path in where), [2], [False])


def test_a_worker_refuses_a_study_whose_runs_its_machine_cannot_compute(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.write(stage.path, runs=1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for device, numerics, why in (
        ("cpu", Numerics(precision="tf32"), "tf32 is of NVIDIA GPUs"),
        ("cuda", Numerics(nproc=2), "2 processes needs as many GPUs, and this machine has 1"),
    ):
        job = replace(stage.job, device=device, source=replace(stage.job.source, numerics=numerics))
        with pytest.raises(UserError, match=why):
            job.loaded()


def test_trials_are_units_of_the_same_engine_and_the_runs_use_what_they_find(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.write(stage.path, runs=2)
    job = replace(stage.job, source=replace(stage.job.source, trials=2))
    placed: list[Job] = []

    def engine(placement: Placement, job: Job, units: Sequence[Run]) -> Pool:
        placed.append(job)
        return Pool(Threads(in_turn=True), len(units))

    monkeypatch.setattr(placements, "engine", engine)
    study, alone = job.source.load(), replace(job, out=stage.folder / "alone")
    assert train_commands.tune(job, study, HERE, stage.heard.say)
    assert train_commands.execute(job, study, HERE, stage.heard.say)
    assert placed == [job.trials, job]
    for ours, theirs, names in ((job.trials, alone.trials, ("rows.jsonl", "log.jsonl")), (job, alone, BYTES)):
        _, runs = theirs.load()  # of the runs only once the trials are there
        assert len(runs) == 2
        for run in runs:
            assert attempt(run, theirs, ()) == ("done", "")
            for name in names:
                assert (ours.out / run.id / name).read_bytes() == (theirs.out / run.id / name).read_bytes()
