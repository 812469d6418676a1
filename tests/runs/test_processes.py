"""One run in several processes: the same examples and masks, byte-equal repetition, and one process killed."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import toys
from groups import ask_to_stop, contents, finish, kill_last
from paced import wait_for
from repository import ROOT
from tiny import MODEL, FirstSymbol, RunningMean, recipe

from levelfield import protocols
from levelfield.engine import jobs, member, torchrun
from levelfield.engine.driver import Driver
from levelfield.engine.find import Source, choose
from levelfield.engine.local import Local
from levelfield.engine.training import Job, attempt
from levelfield.files import read_json, read_rows
from levelfield.run import execute
from levelfield.runs import claims, store
from levelfield.spec import Numerics, Run, UserError

TASK = FirstSymbol()
PLAIN = Run(TASK, MODEL, protocols.spt_masked(recipe(8), recipe(12), 0.3), 0)


@dataclasses.dataclass
class Heard:
    """A screen that remembers."""

    said: list[str] = field(default_factory=list)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None: ...


def of(count: int, run: Run = PLAIN) -> Run:
    return dataclasses.replace(run, numerics=Numerics(nproc=count))


DROPPING = of(2, dataclasses.replace(PLAIN, model=dataclasses.replace(MODEL, mixers=(RunningMean(dropout=0.1),))))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes, with dropout."""
    return finish(DROPPING, tmp_path_factory.mktemp("undisturbed"))


def test_two_processes_train_as_one_that_splits_its_batches_in_two(tmp_path: Path) -> None:
    """Without dropout they compute the same numbers, and add them up in the same order: a sum of two has no other."""
    two, split = finish(of(2), tmp_path), dataclasses.replace(PLAIN, numerics=Numerics(accumulate=2))
    one = store.directory(tmp_path, split)
    execute(split, one, tmp_path / "data", "cpu")
    for name in ("weights.safetensors", "log.jsonl", "scores.npy"):
        assert (two / name).read_bytes() == (one / name).read_bytes()
    scores = [[row.get("value") for row in read_rows(where / store.ROWS)] for where in (two, one)]
    assert scores[0] == scores[1]
    ledgers = [read_json(where / store.LEDGER) for where in (two, one)]
    counts = [{name: each[name] for name in ("steps", "examples", "tokens", "flops")} for each in ledgers]
    assert counts[0] == counts[1]
    assert [(each["processes"], each["numerics"]) for each in ledgers] == [
        (2, "float32-nproc2"),
        (1, "float32-accumulate2"),
    ]


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_one_process_killed_and_all_started_again_ends_with_the_same_bytes(
    undisturbed: Path, tmp_path: Path, count: int
) -> None:
    run = of(count, DROPPING)
    where = store.directory(tmp_path, run)
    wanted = undisturbed if count == 2 else finish(run, tmp_path / "undisturbed")
    assert kill_last(run, tmp_path)[0].exitcode == 1  # the others lose the connection
    finish(run, tmp_path)
    assert contents(where) == contents(wanted)


def test_one_process_that_is_asked_to_stop_stops_all_after_the_same_step(undisturbed: Path, tmp_path: Path) -> None:
    where = ask_to_stop(DROPPING, tmp_path)
    entry = claims.holder(where)
    assert entry is not None and entry.kind == "free"
    finish(DROPPING, tmp_path)
    assert contents(where) == contents(undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("to", ["worker", "all"])
def test_a_worker_of_a_cluster_that_is_told_of_its_end_has_the_run_saved_and_given_back(
    tmp_path: Path, to: str
) -> None:
    """A worker as Slurm starts it, torchrun and two processes. SIGUSR1 comes to the worker alone, before a time limit;
    SIGTERM, where a job is preempted, to all."""
    toys.write(tmp_path / "toys.py", steps=60, pause=0.1)
    study = Source.of(str(tmp_path / "toys.py"), numerics=Numerics(nproc=2))
    job = Job(study, "smoke", tmp_path / "runs", tmp_path / "data")
    (run,) = choose(study.load(), "smoke")
    where, path = store.directory(job.out, run), tmp_path / "order.json"
    fingerprint = job.order([run]).fingerprint
    order = {"fingerprint": fingerprint, "folder": str(tmp_path), "runs": [run.id], "job": job.to_json()}
    path.write_text(json.dumps(order))
    words = [sys.executable, "-m", "levelfield.engine.pool", str(path), "touch", str(tmp_path / "requeued")]
    begin = partial(subprocess.Popen, words, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True)
    worker = begin()
    wait_for(lambda: (where / store.LOG).exists(), 200)
    if to == "worker":
        worker.send_signal(signal.SIGUSR1)
    else:
        os.killpg(worker.pid, signal.SIGTERM)
    assert worker.wait(100) == 0
    assert (tmp_path / "requeued").exists() == (to == "worker")
    entry = claims.holder(where)
    assert entry is not None and entry.kind == "free" and claims.losses(where, "") == 0
    assert list(where.glob("checkpoint-*")) and not (where / store.ERROR).exists() and not store.complete(where)
    assert begin().wait(300) == 0
    assert store.complete(where)
    assert read_json(where / store.LEDGER)["claims"] == 2


def test_a_run_of_two_processes_is_refused_by_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is for 2 processes, and here is 1: `levelfield run` starts them"):
        execute(of(2), tmp_path / "run", tmp_path / "data", "cpu")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_torchrun_starts_all_again_where_one_is_killed(undisturbed: Path, tmp_path: Path) -> None:
    """The local engine, its worker, torchrun and two processes of a run, of which the second kills itself once."""
    toys.write(tmp_path / "toys.py", traps={0: "die once"}, runs=1)
    study = Source.of(str(tmp_path / "toys.py"), numerics=Numerics(nproc=2))
    job = Job(study, "smoke", tmp_path / "runs", tmp_path / "data")
    runs, screen = choose(study.load(), "smoke"), Heard()
    outcome = Driver(job, Local(["cpu"]), screen).execute(runs)
    assert (outcome.done, outcome.failed, screen.said) == ((runs[0].id,), {}, [])
    assert (tmp_path / "died").exists()
    ledger = read_json(job.out / runs[0].id / store.LEDGER)
    assert (ledger["processes"], ledger["steps"]) == (2, 3)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_fails_in_one_process_is_the_reason_of_all(tmp_path: Path) -> None:
    toys.write(tmp_path / "toys.py", traps={0: "raise"}, runs=1)
    study = Source.of(str(tmp_path / "toys.py"), numerics=Numerics(nproc=2))
    job = Job(study, "smoke", tmp_path / "runs", tmp_path / "data")
    runs = choose(study.load(), "smoke")
    outcome = Driver(job, Local(["cpu"]), Heard()).execute(runs)
    assert outcome.failed == {runs[0].id: "ValueError: no such luck"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_torchrun_itself_trains_a_run_of_the_command_line(tmp_path: Path) -> None:
    """Its run is the one of --nproc 2, which then finds it complete."""
    toys.write(tmp_path / "toys.py", runs=2)
    words = ["levelfield", "run", "toys.py", "--effort", "smoke", "--filter", "*-0-*", "--device", "cpu"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", *words]
    subprocess.run(launch, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    run, _ = choose(Source.of(str(tmp_path / "toys.py"), numerics=Numerics(nproc=2)).load(), "smoke")
    assert read_json(tmp_path / "runs" / run.id / store.LEDGER)["processes"] == 2
    assert store.complete(tmp_path / "runs" / run.id)


def test_a_look_at_a_run_that_another_process_has_starts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *about, **how: pytest.fail("torchrun was started"))
    job, run = Job(Source("demo"), "smoke", tmp_path, tmp_path / "data"), of(2)
    where = store.directory(tmp_path, run)
    with claims.claim(where) as other:
        assert other is not None
        (where / store.ERROR).write_text("of an earlier command\n")
        assert attempt(run, job, ()) == ("busy", "")
        assert (where / store.ERROR).exists()


@pytest.mark.parametrize("saves", [True, False])
def test_only_processes_that_die_with_nothing_saved_in_between_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: bool
) -> None:
    """Here a script takes the place of torchrun: it fails five times, and then leaves the run complete."""
    script = """
import sys
from pathlib import Path
where = Path(sys.argv[1])
count = len(list(where.glob("start-*")))
(where / f"start-{count}").touch()
if sys.argv[2] == "True":
    (where / f"checkpoint-0-{count}-x.safetensors").write_text("x")
if count < 5:
    sys.exit(1)
(where / "done.json").touch()
"""
    run, where = of(2), tmp_path / "run"
    monkeypatch.setattr(torchrun, "_command", lambda run, words: [sys.executable, "-c", script, str(where), str(saves)])
    outcome, why = jobs.attempt(where, lambda mine: torchrun.execute(run, mine, words=("", ""), threads=1))
    assert len(list(where.glob("start-*"))) == (6 if saves else 3)
    assert outcome == ("done" if saves else "failed")
    assert why == ("" if saves else (where / store.ERROR).read_text().strip())
    assert saves or "2 processes was killed, 3 times with nothing saved in between" in why


def test_what_torchrun_has_started_is_not_asked_for_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert member.together(Numerics()).nproc == 1, "the variable alone may be of another launcher"
    assert member.together(Numerics(nproc=3)).nproc == 3, "workers start them where torchrun has not"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert member.together(Numerics("bf16")) == Numerics("bf16", nproc=8)
    with pytest.raises(UserError, match="has started 8 processes, not 2: leave --nproc out"):
        member.together(Numerics(nproc=2))
    toys.write(tmp_path / "toys.py", runs=2)
    job = Job(Source.of(str(tmp_path / "toys.py")), "smoke", tmp_path / "runs", tmp_path / "data")
    with pytest.raises(UserError, match="one run at a time, and this names 2: choose one by --filter"):
        member.take_part(job)
    assert not job.out.exists()


@pytest.mark.parametrize(
    ("name", "gpus", "devices"),
    [
        ("auto", 0, ["cpu", "cpu"]),
        ("auto", 1, ["cpu", "cpu"]),  # else both would take it
        ("auto", 2, ["cuda:0", "cuda:1"]),
        ("auto", 8, ["cuda:0", "cuda:1"]),
        ("cuda", 8, ["cuda:0", "cuda:1"]),
        ("cuda:2", 8, ["cuda:2", "cuda:3"]),
        ("cpu", 8, ["cpu", "cpu"]),
    ],
)
def test_each_process_has_a_gpu_of_its_own_or_all_have_the_cpu(
    monkeypatch: pytest.MonkeyPatch, name: str, gpus: int, devices: list[str]
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert [member.device_of(name, rank) for rank in range(2)] == devices


def test_a_folder_without_hard_links_is_refused_by_what_torchrun_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.write(tmp_path / "toys.py")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(errno.EPERM, "Operation not permitted")))
    with pytest.raises(UserError, match="needs hard links"):
        member.take_part(Job(Source(str(tmp_path / "toys.py")), "smoke", tmp_path / "runs", tmp_path / "data"))
    assert not list((tmp_path / "runs").iterdir())
