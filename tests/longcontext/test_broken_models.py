"""A language model whose logits are no numbers: it is refused, or its answers are marked, and never scored with 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from flat_files import write_model
from toy_reader import SINGLE, asked, knows, run

from levelfield.cli import app
from levelfield.engine.models import Named
from levelfield.engine.questions import plan
from levelfield.longcontext.answers import predictions, score
from levelfield.longcontext.evaluation import Evaluation
from levelfield.pretrained import native_model
from levelfield.report import effective_length, longcontext
from levelfield.spec import UserError

NAN = float("nan")
WORDS = ("--lengths", "700", "--tasks", "niah_single_1")


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, *words: str, code: int = 2
) -> str:
    """What a model without a finite logit is told."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, folder, *WORDS, *words, logit=NAN)
    assert end.value.code == code
    shown = capsys.readouterr()
    return shown.err if code == 2 else shown.out


def test_a_model_without_a_finite_logit_is_refused_at_its_first_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for precision, fix in (("bfloat16", "give --precision float32"), ("float32", "give --precision float64")):
        said = refused(monkeypatch, capsys, tmp_path, "--precision", precision)
        assert f"logits of saying are NaN or infinite after the first question in {precision}: {fix}" in said
        assert said.count("\n") == 1
    assert not list(tmp_path.rglob("predictions.jsonl")) and not list(tmp_path.rglob("summary.md"))
    run(monkeypatch, tmp_path, *WORDS, "--count", "1", "--precision", "bfloat16")  # no precision has been taken
    assert len(predictions(tmp_path / "runs" / "ruler" / "model")) == 1


def test_answers_that_are_there_stay_and_a_table_has_no_score_where_all_logits_were_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "ruler" / "model"
    run(monkeypatch, tmp_path, *WORDS, "--count", "2")
    before = (folder / "predictions.jsonl").read_text()
    said = refused(monkeypatch, capsys, tmp_path, "--lengths", "700,1000", "--count", "4", code=1)
    assert "logits were NaN or infinite in 6 of 8 answers" in said
    assert "give --precision float64 with another --runs-dir" in said
    assert "diverged" in said.split("Wrote")[0], "the table in the terminal has it too"
    assert (folder / "predictions.jsonl").read_text().startswith(before)
    summary = (tmp_path / "report" / "ruler-model" / "summary.md").read_text()
    assert "| niah_single_1 | 50.0 (50.0) § | diverged |" in summary
    assert "§ The model's logits" in summary and "\ndiverged: the model's logits" in summary
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert {row.get("value") for row in rows if row["at"].startswith("length=1000")} == {None}
    again = refused(monkeypatch, capsys, tmp_path, "--rescore", code=1)
    assert "in 6 of 8 answers" in again
    app.main(
        ["report", "ruler", "model", "--runs-dir", str(folder.parents[1]), "--report-dir", str(tmp_path / "again")]
    )
    assert "in 6 of 8 answers" in capsys.readouterr().out


def test_a_length_without_a_finite_logit_ends_the_effective_length(tmp_path: Path) -> None:
    asked(knows, tmp_path, Evaluation((SINGLE,), (700,), count=100))
    asked(knows, tmp_path, Evaluation((SINGLE,), (1000,), count=2), logit=NAN)
    (scores,) = score(tmp_path)
    _, ours = effective_length.lines(scores.rows)
    assert ours.endswith(": 700.")
    shown = longcontext.summary(longcontext.Part("", scores.rows, [], scores.gaps))
    assert "| niah_single_1 | 100.0 (100.0) | diverged |" in shown


def test_copies_of_a_model_without_a_finite_logit_are_refused_before_they_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path / "tiny")
    named = Named(str(tmp_path / "tiny"), tmp_path / "runs", precision="bfloat16")
    job = plan(named, named.text(), [Evaluation((SINGLE,), (600,), count=1)], tmp_path)
    assert job.loaded().name == job.path.name
    step = native_model.NativeModel.step

    def broken(self: native_model.NativeModel, *given: object, **more: object) -> tuple[torch.Tensor, object]:
        logits, state = step(self, *given, **more)  # type: ignore[arg-type]
        return logits * NAN, state

    monkeypatch.setattr(native_model.NativeModel, "step", broken)
    with pytest.raises(UserError, match=r"logits of .*tiny are NaN or infinite after the first question in bfloat16"):
        job.loaded()
