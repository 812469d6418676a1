"""The notebook in docs/ runs from top to bottom, cell after cell, as a reader runs it; it is kept without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

BOOK = json.loads((ROOT / "docs" / "first_look.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in BOOK["cells"] if cell["cell_type"] == "code"]


def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In one scope and an empty folder; Jupyter itself is not needed."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "__main__"}
    said = []
    for number, source in enumerate(CODE):
        exec(compile(source, f"cell {number}", "exec"), scope)
        said.append(capsys.readouterr().out)
    _, drawn, _, fault, compared, ledgers, rows = said
    assert "->" in drawn
    assert "depends on inputs after step" in fault and fault.count("\n") == 1
    assert "Comparison of 2 runs" in compared and "2 of 2" in compared
    assert ledgers.count(" parameters, 20 steps, ") == 2
    assert len(rows.splitlines()) == 3 and "conv" in rows and "mine" in rows
    assert scope["found"].page.exists()


def test_it_is_kept_without_outputs_and_with_a_name_for_each_cell() -> None:
    assert (BOOK["nbformat"], BOOK["nbformat_minor"]) == (4, 5)
    assert [cell["id"] for cell in BOOK["cells"] if cell.get("outputs") or cell.get("execution_count")] == []
    names = [cell["id"] for cell in BOOK["cells"]]
    assert len(names) == len(set(names))
