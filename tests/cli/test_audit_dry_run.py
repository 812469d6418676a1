"""`levelfield audit --dry-run`: it says what the audit then does, refuses what that refuses, and writes nothing."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from refusals import refused

from levelfield import OwnData
from levelfield.cli.app import main
from levelfield.data.audit import shallow
from levelfield.files import read_rows
from levelfield.presets import audit
from levelfield.report.audit.reading import Reading
from levelfield.tasks.listops import ListOps

WORDS = ("audit", "reviews.csv", "--text", "body", "--label", "stars", "--effort", "smoke")
BROKEN = """
from dataclasses import dataclass
from levelfield import Label, Task, Tokens


@dataclass(frozen=True)
class Broken(Task):
    name = "broken"
    version = 1
    source = "made up"
    split_rule = "none"
    input = Tokens(4)
    output = Label(2)
    max_length = 8
    chance = 0.5

    def build(self, sources, progress=None):
        raise ValueError("the generator has no seed")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of 1,500 rows of reviews, 1,200 of which are for training, and a task that fails."""
    monkeypatch.chdir(tmp_path)
    rows = [(f"number {i}: {('fine', 'poor')[i % 2]}", i % 2, "test" if i % 5 == 0 else "train") for i in range(1_500)]
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("body", "stars", "part"), *rows])
    (tmp_path / "broken.py").write_text(BROKEN)
    return tmp_path


def test_it_says_what_the_audit_then_reads_scores_and_trains_and_makes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.rglob("*"))
    main([*WORDS, "--split", "part", "--dry-run"])
    said = capsys.readouterr().out
    assert "own_reviews, 1,500 examples (1,080 of train, 120 of val, 300 of test), at most 17 steps; " in said
    assert "rules and models take 800 of train, 120 of val, 300 of test\n" in said
    assert f"{len(shallow.PROBES)} ({', '.join(shallow.PROBES)})\n" in said, "no folds, as the file says what is test"
    runs = audit.study(OwnData("reviews.csv", text="body", label="stars", split="part")).runs("smoke")
    assert f"{len(runs)} runs, 0 done" in said and re.search(rf"All {len(runs)} runs: [0-9.]+ [MGT]FLOP; .* on ", said)
    assert all(run.model.label in said for run in runs) and "No order is seen by" not in said
    assert sorted(here.rglob("*")) == before
    main([*WORDS, "--split", "part", "--without-models"])
    (at,) = (here / "runs" / "audits").glob("own_reviews-*")
    assert Reading.of(read_rows(at / "rows.jsonl")).fact("trained_on", "train") == 800
    (at / "rule-length.json").unlink()
    capsys.readouterr()
    after = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    main([*WORDS, "--split", "part", "--dry-run", "--without-models"])
    said = capsys.readouterr().out
    assert f"{len(shallow.PROBES) - 1} of them scored before" in said and "stated before" in said
    assert "No model is trained." in said and "runs," not in said
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == after


def test_of_a_carved_split_it_names_the_folds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*WORDS, "--dry-run", "--without-models"])
    assert f"{', '.join(shallow.PROBES)}), also in 5 folds\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("reviews.csv", "--text", "bdy", "--label", "stars"),
        ("reviews.csv", "--text", "body", "--label", "body"),
        ("reviews.csv", "--text", "body"),
        ("other.csv", "--text", "body", "--label", "stars"),
        ("reviews.csv", "--text", "body", "--label", "stars", "--device", "cuda:77"),
        ("reviews.csv", "--text", "body", "--label", "stars", "--split", "stars"),
        ("corpus",),
        ("listopps",),
        ("broken.py:Broken",),
    ],
)
def test_it_refuses_what_the_audit_refuses_in_the_same_words(
    here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    said = refused(capsys, "audit", *words, "--effort", "smoke", "--dry-run")
    assert [path.name for path in here.iterdir() if path.is_dir() and path.name != "__pycache__"] == []
    assert said == refused(capsys, "audit", *words, "--effort", "smoke")


def test_a_task_that_ships_is_not_built_for_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ListOps, "build", lambda *_: pytest.fail("it was built"))
    main(["audit", "listops", "--effort", "smoke", "--dry-run", "--without-models"])
    train, val, test = audit.SCALES["smoke"].most
    assert f"take at most {train} of train, {val} of val, {test} of test" in capsys.readouterr().out
