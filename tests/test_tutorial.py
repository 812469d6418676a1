"""The tutorial, followed: its file is written, its commands are run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

TEXT = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text()


def test_the_tutorial_does_what_it_says(tmp_path: Path):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    (tmp_path / "blocks.py").write_text(code)
    commands = [line for line in TEXT.splitlines() if line.startswith("levelfield ")]
    assert [shlex.split(line)[1] for line in commands] == ["plan", "run", "report", "results"]
    said = [follow(line, tmp_path) for line in commands]
    assert "objective.block" in said[0]
    assert "4 of 4 runs complete" in said[1]
    assert "recall" not in said[2] and (tmp_path / "report" / "blocks-smoke" / "report.html").exists()
    assert "blocks" in said[3]
    page = (tmp_path / "report" / "blocks-smoke" / "report.html").read_text()
    assert re.search(r"(Yes|No): hiding blocks scores", page)
    (run, *_) = sorted((tmp_path / "runs").glob("recall-blocks-*"))
    assert "distance" in follow(f"levelfield probe reach {run.name} --study blocks.py", tmp_path)


def follow(line: str, folder: Path) -> str:
    words = [sys.executable, "-m", "levelfield", *shlex.split(line)[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
