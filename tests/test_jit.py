"""Compiled loops: what is kept of them on disk is made anew where anything that decides it has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CALLED = """
from levelfield.jit import compiled

ADDED = {added}

@compiled
def inner(x):
    return {times} * x
"""
CALLS = """
from levelfield.jit import compiled
from loops.called import ADDED, inner

@compiled
def outer(x):
    return inner(x) + ADDED
"""


def outer(folder: Path, called: str) -> float:
    """What the loop gives for 1 in a process of its own, where it calls one of a file with this content."""
    if not (at := folder / "loops" / "called.py").exists() or at.read_text() != called:
        at.write_text(called)
    words = [sys.executable, "-c", "from loops.calls import outer; print(outer(1.0))"]
    return float(subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("change", [{"times": 300.0}, {"added": 70.0}])
def test_a_loop_is_compiled_again_where_a_file_has_changed_that_it_takes_from(
    tmp_path: Path, change: dict[str, float]
) -> None:
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "calls.py").write_text(CALLS)
    before, after = {"times": 2.0, "added": 5.0}, {"times": 2.0, "added": 5.0, **change}
    assert outer(tmp_path, CALLED.format(**before)) == 7.0
    assert outer(tmp_path, CALLED.format(**after)) == after["times"] + after["added"]


def test_a_loop_that_is_kept_is_not_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "calls.py").write_text(CALLS)
    called = CALLED.format(times=2.0, added=5.0)
    outer(tmp_path, called)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb*")}
    outer(tmp_path, called)
    assert kept
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb*")} == kept
