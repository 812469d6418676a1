"""The state of a study as any machine sees it in the folder of runs."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import toys

from levelfield.cli.app import main
from levelfield.engine import jobs
from levelfield.engine.find import Source, choose
from levelfield.engine.status import RunStatus, run_status, study_status
from levelfield.engine.training import Job, attempt
from levelfield.runs import store
from levelfield.runs.claims import Folder, claim
from levelfield.runs.results import StudyIndex
from levelfield.spec import Numerics


def finish(where: Path, **more: str) -> None:
    """Writes what a run leaves that is done. more: columns of its row."""
    row = {"run": where.name, "task": "toy", "model": "trap", "protocol": "scratch", "seed": 0, "split": "test"}
    row |= {"metric": "accuracy", "unit": "fraction", "value": 0.5, "n": 16, **more}
    phase = {"steps": 3, "examples": 24, "tokens": 144, "flops": 1e6, "wall_s": 1.0, "stopped": ""}
    (where / store.ROWS).write_text(json.dumps(row) + "\n")
    (where / store.LEDGER).write_text(json.dumps({**phase, "parameters": 10, "device": "cpu", "phases": [phase]}))
    (where / store.DONE).write_text("{}")


@pytest.fixture
def where(tmp_path: Path) -> list[Path]:
    """The folders of five runs: done, running, of a machine that fell silent, failed, and not begun."""
    toys.write(tmp_path / "toys.py", runs=5)
    runs = choose(Source(str(tmp_path / "toys.py")).load(), "smoke")
    store.write_index(tmp_path / "runs", StudyIndex.of("toys", "smoke", runs))
    folders = [store.directory(tmp_path / "runs", run) for run in runs]
    for folder in folders[:4]:
        folder.mkdir()
    finish(folders[0])
    (folders[3] / store.ERROR).write_text("ValueError: no such luck\nand more\n")
    return folders


def test_every_run_is_in_one_state_and_its_owner_is_named(
    where: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVELFIELD_JOB", "slurm 42_1")
    with claim(where[1]) as mine, claim(where[2]) as lost:
        assert mine is not None and lost is not None
        elsewhere = replace(lost.owner, host="node9", machine="another boot", since=0.0)
        entry = where[2] / ".lease" / "1"
        entry.write_text(replace(Folder(where[2]).read(1), owner=elsewhere).to_json())
        hour_ago = time.time() - 3600
        os.utime(entry, (hour_ago, hour_ago))
        found = study_status(tmp_path / "runs", "toys", "smoke")
        words = ["status", str(tmp_path / "toys.py"), "--effort", "smoke", "--runs-dir", str(tmp_path / "runs")]
        main(words)
        shown = capsys.readouterr().out
        main([*words, "--json"])
        facts = json.loads(capsys.readouterr().out)
    assert [found.runs[folder.name].state for folder in where] == ["done", "running", "silent", "failed", "waiting"]
    running, silent = found.runs[where[1].name], found.runs[where[2].name]
    assert (running.pid, running.job, running.claims) == (os.getpid(), "slurm 42_1", 1)
    assert running.heartbeat_s < 60
    assert silent.host == "node9" and 3590 < silent.heartbeat_s < 3700
    assert shown.splitlines()[0] == "toys at effort smoke, 5 runs: 1 done, 1 running, 1 silent, 1 failed, 1 waiting"
    assert "ValueError: no such luck" in shown and "and more" not in shown
    assert facts["counts"] == {"done": 1, "running": 1, "silent": 1, "failed": 1, "waiting": 1}
    assert facts["runs"][where[4].name] == {"state": "waiting"}


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_failures_are_in_the_exit_code_only_where_that_is_asked_for(
    where: list[Path], tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["status", str(tmp_path / "toys.py"), "--effort", "smoke", "--runs-dir", str(tmp_path / "runs"), *more]
    main(words)
    shown = capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main([*words, "--exit-code"])
    assert stop.value.code == 1 and capsys.readouterr().out == shown
    (where[3] / store.ERROR).unlink()
    main([*words, "--exit-code"])
    store.write_index(
        tmp_path / "runs" / store.TRIALS, store.read_index(store.index_file(tmp_path / "runs", "toys", "smoke"))
    )
    (tmp_path / "runs" / store.TRIALS / where[1].name).mkdir()
    (tmp_path / "runs" / store.TRIALS / where[1].name / store.ERROR).write_text("ValueError: no such luck\n")
    with pytest.raises(SystemExit):
        main([*words, "--exit-code"])


@pytest.mark.parametrize("name", [store.LEDGER, store.ROWS, store.DONE])
def test_a_run_that_is_done_and_cannot_be_read_has_failed(where: list[Path], name: str, tmp_path: Path) -> None:
    (where[0] / name).write_text("{")
    found = study_status(tmp_path / "runs", "toys", "smoke").runs[where[0].name]
    assert found.state == "failed" and f"{name} is damaged" in found.why
    assert f"remove {where[0]} and run again" in found.why


def test_a_folder_that_may_not_be_looked_into_is_a_failure_of_its_run_alone(
    where: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.exists

    def refuse(self: Path, **options: bool) -> bool:
        if self.parent == where[4]:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self, **options)

    monkeypatch.setattr(Path, "exists", refuse)
    found = study_status(tmp_path / "runs", "toys", "smoke").runs
    assert [found[folder.name].state for folder in where] == ["done", "waiting", "waiting", "failed", "failed"]
    assert found[where[4].name].why.startswith(f"{where[4]} may not be read (Permission denied): ")


def test_a_run_that_was_given_back_waits_and_counts_its_claims(where: list[Path]) -> None:
    for count in (1, 2):
        with claim(where[4]):
            pass
        now = run_status(where[4], time.time(), 1)
        assert (now.state, now.claims) == ("waiting", count)


def test_a_run_that_was_given_back_as_failed_says_why_and_counts_its_claims(where: list[Path]) -> None:
    with claim(where[4]) as mine:
        assert mine is not None
        mine.fail("no such luck\n")
    assert run_status(where[4], time.time(), 1) == RunStatus("failed", claims=1, why="no such luck")


def test_trials_and_runs_are_one_json_object_and_what_diverged_is_counted(
    where: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    runs = choose(Source(str(tmp_path / "toys.py")).load(), "smoke")
    finish(where[0], status="diverged")
    store.write_index(out / store.TRIALS, StudyIndex.of("toys", "smoke", runs[:2]))
    words = ["status", str(tmp_path / "toys.py"), "--effort", "smoke", "--runs-dir", str(out)]
    main([*words, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert (len(facts["runs"]), facts["diverged"], facts["runs"][where[0].name]["diverged"]) == (5, 1, True)
    assert facts["trials"]["counts"]["waiting"] == 2
    main(words)
    shown = capsys.readouterr().out
    assert "2 trials: 0 done" in shown and "3 waiting; 1 of those done diverged" in shown
    store.index_file(out, "toys", "smoke").unlink()
    main([*words, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["runs"] == {} and len(facts["trials"]["runs"]) == 2


def test_a_study_that_was_not_started_names_the_command(
    where: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["status", str(tmp_path / "toys.py"), "--effort", "hours", "--runs-dir", str(tmp_path / "runs")])
    assert stop.value.code == 2
    assert "start with `levelfield run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--shard"], "here is one: raise nproc, or leave shard out."),
        (["--accumulate", "7"], "has no 7 equal parts: let accumulate divide it."),
    ],
)
@pytest.mark.parametrize("command", ["status", "report"])
def test_no_command_is_named_that_would_be_refused(
    where: list[Path], tmp_path: Path, command: str, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, str(tmp_path / "toys.py"), "--effort", "smoke", "--runs-dir", str(tmp_path / "runs"), *flags])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and said in error and "levelfield run" not in error


def test_a_folder_in_place_of_a_reason_or_a_claim_is_a_failure_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a" / store.ERROR).mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".lease").touch()
    for name, word in (("a", "remove it, then run"), ("b", "Cannot write to")):
        outcome, why = jobs.attempt(tmp_path / name, lambda _: None)
        assert outcome == "failed" and word in why and str(tmp_path / name) in why
    assert run_status(tmp_path / "b", time.time(), 1).state == "waiting"
    toys.write(tmp_path / "toys.py", runs=1)
    job = Job(Source(str(tmp_path / "toys.py")), "smoke", tmp_path, tmp_path / "data")
    together = [replace(run, numerics=Numerics(nproc=2)) for run in choose(job.source.load(), "smoke")]
    (tmp_path / together[0].id / store.ERROR).mkdir(parents=True)
    outcome, why = attempt(together[0], job, ())
    assert outcome == "failed" and "remove it, then run" in why, "before any process is started"
