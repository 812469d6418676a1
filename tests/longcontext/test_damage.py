"""A damaged file in a folder of answers: what can be made anew is, and otherwise the line to take out is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy_reader import SINGLE, asked, knows

from levelfield.cli import ruler_report_command
from levelfield.longcontext import answers, damage, model_record, pace
from levelfield.longcontext.answers import predictions, score
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import LeftOut
from levelfield.longcontext.served.asking import note_ways
from levelfield.spec import UserError

EVALUATION = Evaluation((SINGLE,), (700,), count=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "runs" / "ruler" / "toy"
    found.parent.mkdir(parents=True)
    asked(knows, found, EVALUATION)
    return found


def test_a_whole_folder_and_an_empty_one_are_not_damaged(folder: Path, tmp_path: Path) -> None:
    damage.check(folder)
    damage.check(tmp_path / "none")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"x": 1}', r"without 'depths'"),
        ("[]", "no object"),
        ('{"text": 5}', "its 'text' is no text"),
        ('{"key": "0', "no JSON: Unterminated string"),
        ("\udcff", "no UTF-8 text"),
        ("\x00" * 10, "no JSON: Expecting value"),
    ],
)
def test_one_bad_line_costs_one_answer(folder: Path, tmp_path: Path, line: str, why: str) -> None:
    path = folder / "predictions.jsonl"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *others]) + "\n", errors="surrogateescape")
    said = rf"^Line 2 of .*predictions\.jsonl is damaged \({why}.*\): take out that line and run again; all other"
    with pytest.raises(UserError, match=said):
        damage.check(folder)
    with pytest.raises(UserError, match="Line 2 of"):
        ruler_report_command.report(["toy"], tmp_path / "runs", tmp_path / "report", print)
    path.write_text("\n".join([first, *others]) + "\n")
    assert len(predictions(folder)) == 4


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"depths": ["a"]}, "its 'depths' is no list of numbers from 0 to 1"),
        ({"depths": "0"}, "its 'depths' is no list"),
        ({"depths": [True]}, "its 'depths' is no list"),
        ({"references": [5]}, "its 'references' is no list of texts"),
        ({"references": []}, "with other fields"),
        ({"settings": {"kind": "Needle", "depth": "x"}}, "with other fields"),
        ({"settings": {"kind": "Needle", "keys": None}}, "with other fields"),
        ({"settings": {"kind": ["Needle"]}}, "with other fields"),
        ({"text": "\ud800"}, "with half a character"),
        ({"task": "niah_single_1@deep"}, "with other fields"),
        ({"counted": {"prompt": "x"}}, "its 'counted' is no object of counts"),
        ({"counted": 5}, "its 'counted' is no object of counts"),
        ({"slices": {"essays": ["a"]}}, "its 'slices' is no object of columns"),
        ({"index": "a"}, "its 'index' is no whole number from 0"),
        ({"seed": 1.5}, "its 'seed' is no whole number"),
        ({"length": -5}, "its 'length' is no whole number from 1"),
        ({"length": True}, "its 'length' is no whole number"),
        ({"tokens": 10**400}, "its 'tokens' is no whole number"),
        ({"tokens": float("nan")}, "with other fields|NaN"),
        ({"question": 5}, "its 'question' is no text"),
    ],
)
def test_a_value_that_no_report_can_read_is_named(folder: Path, change: dict[str, Any], why: str) -> None:
    path = folder / "predictions.jsonl"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([first, json.dumps(json.loads(first) | change), *others]) + "\n")
    with pytest.raises(UserError, match=rf"^Line 2 of .*predictions\.jsonl is damaged \(({why})"):
        damage.check(folder)


@pytest.mark.parametrize("change", [{"value": "x"}, {"value": float("inf")}, {"n": "x"}, {"stderr": []}])
def test_a_baseline_that_no_report_can_read_is_named(folder: Path, change: dict[str, Any]) -> None:
    path = folder / "baselines.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text().splitlines()[0]) | change) + "\n")
    with pytest.raises(UserError, match=r"^Line 1 of .*baselines\.jsonl is damaged"):
        damage.check(folder)


def test_what_a_later_version_adds_is_no_damage(folder: Path) -> None:
    """All answers are paid for, and a field that is not known here takes nothing from those that are."""
    path = folder / "predictions.jsonl"
    before = score(folder)
    absurd = {"made": 10**400, "counted": {"prompt": 10**30, "thought": 10**400}}  # as earlier versions took them
    lines = [json.loads(line) | {"later": [1, None]} | absurd for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    left = {"task": "vt", "length": 700, "index": 0, "flavour": "sound", "template": "base", "seed": 42, "why": "no"}
    (folder / "left_out.jsonl").write_text(json.dumps(left | {"later": 1}) + "\n")
    damage.check(folder)
    assert answers.left_out(folder) == [LeftOut(**left)]
    (folder / "left_out.jsonl").unlink()
    assert score(folder) == before and len(before[0].rows) > 0
    lines[1]["settings"]["later"] = 1
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    damage.check(folder)
    with pytest.raises(UserError, match="'later', which RULER here does not have: use the version of levelfield"):
        score(folder)


def test_the_first_of_many_bad_lines_are_named(folder: Path) -> None:
    with (folder / "predictions.jsonl").open("a") as file:
        file.write("{}\n" * 7 + '{"key": "cut off')
    with pytest.raises(UserError, match=r"^Lines 5, 6, 7, 8, 9 and 2 more of .* are damaged"):
        damage.check(folder)


@pytest.mark.parametrize("name", ["left_out.jsonl", "baselines.jsonl"])
def test_notes_beside_the_answers_are_checked_too(folder: Path, name: str) -> None:
    (folder / name).write_text('{"x": 1}\n')
    with pytest.raises(UserError, match=rf"^Line 1 of .*{name} is damaged"):
        damage.check(folder)


UNREADABLE = ["[]", '"x"', "{", "", '{"tokens": 5}', '{"tokens": [], "seconds": 1}', "\x00"]
NO_PACES = [
    f'{{"tokens": 1{"0" * 400}, "seconds": 1}}',
    '{"tokens": NaN, "seconds": 1}',
    '{"tokens": -5, "seconds": 1}',
]


@pytest.mark.parametrize("text", [*UNREADABLE, *NO_PACES])
def test_a_pace_that_cannot_be_read_is_not_known(folder: Path, text: str) -> None:
    (folder / "pace.json").write_text(text)
    assert pace.known(folder) is None


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_damaged_record_of_how_was_asked_is_refused_and_can_be_removed_alone(folder: Path, text: str) -> None:
    """Without it, rows would give lengths by an approximation as exact ones."""
    model_record.claim(folder, model="toy", tokenizer="approximate", precision="served")
    note_ways(folder, {"base": "text; lengths are approximate"})
    (folder / "asked.json").write_text(text)
    said = r"asked\.json is damaged .* remove this file alone and run the same command without --rescore"
    for refused in (damage.check, score, lambda there: note_ways(there, {"base": "text"})):
        with pytest.raises(UserError, match=said):
            refused(folder)
    (folder / "asked.json").unlink()
    damage.check(folder)
    inexact = "; lengths are approximate"
    assert {row.get("asked") for row in score(folder)[0].rows} == {f"a way that is not recorded{inexact}"}
    note_ways(folder, {"base": f"text{inexact}"})
    assert {row.get("asked") for row in score(folder)[0].rows} == {f"text{inexact}"}


@pytest.mark.parametrize("text", ["[]", "{"])
def test_a_damaged_record_of_the_model_can_be_removed_alone(folder: Path, text: str) -> None:
    path, facts = folder / "model.json", {"model": "toy", "tokenizer": "bytes", "precision": "float32"}
    path.write_text(text)
    with pytest.raises(UserError, match=r"model\.json is damaged .* remove this file alone and run again"):
        model_record.claim(folder, **facts)
    path.unlink()
    model_record.claim(folder, **facts)
    assert model_record.precision_of(folder) == "float32"
