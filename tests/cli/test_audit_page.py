"""docs/audit.md, followed: its commands mean what it says, one of them is run to the end; and the page that ranks."""

from __future__ import annotations

import csv
import html
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT, script

import levelfield
from levelfield import OwnData
from levelfield.cli import audit_command
from levelfield.cli.app import main
from levelfield.report.audit.reading import Reading
from levelfield.report.audit.shares import RULE, Scored, findings
from levelfield.report.tables import to_csv
from levelfield.spec import Row

PAGE = (ROOT / "docs" / "audit.md").read_text()
COMMANDS = re.findall(r"^levelfield .*", PAGE, flags=re.MULTILINE)
(TASK,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "add-a-task.md").read_text(), flags=re.DOTALL)[:1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the page names."""
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["body", "stars", "author"])
        table.writerows([f"number {i}: {('fine', 'poor')[i % 2]} indeed", i % 2, i % 90] for i in range(900))
    (tmp_path / "my_task.py").write_text(TASK)
    return tmp_path


def test_the_commands_of_the_page_find_their_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audited: list[tuple[str, str]] = []
    monkeypatch.setattr(
        audit_command, "audited", lambda task, job, *_, **__: audited.append((task.name, job.effort)) is None
    )
    for words in (shlex.split(line, comments=True)[1:] for line in COMMANDS):
        if "stanfordnlp/imdb" not in words:  # which takes a network; tests/user/test_own_hub.py has a hub of its own
            main(words)
    minutes = [(name, "minutes") for name in ("own_reviews", "own_reviews", "listops", "reach", "lookup")]
    assert audited == [minutes[0], ("own_reviews", "smoke"), *minutes[1:]]


def test_an_audit_without_models_trains_nothing(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "reviews.csv", "--text", "body", "--label", "stars", "--without-models"]
    main(words)
    assert "No model was trained, so that nothing is said of range." in capfd.readouterr().out
    (at,) = (here / "report").glob("audit-own_reviews-minutes-??????")
    assert (at / "figures" / "rules.svg").exists() and [each.name for each in (here / "runs").iterdir()] == ["audits"]
    made = levelfield.audit(
        OwnData("reviews.csv", text="body", label="stars"), without_models=True, report_dir=here / "again"
    )
    assert [to_csv([dict(row) for row in made.rows])] == [(at / "rows.csv").read_text()]
    assert repr(made) == f"{made.verdict}\nreport: {made.page}" and made.page.parent.parent == here / "again"
    shown = html.unescape(made._repr_html_().partition('srcdoc="')[2].rpartition('" style=')[0])
    assert shown == made.page.read_text(encoding="utf-8")
    assert [path.name for path in made.figures] == ["rules.png"]
    said = "900 of 900 sequences were cut at 9 steps"
    with pytest.warns(UserWarning, match=said):
        main([*words, "--longest", "9", "--report-dir", "cut"])
    (datasheet,) = (here / "cut").glob("*/datasheet.md")
    assert said in capfd.readouterr().out and said in datasheet.read_text()
    main(["audit", "parity(length=16, train=400)", "--without-models"])
    said = capfd.readouterr().out
    assert "Of the rules, the one that knows the latest 3 symbols is best on validation" in said
    assert "At steps after the first 3, the rule that knows the latest 3 symbols scores" in said


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_an_audit_runs_to_its_report_and_continues(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (line,) = (command for command in COMMANDS if "smoke" in command)
    main([*shlex.split(line)[1:], "--jobs", "1"])
    said = capfd.readouterr().out
    assert "so that nothing is said of range" in said and "7 of 7 runs complete" in said
    (at,) = (here / "report").glob("audit-own_reviews-smoke-??????")
    assert f"Wrote {at.relative_to(here)}/report.html" in said
    assert all((at / name).exists() for name in ("report.html", "rows.csv", "badge.svg", "datasheet.md"))
    before = (at / "rows.csv").read_bytes()
    main(shlex.split(line)[1:])
    assert (at / "rows.csv").read_bytes() == before
    assert list(at.parent.iterdir()) == [at]


def rows(task: str, learnable: bool, shares: dict[int, float], best: float = 0.95) -> list[Row]:
    """An audit in which S4 is the reference and has a score of `best`."""
    own = Row(task=task, effort="minutes", protocol="none", split="test", n=500)
    found = [
        own | Row(model="guessing", metric="score", value=0.5),
        own | Row(model="s4", metric="learnable", value=float(learnable)),
        *(own | Row(model="s4", metric=f"score{end}", at="free=all", value=best) for end in ("", "_low", "_high")),
    ]
    found += [own | Row(model="data", metric="steps", at="place=median", value=300.0)]
    of_itself = [own | Row(model="s4", metric=f"share{end}", at="free=all", value=1.0) for end in ("", "_low", "_high")]
    found += of_itself if learnable else []
    for window, share in shares.items():
        for metric in ("score", "share") if learnable else ("score",):
            for ending, value in (("", share), ("_low", share - 0.02), ("_high", share + 0.02)):
                found.append(
                    own | Row(model=f"window{window}", metric=metric + ending, at=f"window={window}", value=value)
                )
    return found


def test_what_rules_have_is_ranked_by_how_far_they_come(tmp_path: Path) -> None:
    audits, n = script("audits"), 400
    for name, share in (("gives", 0.9), ("little", 0.6)):
        arms = [
            Scored(rule, RULE, right, (np.arange(n) < right * n).astype(float)[None])
            for rule, right in (("length", 0.5), ("1-grams", share))
        ]
        facts = [Row(model="data", metric="steps", split="test", at="place=median", value=300.0)]
        found = [*facts, *findings(arms, (np.arange(n) % 2).astype(float))]
        (tmp_path / f"{name}.csv").write_text(to_csv([row | Row(task=name, effort="minutes") for row in found]))
    read = [audits.read(path) for path in sorted(tmp_path.glob("*.csv"), reverse=True)]
    lines = [line for line in audits.page([], read).splitlines() if line.startswith("| `")]
    assert lines[0].startswith("| `gives` | 300 | 50 % | counts of single symbols | 90 % (87 to 93) | 80 % |")
    assert lines[1].startswith("| `little` | 300 | 50 % | counts of single symbols | 60 % (55 to 65) | 20 % |")
    assert "the length alone: 0 % (" in lines[0]


PROVED = Row(model="data", protocol="none", metric="certified_range", split="all", value=7.0)


def test_the_page_that_ranks_is_made_of_committed_rows(tmp_path: Path) -> None:
    audits = script("audits")
    assert audits.page(audits.committed(), audits.of_rules()) == (ROOT / "docs" / "audits.md").read_text(), (
        "run python docs/scripts/audits.py"
    )
    given = {
        "local": rows("local", True, {5: 0.96, 9: 0.99}),
        "far": rows("far", True, {5: 0.1, 9: 0.2}),
        "coin": rows("coin", False, {5: 0.5, 9: 0.5}, 0.5),
        "begun": rows("begun", True, {5: 0.1, 9: 0.2}, 0.7),
        "proved": [*rows("proved", True, {5: 0.1, 9: 0.2}), Row(PROVED, task="proved", effort="minutes")],
    }
    read = []
    for name, found in given.items():
        (tmp_path / f"{name}.csv").write_text(to_csv(found))
        read.append(audits.read(tmp_path / f"{name}.csv"))
        assert read[-1] == Reading.of(found), "CSV gives the rows back"
    assert audits.audits_figure.draw(audits.ranked(read)).startswith(b"\x89PNG")
    assert audits.audits_figure.caption(audits.ranked(read)).endswith(" proved: 8 steps, by proof; local: 5 steps.")
    lines = [line for line in audits.page(read, []).splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == ["proved", "local", "far", "begun", "coin"]
    assert "| 8, by proof | 8 |" in lines[0] and "Trained windows of up to 9 steps learnt at most 20 %" in lines[0]
    assert "| 5 | 5 to 9 |" in lines[1] and "No higher accuracy than guessing is shown" in lines[4]
    assert "| not learnt by up to 9 | none of up to 9 |" in lines[2], "and so it does not come first"
    assert "| 90 % |" in lines[2] and "| 40 % |" in lines[3] and "Most of the task was not learnt" in lines[3]


def test_an_audit_without_rules_has_those_of_the_same_test_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audits, n = script("audits"), 400
    rule = Scored("latest 1", RULE, 0.6, (np.arange(n) < 0.6 * n).astype(float)[None])
    alone = [row | Row(task="local", effort="minutes") for row in findings([rule], np.full(n, 0.5))]
    (tmp_path / "without-models").mkdir()
    (tmp_path / "without-models" / "local.csv").write_text(to_csv(alone))
    monkeypatch.setattr(audits, "ROWS", tmp_path)
    monkeypatch.setattr(audits, "RULES", tmp_path / "without-models")
    trained = [row for row in rows("local", True, {5: 0.96, 9: 0.99}) if not row.get("at", "").startswith(RULE)]
    for guessing, said in ((0.5, "the latest symbol: scores 60 % (55 to 65)"), (0.4, "–")):
        found = [row | (Row(value=guessing) if row.get("model") == "guessing" else Row()) for row in trained]
        (tmp_path / "local-minutes.csv").write_text(to_csv(found))
        (line,) = (line for line in audits.page(audits.committed(), []).splitlines() if line.startswith("| `"))
        assert f"| {said} |" in line
