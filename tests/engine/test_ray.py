"""The Ray engine: refused in one sentence where it cannot be, and on a real Ray whose worker, raylet and driver die."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import real_ray
import toys
from paced import wait_for
from repository import TESTS
from stages import BYTES, Stage, answers, refused, undisturbed

from levelfield.files import read_json
from levelfield.runs import store
from levelfield.runs.claims import ended, holder
from levelfield.runs.lease import Owner

HERE = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HERE, reason="the package ray is not installed: pip install 'levelfield[ray]'")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return Stage(tmp_path)


def test_without_the_package_the_extra_is_named(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.write(stage.path, runs=1)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'levelfield[ray]'" in refused(capsys, "--engine", "ray")
    assert "--partition is not for --engine ray" in refused(capsys, "--engine", "ray", "--partition", "gpu")


def driver(stage: Stage, *words: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    fixed = ["run", "toys.py", "--effort", "smoke", "--device", "cpu", "--engine", "ray"]
    return subprocess.Popen(
        [sys.executable, "-m", "levelfield", *fixed, *words],
        env=os.environ | {"PYTHONPATH": path},
        cwd=stage.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def contents(stage: Stage, seed: int) -> dict[str, bytes]:
    return {name: (stage.where(seed) / name).read_bytes() for name in BYTES}


@needs_ray
@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_worker_and_driver_are_killed_and_the_bytes_are_those_of_undisturbed_runs(stage: Stage) -> None:
    toys.write(stage.path, runs=2, steps=300, pause=0.02)
    first = driver(stage, "--jobs", "1")
    logs = [stage.where(seed) / store.LOG for seed in range(2)]
    wait_for(lambda: any(log.exists() for log in logs), 200)
    (begun,) = (seed for seed in range(2) if logs[seed].exists())
    entry = holder(stage.where(begun))
    assert entry is not None and entry.owner.job.startswith("ray ")
    os.kill(entry.owner.pid, signal.SIGKILL)
    wait_for(lambda: logs[1 - begun].exists(), 200)  # another worker has done the first run, and is at the second
    assert store.complete(stage.where(begun))
    first.kill()
    first.communicate()
    assert not store.complete(stage.where(1 - begun))
    said, complaints = driver(stage, "--jobs", "1").communicate(timeout=300)
    assert "2 of 2 runs complete" in said, complaints
    assert [read_json(stage.where(seed) / store.LEDGER)["claims"] for seed in range(2)] == [2, 2]
    for seed in range(2):
        assert contents(stage, seed) == undisturbed(stage, seed)


@needs_ray
@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_two_raylets_one_is_killed_then_a_worker_then_the_driver(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two runs loses its worker twice and more, and both end with the bytes of undisturbed runs."""
    toys.write(stage.path, runs=2, steps=600, pause=0.03)
    logs = [stage.where(seed) / store.LOG for seed in range(2)]
    with real_ray.cluster() as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        first = driver(stage, "--jobs", "2")
        wait_for(lambda: all(log.exists() for log in logs), 300)
        jobs = {job_of(stage, seed) for seed in range(2)}
        assert len(jobs) == 2, "each raylet has a worker"
        cluster.kill(cluster.second)
        wait_for(lambda: sum(alive(stage, seed) for seed in range(2)) == 1, 60)
        (left,) = (seed for seed in range(2) if alive(stage, seed))
        os.kill(owner(stage, left).pid, signal.SIGKILL)
        wait_for(lambda: any(alive(stage, seed) for seed in range(2)), 300)  # the driver has started another worker
        first.kill()
        first.communicate()
        said, complaints = driver(stage, "--jobs", "2").communicate(timeout=500)
    assert "2 of 2 runs complete" in said, complaints
    assert all(read_json(stage.where(seed) / store.LEDGER)["claims"] >= 2 for seed in range(2))
    for seed in range(2):
        assert contents(stage, seed) == undisturbed(stage, seed)


def owner(stage: Stage, seed: int) -> Owner:
    entry = holder(stage.where(seed))
    assert entry is not None
    return entry.owner


def job_of(stage: Stage, seed: int) -> str:
    """What Ray calls the worker of a run, by the node that it is on."""
    return owner(stage, seed).job


def alive(stage: Stage, seed: int) -> bool:
    """Whether a process works on a run now."""
    entry = holder(stage.where(seed))
    return entry is not None and entry.kind == "held" and not ended(entry.owner)


@needs_ray
@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_that_is_away_or_too_small_is_one_sentence(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.write(stage.path, runs=1)
    for address, words, why in (
        (None, ("--gpus", "64"), "No node of Ray has 64 GPU"),
        ("127.0.0.1:1", (), "Ray cannot be reached at 127.0.0.1:1"),
    ):
        if address:
            monkeypatch.setenv("RAY_ADDRESS", address)
        process = driver(stage, *words)
        _, complaints = process.communicate(timeout=300)
        assert process.returncode == 2
        assert complaints.splitlines()[-1].startswith(f"levelfield: {why}"), complaints
        assert not (stage.where(0) / store.LOG).exists()


@needs_ray
@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_copies_of_a_language_model_answer_as_one_process_does(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in real_ray.OPEN.items():
        monkeypatch.setenv(name, value)
    assert answers("placed", "--engine", "ray", "--copies", "2") == answers("alone")
