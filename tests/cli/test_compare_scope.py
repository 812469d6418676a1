"""What the report of `compare` is of: what this command asked for, in a folder that says whose data they are."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from levelfield.cli import streams
from levelfield.cli.app import main
from levelfield.engine.find import Source
from levelfield.presets.options import Options

pytestmark = pytest.mark.usefixtures("undrawn")

MIXER = """
from torch import nn

class Mine(nn.Linear):
    def __init__(self, width):
        super().__init__(width, width)
"""


def tasks(folder: Path) -> set[str]:
    with (folder / "rows.csv").open(encoding="utf-8") as file:
        return {row["task"] for row in csv.DictReader(file)}


def test_a_comparison_reports_what_it_was_asked_and_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MIXER)
    Path("own.csv").write_text("\n".join(["body,stars", *(f"words {n},{n % 2}" for n in range(40))]))

    def said(*words: str) -> str:
        main([*words, "--effort", "smoke"])
        return capsys.readouterr().out

    compare = ["compare", "mine.py:Mine", "--protocols", "scratch", "--baselines", "conv", "--jobs", "1"]
    shown = said(*compare, "--tasks", "recall")
    assert "mine.py:Mine at effort smoke: 2 of 2 runs complete" in shown, "a name that can be typed again"
    assert "left out" not in shown
    (plain,) = Path("report").iterdir()
    assert tasks(plain) == {"recall"}

    shown = said(*compare, "--own", "own.csv", "--text", "body", "--label", "stars")
    assert "2 runs of earlier commands are left out: `levelfield report mine.py:Mine --effort smoke`" in shown
    (own,) = set(Path("report").iterdir()) - {plain}
    assert (tasks(plain), tasks(own)) == ({"recall"}, {"own_own"})

    assert "in 0 of 2 comparisons" in said("report", "mine.py:Mine")
    assert (tasks(plain), tasks(own)) == ({"recall", "own_own"}, {"own_own"}), "no data were named"

    assert "in 0 of 1 comparisons" in said(*compare, "--tasks", "recall")
    assert tasks(plain) == {"recall"}
    assert said("status", "mine.py:Mine").startswith("mine.py:Mine at effort smoke, 4 runs: 4 done")

    assert "left out" not in said(*compare, "--tasks", "induction", "--lr", "0.01"), "of another rate, nothing is"
    assert "in 0 of 1 comparisons" in said("report", "mine.py:Mine"), "nor judged with the others"
    assert tasks(plain) == {"induction"}


def test_a_dry_run_prints_the_plan_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MIXER)
    words = ["mine.py:Mine", "--tasks", "recall", "--protocols", "scratch", "--baselines", "conv", "--effort", "smoke"]
    shown = []
    for command in (["compare", *words, "--trials", "2", "--dry-run"], ["plan", *words, "--trials", "2"]):
        main(command)
        said = capsys.readouterr().out
        assert "2 runs, 0 done" in said and "Tuning: 2 trials" in said and "All 2 runs: " in said
        shown.append([line for line in said.splitlines() if not line.startswith("All 2 runs")])  # a time is measured
    assert shown[0] == shown[1]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ""] in ([], ["__pycache__"])


def test_a_dry_run_of_reach_says_what_it_would_train_and_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six models at two ranges with two seeds each, as the study has them."""
    monkeypatch.chdir(tmp_path)
    words = ["conv(hidden=16)", "--effort", "smoke", "--seeds", "2", "--steps", "3"]
    runs = Source("reach", words[0], Options(seeds=2, steps=3)).load().runs("smoke")
    main(["reach", *words, "--dry-run"])
    said = capsys.readouterr().out
    assert len(runs) == 24 and "24 runs, 0 done" in said and "All 24 runs: " in said
    assert all(run.model.label in said for run in runs) and not list(tmp_path.iterdir())


def test_the_name_in_files_is_answered_with_the_name_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "report", "plan"):
        with pytest.raises(SystemExit) as stop:
            main([command, "compare-mine-316bb6"])
        assert stop.value.code == 2
        assert "mine: give the name of that mixer instead, as in mine.py:Mine.\n" in capsys.readouterr().err
        for name in ("reach-mine-316bb6", "reach-mine-316bb6-4486f7"):
            with pytest.raises(SystemExit):
                main([command, name])
            said = "mine: `levelfield reach mine.py:Mine` goes on with its runs and writes its report.\n"
            assert said in capsys.readouterr().err


@pytest.mark.slow
def test_two_files_of_ones_own_are_both_reported_by_the_flags_they_were_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record keeps both that have one name; a report that is not told which of them is of the last."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MIXER)
    columns = ["--text", "body", "--label", "stars", "--protocols", "scratch", "--baselines", "conv"]
    columns += ["--effort", "smoke"]

    def own(path: str, word: str) -> list[str]:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text("\n".join(["body,stars", *(f"{word} {n},{n % 2}" for n in range(40))]))
        return ["mine.py:Mine", "--own", path, *columns]

    given = {"a": own("a/own.csv", "one"), "b": own("b/own.csv", "two"), "other": own("other.csv", "three")}
    runs: dict[str, set[str]] = {}
    for words in given.values():
        main(["compare", *words, "--jobs", "1"])
    for name, words in given.items():
        main(["report", *words, "--report-dir", f"of_{name}"])
        (folder,) = Path(f"of_{name}").iterdir()
        with (folder / "rows.csv").open(encoding="utf-8") as file:
            runs[name] = {row["run"] for row in csv.DictReader(file)}
    assert all(runs.values()) and not runs["a"] & runs["b"] and not runs["b"] & runs["other"]
    capsys.readouterr()
    all_of_them = ["mine.py:Mine", "--effort", "smoke"]
    main(["report", *all_of_them, "--report-dir", "of_all"])
    said = "own_own stands for 2 files, or columns of one, and this report is of the last one compared"
    assert said in capsys.readouterr().out
    (folder,) = Path("of_all").iterdir()
    with (folder / "rows.csv").open(encoding="utf-8") as file:
        assert {row["run"] for row in csv.DictReader(file)} == runs["b"] | runs["other"]
    main(["status", *all_of_them])
    assert "6 runs: 6 done" in capsys.readouterr().out
    main(["compare", *given["a"], "--jobs", "1", "--report-dir", "again"])
    assert "left out" in (shown := capsys.readouterr().out) and "2 runs of earlier commands" in shown, (
        "those of other.csv"
    )
    main(["report", *all_of_them, "--report-dir", "of_all"])
    with (folder / "rows.csv").open(encoding="utf-8") as file:
        assert {row["run"] for row in csv.DictReader(file)} == runs["a"] | runs["other"], "a is the last again"
    with pytest.raises(SystemExit) as stop:
        main(["report", *own("c.csv", "four")])
    assert stop.value.code == 2
    assert "No runs of mine.py:Mine with these flags at effort smoke in runs: give those" in capsys.readouterr().err


SLOW = (
    MIXER.replace("\nclass", "import time\n\nclass")
    + """
    def forward(self, x):
        time.sleep(0.003)
        return super().forward(x)
"""
)


@pytest.mark.parametrize("command", [["compare", "--dry-run"], ["plan"]])
def test_a_plan_that_takes_long_says_on_standard_error_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *flags = command
    Path("mine.py").write_text(f"# {name}\n{SLOW}")  # what was checked once in a process is not checked again
    monkeypatch.setattr(streams, "SOON_S", 0.05)
    main([name, "mine.py:Mine", *flags, "--effort", "smoke", "--tasks", "recall", "--baselines", "conv"])
    shown = capsys.readouterr()
    assert "Checking the models of mine.py:Mine: 0 s so far.\n" in shown.err and "so far" not in shown.out
    assert "Counting what the runs of mine.py:Mine cost: 0 s so far.\n" in shown.err
