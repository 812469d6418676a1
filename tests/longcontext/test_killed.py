"""Answers of a command that was killed: what scores and reports say until it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_reader import SINGLE, Saying, knows, run

from levelfield.cli import ruler_command
from levelfield.longcontext import answers
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import ENDED_BEFORE, LeftOut, Prediction
from levelfield.longcontext.runner import evaluate
from levelfield.ruler import Bytes


def statuses(folder: Path) -> dict[str, tuple[int, str]]:
    """Returns the number of answers and the status of each length and depth."""
    accuracies = [row for row in answers.score(folder)[0].rows if row.get("metric") == "accuracy"]
    return {row.get("at", ""): (row.get("n", 0), row.get("status", "")) for row in accuracies}


def test_scores_after_a_kill_say_that_answers_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A length that was not begun has no row; one that was complete stays so."""
    evaluation = Evaluation((SINGLE,), (700, 1000, 1400), count=4, depths=(0.0, 1.0))
    folder = tmp_path / "runs" / "ruler" / "model"
    folder.mkdir(parents=True)
    seen: list[Prediction] = []

    def killed(found: Prediction, new: bool) -> None:
        seen.append(found)
        if len(seen) == 11:
            raise KeyboardInterrupt  # which nothing between here and the end of the process catches

    with pytest.raises(KeyboardInterrupt):
        evaluate(Saying(knows), Bytes(), [evaluation], folder, killed)
    found = statuses(folder)
    assert found["length=700"] == (8, "ok") and found["length=1000"] == (3, "partial")
    assert {status for at, (_, status) in found.items() if at.startswith("length=1000")} == {"partial"}
    assert not any(at.startswith("length=1400") for at in found)
    run(monkeypatch, tmp_path, "--rescore")
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Left out")]
    assert sum(int(line.split(": ")[1].split()[0]) for line in told) == 5
    assert all("The command ended before they were answered: run the same command again" in line for line in told)
    assert "100.0 (100.0) *" in (tmp_path / "report" / "ruler-model" / "summary.md").read_text()
    evaluate(Saying(knows), Bytes(), [evaluation], folder)
    assert {status for _, status in statuses(folder).values()} == {"ok"} and answers.left_out(folder) == []


def test_samples_that_do_not_fit_and_those_that_are_not_answered_yet_are_told_apart() -> None:
    def left(index: int, why: str) -> LeftOut:
        return LeftOut("vt", 700, index, "sound", "base", 42, why)

    told = [left(0, "It does not fit."), left(1, ENDED_BEFORE), left(2, "It does not fit.")]
    assert list(ruler_command.skipped(told)) == [
        "Left out of vt at 700: 2 samples. It does not fit.",
        f"Left out of vt at 700: 1 sample. {ENDED_BEFORE}",
    ]
