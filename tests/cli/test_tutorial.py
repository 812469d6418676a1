"""The tutorial, followed: its file is written, its commands are run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

from levelfield.cli import app

TEXT = (ROOT / "docs" / "tutorial.md").read_text()


def test_the_tutorial_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    (tmp_path / "blocks.py").write_text(code)
    commands = [line for line in TEXT.splitlines() if line.startswith("levelfield ")]
    assert [shlex.split(line)[1] for line in commands] == ["plan", "run", "report", "results"]
    plan, run, report, results = commands
    assert "objective.block" in follow(plan, capfd)
    words = [sys.executable, "-m", "levelfield", *shlex.split(run)[1:]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 runs complete" in done.stdout
    said = follow(report, capfd)
    assert "recall" not in said and (tmp_path / "report" / "blocks-smoke" / "report.html").exists()
    assert "blocks" in follow(results, capfd)
    page = (tmp_path / "report" / "blocks-smoke" / "report.html").read_text()
    assert re.search(r"(Yes|No|Not decided): hiding blocks scores", page)
    (first, *_) = sorted((tmp_path / "runs").glob("recall-blocks-*"))
    assert "distance" in follow(f"levelfield probe effective_context {first.name} --study blocks.py", capfd)


def follow(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What the command says, which ends well: in this process, as an interpreter with torch takes seconds to start."""
    app.main(shlex.split(line)[1:])
    return capfd.readouterr().out
