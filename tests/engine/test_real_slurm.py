"""The Slurm engine on a real Slurm of two nodes on this machine: a time limit, preemption, and a node that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import real_slurm
import toys
from paced import wait_for
from stages import BYTES, Heard, Stage, answers, undisturbed

from levelfield.engine.driver import Driver, Outcome
from levelfield.engine.placement import Placement, engine
from levelfield.files import read_json
from levelfield.runs import store
from levelfield.runs.claims import holder
from levelfield.spec import UserError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(real_slurm.missing()), reason=f"no Slurm can run here: {real_slurm.missing()}"),
]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.chdir(tmp_path)
    with real_slurm.cluster(tmp_path / "slurm") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield Stage(tmp_path)
        subprocess.run(["scancel", "--user", "root"], check=False)
        wait_for(lambda: not tasks(), 30)


def tasks() -> dict[str, str]:
    """The node of each task that runs, "" of one that waits."""
    words = ["squeue", "--noheader", "--array", "--format", "%i|%N"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return dict(line.split("|") for line in said.splitlines())


def started(stage: Stage, jobs: int, outcomes: list[Outcome]) -> threading.Thread:
    made = engine(Placement("slurm", jobs=jobs), stage.job, stage.runs())
    driver = threading.Thread(
        target=lambda: outcomes.append(Driver(stage.job, made, stage.heard).execute(stage.runs()))
    )
    driver.start()
    return driver


def test_a_task_at_its_time_limit_gives_its_run_to_the_other_and_is_requeued(stage: Stage) -> None:
    toys.write(stage.path, runs=2, steps=400, pause=0.02)
    outcomes: list[Outcome] = []
    driver = started(stage, 2, outcomes)
    wait_for(lambda: all((stage.where(seed) / store.LOG).exists() for seed in range(2)), 200)
    owner = holder(stage.where(0))
    assert owner is not None and owner.owner.job.startswith("slurm ")
    task = owner.owner.job.removeprefix("slurm ")
    subprocess.run(["scancel", "--signal=USR1", "--batch", task], check=True)
    wait_for(lambda: tasks().get(task) == "", 60)
    driver.join(300)
    assert [len(outcome.done) for outcome in outcomes] == [2]
    assert read_json(stage.where(0) / store.LEDGER)["claims"] == 2
    for seed in range(2):
        assert {name: (stage.where(seed) / name).read_bytes() for name in BYTES} == undisturbed(stage, seed)


def test_a_run_whose_worker_is_preempted_by_another_partition_goes_on_afterwards(stage: Stage) -> None:
    """Slurm ends the worker with SIGTERM, requeues it, and starts it again when the urgent job is done."""
    toys.write(stage.path, runs=1, steps=400, pause=0.02)
    outcomes: list[Outcome] = []
    driver = started(stage, 1, outcomes)
    wait_for(lambda: (stage.where(0) / store.LOG).exists(), 200)
    (task,) = tasks()
    urgent = ["sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 20"]
    subprocess.run(urgent, check=True)
    wait_for(lambda: tasks().get(task) == "", 120)
    assert not store.complete(stage.where(0))
    driver.join(500)
    assert [len(outcome.done) for outcome in outcomes] == [1]
    assert read_json(stage.where(0) / store.LEDGER)["claims"] == 2
    assert {name: (stage.where(0) / name).read_bytes() for name in BYTES} == undisturbed(stage, 0)


def test_what_a_dead_node_had_is_done_after_all(stage: Stage) -> None:
    """The daemon of the node and the worker are killed at once; Slurm notices, and requeues the task."""
    toys.write(stage.path, runs=1, steps=400, pause=0.02)
    outcomes: list[Outcome] = []
    driver = started(stage, 1, outcomes)
    wait_for(lambda: (stage.where(0) / store.LOG).exists(), 200)
    (node,) = tasks().values()
    owner = holder(stage.where(0))
    assert owner is not None
    found = subprocess.run(["pgrep", "-f", f"slurmd -D -N {node} "], capture_output=True, text=True, check=True)
    for pid in (*map(int, found.stdout.split()), owner.owner.pid):
        os.kill(pid, signal.SIGKILL)
    driver.join(500)
    assert [len(outcome.done) for outcome in outcomes] == [1]
    assert {name: (stage.where(0) / name).read_bytes() for name in BYTES} == undisturbed(stage, 0)


def test_copies_of_a_language_model_answer_as_one_process_does(stage: Stage) -> None:
    assert answers("placed", "--engine", "slurm", "--copies", "2") == answers("alone")


def test_a_partition_that_does_not_exist_is_one_sentence_and_nothing_is_queued(stage: Stage) -> None:
    toys.write(stage.path, runs=1)
    made = engine(Placement("slurm", partition="nowhere"), stage.job, stage.runs())
    with pytest.raises(UserError, match="Invalid partition name specified"):
        Driver(stage.job, made, stage.heard).execute(stage.runs())
    assert tasks() == {}


def test_more_processors_than_a_node_has_are_one_sentence_and_nothing_stays_queued(stage: Stage) -> None:
    toys.write(stage.path, runs=2)
    job = replace(stage.job, threads=999)
    made = engine(Placement("slurm", jobs=2), job, stage.runs())
    with pytest.raises(UserError, match=r"no node of the partition has 999 CPUs.* Lower --threads"):
        Driver(job, made, stage.heard).execute(stage.runs())
    wait_for(lambda: not tasks(), 30)


def test_jobs_that_are_cancelled_by_hand_end_the_command_and_stay_away(stage: Stage) -> None:
    toys.write(stage.path, runs=2, steps=4000, pause=0.02)

    class Canceller(Heard):
        def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None:
            if all((stage.where(seed) / store.LOG).exists() for seed in range(2)):
                subprocess.run(["scancel", "--user", "root"], check=True)

    made = engine(Placement("slurm", jobs=2), stage.job, stage.runs())
    with pytest.raises(UserError, match="were cancelled: give the same command again"):
        Driver(stage.job, made, Canceller()).execute(stage.runs())
    assert tasks() == {}
    assert all(list(stage.where(seed).glob("checkpoint-*")) for seed in range(2))
