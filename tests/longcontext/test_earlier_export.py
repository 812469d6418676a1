"""A folder of exported samples holds those of the last export, and whatever is not of an export stays in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_reader import SINGLE

from levelfield.cli import app
from levelfield.longcontext import earlier_export
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.exported import Format, export
from levelfield.ruler import Bytes, Needle

BEFORE = Evaluation((SINGLE, Needle(values=4)), (1500, 2000), count=2)
NOW = Evaluation((SINGLE,), (2000,), count=1)
FORMS: tuple[Format, ...] = ("jsonl", "lm-eval", "lighteval", "inspect")


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("before", FORMS)
@pytest.mark.parametrize("now", FORMS)
def test_only_the_last_export_stays(tmp_path: Path, before: Format, now: Format) -> None:
    export(BEFORE, Bytes(), before, tmp_path)
    written, _ = export(NOW, Bytes(), now, tmp_path)
    old = files(tmp_path) - set(written)
    assert old and set(earlier_export.clear(tmp_path, written)) == old
    assert files(tmp_path) == set(written)
    assert all(any(path.iterdir()) for path in tmp_path.iterdir() if path.is_dir()), "and no empty folder"
    assert earlier_export.clear(tmp_path, written) == []


def test_what_is_not_of_an_export_stays(tmp_path: Path) -> None:
    (lines, *_), _ = export(BEFORE, Bytes(), "jsonl", tmp_path)
    answered = [{**json.loads(line), "pred": "7"} for line in lines.read_text().splitlines()]
    lines.write_text("".join(json.dumps(record) + "\n" for record in answered))
    (tmp_path / "renamed-1500.jsonl").write_text((tmp_path / "niah_single_1-2000.jsonl").read_text())
    (tmp_path / "mine-4096.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "empty-1.jsonl").write_text("")
    (tmp_path / "levelfield_mine.yaml").write_text("task: mine\n")
    (tmp_path / "levelfield_ruler.py").write_text("print()\n")
    (tmp_path / "folder-1" / "test.jsonl").mkdir(parents=True)
    mine = {lines, *(tmp_path / name for name in ("renamed-1500.jsonl", "mine-4096.jsonl", "empty-1.jsonl"))}
    mine |= {tmp_path / "levelfield_mine.yaml", tmp_path / "levelfield_ruler.py"}
    assert len(earlier_export.clear(tmp_path, [])) == 3
    assert files(tmp_path) == mine


def test_the_command_says_what_it_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ("--tokenizer", "bytes", "--tasks", "niah_single_1", "--count", "1", "--format", "jsonl")
    app.main(["export", "ruler", *few, "--lengths", "700,800"])
    assert "Removed" not in capsys.readouterr().out
    app.main(["export", "ruler", *few, "--lengths", "800"])
    said = "Removed 1 file of an earlier export from it, which this one does not have (niah_single_1-700.jsonl)."
    assert said in " ".join(capsys.readouterr().out.split())
    assert [path.name for path in Path("tasks").iterdir()] == ["niah_single_1-800.jsonl"]
