"""Answers to one official file are never taken for answers to another, in rows, in bills and in pairs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import official_files
import pytest
from toy_reader import asked
from toy_ruler import squad_file

from levelfield.longcontext.answers import predictions
from levelfield.longcontext.bill import Bill
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.pairing import pairings
from levelfield.longcontext.predictions import PREDICTIONS
from levelfield.longcontext.rows import rows
from levelfield.ruler import OFFICIAL, Bytes, CommonWords, Questions, Sources, named
from levelfield.ruler.fingerprints import fingerprint
from levelfield.spec import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*only a part of the official file")


def ignorant(prompt: str) -> str:
    return " no"


def chats(path: Path, shown: int) -> Evaluation:
    """The questions of LongMemEval's file with so many of the chats of each."""
    records = official_files.longmemeval_records()
    for record in records:
        for column in ("haystack_session_ids", "haystack_dates", "haystack_sessions"):
            record[column] = record[column][:shown]
    path.write_text(json.dumps(records))
    return Evaluation((named("longmemeval"),), (8192,), 3, sources=Sources(longmemeval=str(path)))


def towns(folder: Path, article: int) -> Evaluation:
    """A copy of SQuAD's file without one article."""
    folder.mkdir()
    path = Path(squad_file(folder))
    content = json.loads(path.read_text())
    del content["data"][article]
    path.write_text(json.dumps(content))
    return Evaluation((Questions(),), (2500,), 3, sources=Sources(squad=str(path)))


def counts(folder: Path) -> set[int | None]:
    return {row.get("n") for row in rows(predictions(folder), "m") if "," not in row.get("at", "")}


def test_answers_on_two_files_are_not_averaged_and_come_back(tmp_path: Path) -> None:
    for name, make in (("chats", chats), ("towns", towns)):
        folder, files = tmp_path / name, [tmp_path / f"{name}{i}" for i in range(2)]
        first, second = (make(file, i + 1) for i, file in enumerate(files))
        assert asked(ignorant, folder, first).prompts == 3 and counts(folder) == {3}
        bills = [Bill.of(Bytes(), [replace(each, count=1)], folder).answered for each in (first, second)]
        assert bills == [1, 0], "what will be asked is not answered before"
        assert asked(ignorant, folder, replace(second, count=1)).prompts == 1 and counts(folder) == {1}
        assert Bill.of(Bytes(), [first], folder).answered == 3, "they are stored, though they do not count now"
        assert asked(ignorant, folder, first).prompts == 0 and counts(folder) == {3}


def test_answers_that_do_not_say_their_file_are_read_and_say_it_once_they_are_asked_again(tmp_path: Path) -> None:
    evaluation = chats(tmp_path / "s.json", 2)
    asked(ignorant, tmp_path / "a", evaluation)
    path = tmp_path / "a" / PREDICTIONS
    old = [json.loads(line) for line in path.read_text().splitlines()]
    for line in old:
        assert line["slices"].pop("file")
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    assert counts(tmp_path / "a") == {3}
    assert Bill.of(Bytes(), [evaluation], tmp_path / "a").answered == 0, "nobody knows which file they are of"
    assert asked(ignorant, tmp_path / "a", evaluation).prompts == 0
    assert Bill.of(Bytes(), [evaluation], tmp_path / "a").answered == 3
    assert len({p.texts for p in predictions(tmp_path / "a")}) == 1 and counts(tmp_path / "a") == {3}


def test_questions_of_two_files_are_no_pair(tmp_path: Path) -> None:
    asked(ignorant, tmp_path / "whole", chats(tmp_path / "s.json", 2))
    asked(ignorant, tmp_path / "oracle", chats(tmp_path / "oracle.json", 1))
    (tmp_path / "copies").mkdir()
    asked(ignorant, tmp_path / "again", chats(tmp_path / "copies" / "s.json", 2))
    assert pairings(tmp_path / "whole", tmp_path / "oracle") == []
    (found,) = pairings(tmp_path / "whole", tmp_path / "again")
    assert len(found.pairs) == 3, "the same file under another name"


def test_a_fingerprint_is_of_what_is_in_the_files_of_a_task(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("a.txt", "b.txt"))
    first.write_text("one\ntwo\n")
    second.write_text("one\ntwo\n")
    marks = [fingerprint(CommonWords(), Sources(words=str(path)), 4096) for path in (first, second)]
    assert marks[0] == marks[1] != fingerprint(CommonWords(), Sources(), 4096) == ""
    helmet = Sources(helmet=str(official_files.helmet(tmp_path / "HELMET")))
    assert all(fingerprint(task, helmet, 8192) for task in OFFICIAL if task.option == "helmet")
    assert fingerprint(named("helmet_json_kv"), helmet, 8192) != fingerprint(named("helmet_nq"), helmet, 8192)
    with pytest.raises(UserError, match="cannot be read"):
        fingerprint(Questions(), Sources(squad=str(tmp_path / "none.json")), 4096)
    (tmp_path / "bad.xz").write_bytes(b"no")
    with pytest.raises(UserError, match="is damaged"):
        fingerprint(Questions(), Sources(squad=str(tmp_path / "bad.xz")), 4096)
