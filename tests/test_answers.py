"""Stored answers: which of them count, when prompts have changed since or several flavours were asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from toy_reader import SINGLE, asked, knows, run

from levelfield import longcontext
from levelfield.longcontext import Exam, predictions, rows
from levelfield.ruler import Needle, Sources, named


def test_answers_to_an_earlier_version_are_marked_until_they_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of three prompts has changed since: that one is read again, and its old answer counts no more."""
    words = ("--lengths", "2600", "--tasks", "vt", "--count", "3")
    run(monkeypatch, tmp_path, *words, says=lambda prompt: "VAR")
    path = tmp_path / "runs" / "ruler" / "model" / longcontext.PREDICTIONS
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.pop("version") for line in lines] == [2, 2, 2]
    lines[1] |= {"key": "of another prompt", "text": " ".join(lines[1]["references"])}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = rows(predictions(path.parent), "m")
    assert {r.get("status") for r in before} == {"outdated"} and dict(before[0])["value"] == pytest.approx(100 / 3)
    run(monkeypatch, tmp_path, *words, "--rescore")
    assert "3 answers of vt are to prompts of an earlier version of it: ask again" in capsys.readouterr().out
    assert "†" in (tmp_path / "report" / "ruler-model" / "summary.md").read_text()
    model = asked(lambda prompt: "VAR", path.parent, Exam((named("vt"),), (2600,), count=3))
    assert model.prompts == 1
    after = rows(predictions(path.parent), "m")
    assert {(r.get("status"), r.get("n"), r.get("value")) for r in after} == {("ok", 3, 0.0)}
    assert asked(knows, path.parent, Exam((named("vt"),), (2600,), count=3)).prompts == 0


def test_other_texts_take_the_place_of_the_first_ones_and_give_it_back(tmp_path: Path) -> None:
    """A cell holds every sample once, whichever essays were asked last."""
    other = tmp_path / "other.txt"
    other.write_text("They walked to the sea. It was a long way back. " * 200)
    here = Exam((Needle(),), (900,), count=3)
    there = replace(here, sources=Sources(essays=str(other)))
    assert asked(knows, tmp_path, here).prompts == asked(knows, tmp_path, there).prompts == 3
    assert {p.slices["essays"] for p in predictions(tmp_path)} == {"other.txt"}
    assert asked(knows, tmp_path, here).prompts == 0
    assert {p.slices["essays"] for p in predictions(tmp_path)} == {"emerson"}
    assert {r.get("n") for r in rows(predictions(tmp_path), "m") if r.get("at") == "length=900"} == {3}


def test_a_prompt_that_two_flavours_share_is_in_the_cells_of_both(tmp_path: Path) -> None:
    """And is read once."""
    exam = Exam((SINGLE,), (700,), count=2)
    asked(knows, tmp_path, exam)
    path = tmp_path / longcontext.PREDICTIONS
    kept = [json.loads(line) | {"flavour": "official"} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert asked(knows, tmp_path, exam).prompts == 0
    assert {k[0]: len(v) for k, v in longcontext.by_setting(predictions(tmp_path)).items()} == {
        "official": 2,
        "sound": 2,
    }
