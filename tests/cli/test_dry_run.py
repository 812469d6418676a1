"""What a `ruler` command comes to, and what it lacks, is said before anything is read or asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from refusals import refused
from toy_reader import run

from levelfield.cli import app, dry_run, ruler_command
from levelfield.cli.dry_run import time_line
from levelfield.cli.ruler_options import EvalOptions, ModelChoice
from levelfield.engine.models import Named, Text
from levelfield.longcontext.bill import Bill
from levelfield.longcontext.served.lengths import Approximate
from levelfield.ruler import Bytes

WORDS = ("--lengths", "700", "--tasks", "niah_single_1")


def test_what_is_missing_is_said_in_the_order_in_which_one_gives_it() -> None:
    whole = dry_run.missing(ModelChoice(), EvalOptions())
    places = [whole.index(word) for word in ("a MODEL", "--tokenizer", "--lengths")]
    assert places == sorted(places) and "1024,2048,4096 unless" in whole
    given = dry_run.missing(ModelChoice(tokenizer="bytes"), EvalOptions(lengths=("4096",)))
    assert "a MODEL" in given and "--" not in given


def test_what_an_export_lacks_is_said_in_the_same_order(capsys: pytest.CaptureFixture[str]) -> None:
    whole = refused(capsys, "export", "ruler")
    places = [whole.index(word) for word in ("needs --tokenizer: the model's folder", "approximate", "--lengths")]
    assert places == sorted(places) and "1024,2048,4096 unless" in whole
    assert "--lengths" not in refused(capsys, "export", "ruler", "--lengths", "4096")


def test_a_dry_run_reads_no_weights_and_times_by_the_last_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, tmp_path, *WORDS, "--count", "2")
    pace = tmp_path / "runs" / "ruler" / "model" / "pace.json"
    noted = json.loads(pace.read_text())
    assert noted["questions"] == 2 and 2 * 500 < noted["tokens"] <= 2 * 700 and noted["seconds"] > 0
    pace.write_text(json.dumps({"questions": 2, "tokens": 1000, "seconds": 10}))
    monkeypatch.setattr(dry_run, "_read", lambda *_: (Bytes(), 0))
    stored = (tmp_path / "runs" / "ruler" / "model" / "predictions.jsonl").read_bytes()
    capsys.readouterr()
    run(monkeypatch, tmp_path, *WORDS, "--count", "102", "--dry-run", says=lambda prompt: pytest.fail("it was asked"))
    shown = capsys.readouterr().out
    assert (
        "102 questions, 2 of them answered before. To read: at most 57,200 tokens; to write: at most 12,800." in shown
    )
    assert "Time: about 11.7 min, at the 100 tokens a second of the last answers here." in shown
    assert (tmp_path / "runs" / "ruler" / "model" / "predictions.jsonl").read_bytes() == stored


def test_a_dry_run_refuses_a_folder_of_other_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, Path(), *WORDS, "--count", "1")
    monkeypatch.setattr(dry_run, "_read", lambda *_: (Bytes(), 0))
    again = ("ruler", "some/model", *WORDS, "--dry-run")
    assert "another precision (float32 there, bfloat16 here)" in refused(capsys, *again, "--precision", "bfloat16")
    Path("some/model").mkdir(parents=True)
    monkeypatch.setattr(Named, "text", lambda self: Text(Bytes(), "of another one"))
    assert "another model (mark there, of another one here)" in refused(capsys, *again)
    monkeypatch.setattr(dry_run, "_read", lambda *_: (Approximate(), 0))
    assert "another tokenizer and model (bytes there, approximate here, mark there" in refused(capsys, *again)


def test_without_answers_the_time_is_that_of_the_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dry_run, "_read", lambda *_: (Bytes(), 1_000_000))
    monkeypatch.setattr(ruler_command, "max_length", lambda *_: None)
    monkeypatch.setattr("levelfield.pretrained.speed.operations", lambda *_: 1e9)
    app.main(["ruler", "some/model", *WORDS, "--count", "100", "--dry-run", "--runs-dir", str(tmp_path / "runs")])
    shown = capsys.readouterr().out
    assert (
        "Time: about 140 s" not in shown and "Time: about 2.33 min, estimated by two operations" in shown
    )  # 70,000 x 2 M
    assert not (tmp_path / "runs").exists()


LEFT = "Left out: qa_1, qa_2 (add --squad, --hotpot)."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), LEFT),
        (("--tasks", "vt,all"), LEFT),
        (("--squad", "dev.json"), "Left out: qa_2 (add --hotpot)."),
        (("--table", "huang2024_table1", "--count", "1", "--lengths", "2000"), LEFT),
        (("--table", "huang2024_needles", "--count", "1", "--lengths", "2000"), ""),
        (("--tasks", "needles"), ""),
    ],
)
def test_questions_without_their_file_are_named(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Here, of a server, and where samples are exported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dry_run, "_read", lambda *_: (Bytes(), 0))
    monkeypatch.setattr(ruler_command, "max_length", lambda *_: None)
    Path("dev.json").write_text("{}")
    for model in (["m"], ["http://127.0.0.1:9/v1", "--model", "m", "--tokenizer", "bytes"]):
        app.main(["ruler", *model, "--dry-run", *words])
        shown = capsys.readouterr().out
        assert said in shown and ("Left out" in shown) == bool(said)
    if not words or "--tasks" in words:
        app.main(["export", "ruler", "--tokenizer", "bytes", "--lengths", "700", "--count", "1", *words])
        shown = capsys.readouterr().out
        assert said in shown and ("Left out: qa" in shown) == bool(said)


def test_a_matrix_product_is_timed() -> None:
    import torch

    from levelfield.pretrained.speed import operations

    assert 1e8 < operations(torch.device("cpu"), "float32") < 1e15


def test_nothing_left_takes_no_time() -> None:
    assert time_line(Bill(4, 4, 0, 0), 10.0) == "Time: none, since all of it is answered."
