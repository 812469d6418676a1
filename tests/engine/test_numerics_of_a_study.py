"""The numerics that a command asks for, on their way from flags to runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import refusals
import toys

from levelfield.cli.train_commands import command
from levelfield.engine.find import Source
from levelfield.engine.training import Job
from levelfield.files import check_name
from levelfield.spec import Numerics

BF16 = Numerics("bf16", accumulate=2)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    toys.write(tmp_path / "toys.py", runs=2)
    return tmp_path


def test_every_run_of_the_study_is_computed_so_under_another_name(here: Path) -> None:
    plain, asked = Source.of("toys.py").load(), Source.of("toys.py", numerics=BF16).load()
    assert (plain.name, asked.name) == ("toys", "toys-bf16-accumulate2")
    assert {run.numerics for run in asked.runs("smoke")} == {BF16}
    assert not {run.id for run in plain.runs("smoke")} & {run.id for run in asked.runs("smoke")}


def test_a_worker_is_told_and_the_report_is_asked_for_in_the_same_words(here: Path) -> None:
    source = Source.of("toys.py", trials=3, numerics=Numerics("bf16", compile=True))
    job = Job(source, "smoke", Path("runs"), Path("data"))
    assert Job.from_json(job.to_json()) == job
    words = "levelfield report toys.py --effort smoke --trials 3 --precision bf16 --compile"
    assert command("report", source, job.effort, job.out) == words
    assert str(source) == "toys.py --trials 3 --precision bf16 --compile"


def test_a_name_with_all_that_is_asked_for_can_name_a_folder() -> None:
    """A long one ends in a hash: others are told from it, and it is the same each time."""
    alone = {"compile": True, "accumulate": 16, "recompute": True, "by_length": True}
    asked = [Numerics("bf16", **alone, nproc=nproc) for nproc in (2, 4, 4)]
    names = [Source("miralles2025_enriched", numerics=each, trials=6).load().name for each in asked]
    for name in names:
        check_name("study", name)
        assert name.startswith("miralles2025_enriched-tuned-bf16-compile-")
    assert len(set(names)) == 2 and names[1] == names[2]


@pytest.mark.parametrize("form", [[], ["--json"]], ids=str)
def test_a_plan_refuses_numerics_that_its_runs_cannot_have_in_every_form(
    here: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    shown = refusals.refused(capsys, "plan", "toys.py", "--effort", "smoke", "--accumulate", "7", *form)
    assert "no 7 equal parts: let accumulate divide it" in shown
