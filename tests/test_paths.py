"""Paths from Python: whatever is public takes them as text and as any `os.PathLike`, to the same end."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, is_dataclass
from pathlib import Path

import pytest

import levelfield
from levelfield.api import Places
from levelfield.engine.find import find_run

PATHS = {"path", "tokenizer", "folder", "runs_dir", "data", "report_dir", "out", "to"}


@dataclass(frozen=True)
class Somewhere:
    """A path that is no `Path`."""

    place: str

    def __fspath__(self) -> str:
        return self.place


def test_what_is_public_says_that_it_takes_any_path() -> None:
    hints = {
        (name, parameter): str(each.annotation)
        for name in levelfield.__all__
        if inspect.isfunction(public := getattr(levelfield, name)) or is_dataclass(public)
        for parameter, each in inspect.signature(public).parameters.items()
    }
    found = {place: hint for place, hint in hints.items() if place[1] in PATHS or place == ("audit", "source")}
    assert {("load", "folder"), ("OwnData", "path"), ("OwnData", "tokenizer")} <= set(found)
    found |= {("Places", name): str(hint) for name, hint in Places.__annotations__.items() if name in PATHS}
    assert [place for place, hint in found.items() if "str" not in hint or "PathLike" not in hint] == []


def test_any_path_is_as_good_as_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.csv").write_text("\n".join(["body,stars", *(f"words {n},{n % 2}" for n in range(40))]))
    own = levelfield.OwnData("own.csv", text="body", label="stars")
    for path in (Path("own.csv"), Somewhere("own.csv")):
        assert repr(levelfield.OwnData(path, text="body", label="stars")) == repr(own)
    read = levelfield.OwnData("own.csv", text="body", tokenizer=Path("folder"))
    assert read == levelfield.OwnData("own.csv", text="body", tokenizer="folder")
    audit = levelfield.audit(
        own,
        "smoke",
        without_models=True,
        runs_dir=Somewhere("runs"),
        data=Somewhere("arrays"),
        report_dir=Somewhere("pages"),
    )
    assert audit.page.is_relative_to(tmp_path / "pages") and Path("arrays").is_dir()
    with pytest.raises(levelfield.UserError, match=r"own\.csv"):
        levelfield.audit(Somewhere("own.csv"))
    with pytest.raises(levelfield.UserError, match="nowhere is no folder of a run"):
        levelfield.load(Somewhere("nowhere"))
    with pytest.raises(levelfield.UserError, match="nowhere"):
        find_run("recall-mine-scratch-0-1", Somewhere("nowhere"))
