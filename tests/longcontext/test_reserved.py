"""A model that is refused leaves no folder, and one that has answered keeps all of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from flat_files import write_model
from toy_reader import knows, run

from levelfield.cli import app
from levelfield.files import locked
from levelfield.longcontext.reserved import reserved
from levelfield.pretrained import memory
from levelfield.spec import UserError

WORDS = ("--lengths", "700", "--tasks", "niah_single_1", "--count", "1")


def left(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "tiny" not in path.parts}


def refused(name: str, *words: str) -> None:
    with pytest.raises(SystemExit) as end:
        app.main(["ruler", name, "--device", "cpu", *WORDS, *words])
    assert end.value.code == 2


def test_a_model_that_is_refused_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong path, a model that is too large, one without a tokenizer, one with damaged weights; copies, too."""
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "tiny")
    refused("no/where")
    with monkeypatch.context() as small:
        small.setattr(memory, "total", lambda *_: 1000)
        refused("tiny")
    (tmp_path / "tiny" / "tok269.bin").unlink()
    refused("tiny")
    refused("tiny", "--copies", "2")
    (tmp_path / "tiny" / "tiny.bin").write_bytes(b"1234")
    refused("tiny", "--tokenizer", "bytes")
    assert left(tmp_path) == set()
    Path("runs").mkdir()
    refused("tiny", "--tokenizer", "bytes")
    assert left(tmp_path) == {"runs"}, "which was there before"


def test_a_refusal_removes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, tmp_path, *WORDS, says=knows)
    there = left(tmp_path)
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path, *WORDS, "--lengths", "30000")
    assert left(tmp_path) == there


def test_whoever_waits_for_a_folder_that_is_removed_gets_a_new_one(tmp_path: Path) -> None:
    """Two processes that ask the same model: the first is refused while the second waits for it."""
    folder, report, waiting, inside = tmp_path / "runs" / "m", tmp_path / "report", threading.Event(), []

    def second() -> None:
        with reserved(folder, report, lambda said: waiting.set()):
            inside.append((folder / ".lock").exists())
            with pytest.raises(TimeoutError), locked(folder / ".lock", busy=_give_up):
                pass

    thread = threading.Thread(target=second)
    with pytest.raises(UserError), reserved(folder, report, pytest.fail):
        thread.start()
        assert waiting.wait(60)
        raise UserError("no such model")
    thread.join(60)
    assert inside == [True] and (folder / ".lock").exists()


def _give_up() -> None:
    raise TimeoutError
