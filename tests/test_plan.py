"""What a study will take before it runs, and what it says when it has run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import toys

from levelfield.cli import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_ends_by_naming_the_command_of_its_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And that command, word for word, writes the report."""
    toys.write(here / "toys.py", runs=1)
    main(["run", "toys.py", "--out", "my runs", "--device", "cpu", "--jobs", "1"])
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last == "Its report: levelfield report toys.py --effort minutes --out 'my runs'"
    main(shlex.split(last.partition("levelfield ")[2]))
    assert "report.html" in capsys.readouterr().out
