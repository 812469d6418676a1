"""The Slurm engine against a fake of ours: what it asks for, what it refuses, what it goes on with after losses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import fake_slurm
import pytest
import refusals
import torch
import toys
from paced import wait_for
from stages import BYTES, Heard, Stage, refused, undisturbed

from levelfield.engine import jobs, pool, ray
from levelfield.engine.driver import Driver, Outcome
from levelfield.engine.placement import Placement, engine
from levelfield.engine.pool import Pool, Workplace
from levelfield.engine.questions import Job as Questions
from levelfield.engine.slurm import Slurm
from levelfield.engine.training import Job
from levelfield.files import read_json
from levelfield.runs import store
from levelfield.spec import Numerics, UserError


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    commands = fake_slurm.install(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return Stage(tmp_path)


def test_jobs_are_one_array_that_can_be_requeued_and_is_told_of_its_time_limit(tmp_path: Path) -> None:
    slurm = Slurm(Placement("slurm", partition="gpu", account="lab", time="4:00:00", gpus=2))
    slurm.place = Workplace("levelfield-1", tmp_path / "jobs" / "levelfield-1.json", threads=2, cpus=4)
    words = slurm.words(7)
    assert words[:3] == ["sbatch", "--parsable", "--requeue"]
    wanted = ("array=0-6", "partition=gpu", "account=lab", "time=4:00:00", "gres=gpu:2", "cpus-per-task=4")
    assert {f"--{word}" for word in (*wanted, "job-name=levelfield-1", "signal=B:USR1@60")} <= set(words)
    bare = Slurm(Placement("slurm"))
    bare.place = slurm.place
    assert not [word for word in bare.words(1) if word.startswith(("--partition", "--account", "--time", "--gres"))]
    assert slurm.script().splitlines()[-1].startswith("exec ")


def test_bad_input_is_one_sentence_and_nothing_is_queued(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.write(stage.path, runs=1)
    state = stage.folder / "slurm" / "state"
    (state / "away").touch()
    assert "cannot be reached: start this on a login node" in refused(capsys, "--engine", "slurm")
    assert not (stage.folder / "runs").exists() and not (stage.folder / "data").exists()
    (state / "away").unlink()
    assert "invalid partition" in refused(capsys, "--engine", "slurm", "--partition", "nowhere")
    assert list((stage.folder / "runs").iterdir()) == []
    assert "whole GPUs" in refused(capsys, "--engine", "slurm", "--gpus", "0.5")
    spread = ("--engine", "slurm", "--device", "cuda", "--gpus", "1", "--nproc", "4")
    assert "--nproc 4 takes a GPU for each, and a worker has 1: give --gpus 4." in refused(capsys, *spread)
    second = ("--engine", "slurm", "--gpus", "1", "--device", "cuda:1")
    assert "has 1, so not cuda:1: give --device cuda." in refused(capsys, *second)
    assert "'slurm'" in refused(capsys, "--engine", "slum")
    assert "--partition is not for --engine local" in refused(capsys, "--partition", "gpu")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no sbatch here" in refused(capsys, "--engine", "slurm")
    assert list(state.glob("*.job")) == []


def test_a_time_limit_beyond_that_of_the_partition_is_one_sentence_and_nothing_stays_queued(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most clusters queue such jobs, and never start them."""
    toys.write(stage.path, runs=1)
    idle(stage, monkeypatch)
    state = stage.folder / "slurm" / "state"
    (state / "waits").write_text("PartitionTimeLimit")
    said = refused(capsys, "--engine", "slurm", "--time", "99:00:00")
    assert "their --time is longer than the partition allows. Give less." in said
    wait_for(lambda: not fake_slurm.running(state))


@pytest.mark.parametrize("reason", ["", "PartitionConfig", "BadConstraints", "MaxMemPerLimit"])
def test_more_than_a_node_has_is_one_sentence_and_nothing_stays_queued(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Slurm queues such jobs and never starts them, for one of these reasons, or refuses them."""
    toys.write(stage.path, runs=1)
    idle(stage, monkeypatch)
    state = stage.folder / "slurm" / "state"
    if reason:
        (state / "waits").write_text(reason)
    said = refused(capsys, "--engine", "slurm", "--threads", "999")
    assert "no node of the partition has 999 CPUs, with their memory, for a worker. Lower --threads," in said
    wait_for(lambda: not fake_slurm.running(state))
    assert "has 999 CPUs and 2 GPUs," in refused(capsys, "--engine", "slurm", "--threads", "999", "--gpus", "2")
    wait_for(lambda: not fake_slurm.running(state))


def test_jobs_that_wait_for_what_others_have_are_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot start is no reason to end the command while another one may."""
    slurm = Slurm(Placement("slurm"))
    slurm.place = Workplace("levelfield-1", stage.folder / "levelfield-1.json", threads=1, cpus=1)
    listed = ["1_0 PENDING PartitionConfig", "1_1 PENDING (Resources)", "1_2 PENDING"]
    monkeypatch.setattr("levelfield.engine.slurm._command", lambda *_, **__: (0, "\n".join(listed), ""))
    assert slurm.alive() == 3


@pytest.mark.parametrize(
    ("device", "gpus", "nproc", "taken"),
    [
        ("cuda:0", 0.5, 1, True),
        ("cuda:1", 0.5, 1, False),
        ("cuda:1", 2, 1, True),
        ("cuda:1", 2, 2, False),
        ("cuda:1", 0, 1, True),  # a cluster that gives out no GPUs, whose workers see all of their machine
        ("cuda", 2, 2, True),
    ],
)
def test_a_device_is_one_of_those_that_a_worker_is_given(
    monkeypatch: pytest.MonkeyPatch, device: str, gpus: float, nproc: int, taken: bool
) -> None:
    monkeypatch.setattr(ray, "_ray", lambda: None)
    job = Questions(Path("questions.json"), device, spread=nproc)
    with nullcontext() if taken else pytest.raises(UserError, match=f"not {device}: give --device cuda"):
        engine(Placement("ray", gpus=gpus), job, ["one"])


def execute(stage: Stage, jobs: int) -> Outcome:
    made = engine(Placement("slurm", jobs=jobs), stage.job, stage.runs())
    return Driver(stage.job, made, stage.heard).execute(stage.runs())


def idle(stage: Stage, monkeypatch: pytest.MonkeyPatch, does: str = "exec sleep 60") -> None:
    """Has jobs execute a line of shell in place of a worker."""
    worker = stage.folder / "worker"
    worker.write_text(f"#!/bin/sh\n{does}\n")
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))


def queued(stage: Stage, job: Job) -> Pool:
    """Puts one worker of a job into the queue, as a driver does that is killed then."""
    made = engine(Placement("slurm", jobs=1), job, stage.runs())
    assert isinstance(made, Pool)
    order = job.order(stage.runs())
    assert made.open(order) == ()
    made.submit(order.units)
    return made


def test_a_command_that_is_refused_leaves_the_jobs_of_others_in_the_queue(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the same command before its study was edited, and those of the same study with other numerics."""
    toys.write(stage.path, runs=1)
    idle(stage, monkeypatch)
    state = stage.folder / "slurm" / "state"
    split = replace(stage.job, source=replace(stage.job.source, numerics=Numerics(accumulate=2)))
    first, second = queued(stage, stage.job), queued(stage, split)
    before = fake_slurm.running(state)
    assert len(before) == 2
    stage.path.write_text(stage.path.read_text() + "# the same runs, other code\n")
    with pytest.raises(UserError, match="go by other code"):
        execute(stage, 1)
    assert fake_slurm.running(state) == before
    first.cancel()
    wait_for(lambda: len(fake_slurm.running(state)) == 1)
    second.cancel()
    wait_for(lambda: not fake_slurm.running(state))


def test_workers_of_another_device_threads_or_data_have_an_order_of_their_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a worker with a GPU would train on the CPU, as the command before it asked for. The same command finds its
    own, also where it names the folder of data in another way."""
    toys.write(stage.path, runs=1)
    idle(stage, monkeypatch)
    others = [replace(stage.job, device="cuda"), replace(stage.job, threads=2), replace(stage.job, data=Path("other"))]
    made = [queued(stage, job) for job in (stage.job, *others)]
    for own, job in zip(made, (stage.job, *others), strict=True):
        known = jobs.read(read_json(own.place.path)["job"])
        assert isinstance(known, Job)
        assert (known.device, known.threads, known.data) == (job.device, job.threads, job.data.absolute())
    again = engine(Placement("slurm", jobs=1), stage.job, stage.runs())
    assert again.open(replace(stage.job, data=Path("data")).order(stage.runs())) == [stage.runs()[0].id]
    for own in made:
        own.cancel()
    wait_for(lambda: not fake_slurm.running(stage.folder / "slurm" / "state"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_what_this_machine_lacks_is_asked_of_the_workers(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.write(stage.path, runs=1)
    idle(stage, monkeypatch, "echo no GPU here")
    monkeypatch.setattr(pool, "POLL_S", 0.0)
    command = ("run", "toys.py", "--effort", "smoke", "--engine", "slurm", "--gpus", "1")
    assert "choose cpu, cuda or auto" in refusals.refused(capsys, *command, "--device", "abacus")
    assert not (stage.folder / "runs").exists()
    assert "before a run did: no GPU here" in refusals.refused(capsys, *command, "--precision", "tf32")
    (order,) = (stage.folder / "runs" / "jobs").glob("*.json")
    job = jobs.read(read_json(order)["job"])
    assert job.device == "cuda"
    with pytest.raises(UserError, match="Device 'cuda' cannot be used here"):
        pool.work(order)
    assert not (stage.where(0) / store.ERROR).exists()


def test_a_lost_task_is_replaced_and_one_that_was_cancelled_ends_the_command(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.write(stage.path, runs=1)
    idle(stage, monkeypatch)
    monkeypatch.setattr(pool, "POLL_S", 0.0)
    state = stage.folder / "slurm" / "state"
    made = engine(Placement("slurm", jobs=1), stage.job, stage.runs())
    assert isinstance(made, Pool)
    slurm = made.cluster
    assert isinstance(slurm, Slurm)

    class Meddler(Heard):
        def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None:
            tasks = fake_slurm.running(state)
            if "1_0" in tasks:
                os.kill(tasks["1_0"], signal.SIGKILL)
            elif tasks.keys() & slurm.seen:  # the driver has seen it
                subprocess.run(["scancel", "--name", made.place.name], check=True)

    with pytest.raises(UserError, match="were cancelled: give the same command again"):
        Driver(stage.job, made, Meddler()).execute(stage.runs())
    assert len(list(state.glob("*.job"))) == 2
    assert not fake_slurm.running(state)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_lost_and_requeued_tasks_end_with_the_bytes_of_an_undisturbed_run(stage: Stage) -> None:
    """One task is killed as with its node, one is told of its time limit, and the driver is started again."""
    toys.write(stage.path, runs=2, steps=400, pause=0.02)
    state = stage.folder / "slurm" / "state"
    outcomes: list[Outcome] = []
    driver = threading.Thread(target=lambda: outcomes.append(execute(stage, 2)))
    driver.start()
    wait_for(lambda: all((stage.where(seed) / store.LOG).exists() for seed in range(2)), 110)
    first, second = sorted(fake_slurm.running(state).items())
    os.kill(first[1], signal.SIGKILL)
    os.kill(second[1], signal.SIGUSR1)
    wait_for(lambda: (state / f"{second[0]}.requeued").exists())
    driver.join(300)
    assert [len(outcome.done) for outcome in outcomes] == [2]
    for seed in range(2):
        found = {name: (stage.where(seed) / name).read_bytes() for name in BYTES}
        assert found == undisturbed(stage, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_that_is_started_again_finds_the_jobs_of_the_one_before(stage: Stage) -> None:
    toys.write(stage.path, runs=1, steps=100, pause=0.02)
    state = stage.folder / "slurm" / "state"

    class Gone(Exception):
        pass

    class Dies:
        def say(self, sentence: str) -> None: ...

        def show(self, running: list[Path], done: int, failed: int, total: int) -> None:
            if running:
                raise Gone

    made = engine(Placement("slurm", jobs=1), stage.job, stage.runs())
    with pytest.raises(Gone):
        Driver(stage.job, made, Dies()).execute(stage.runs())
    assert len(fake_slurm.running(state)) == 1
    assert len(execute(stage, 1).done) == 1
    assert len(list(state.glob("*.job"))) == 1
