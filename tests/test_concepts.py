"""The page on concepts: its code runs, and its ledger is that of the committed rows."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest
from repository import ROOT

PAGE = (ROOT / "docs" / "concepts.md").read_text()


def test_the_code_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "concepts.md", "exec"), scope)
    (said,) = re.findall(r"^print\(.*\)  # (.*)$", PAGE, re.MULTILINE)
    assert capsys.readouterr().out == f"{said}\n"


def test_the_ledger_is_that_of_the_committed_rows() -> None:
    with (ROOT / "results" / "demo-minutes" / "summary.csv").open(newline="") as file:
        kept = {(row["task"], row["model"], row["protocol"]): row for row in csv.DictReader(file) if row["flops"]}
    (table,) = re.findall(r"<!-- ledger -->\n\n(.*?)\n\n<!-- end -->", PAGE, re.DOTALL)
    lines = table.splitlines()[2:]
    assert len(lines) == 4
    for line in lines:
        task, model, protocol, *numbers = (cell.strip(" `") for cell in line.strip("|").split("|"))
        row = kept[task, model, protocol]
        assert row["n"] == "5"
        assert numbers == [
            f"{float(row['median']):.1f}",
            *(f"{float(row[key]):,.0f}" for key in ("parameters", "tokens", "steps")),
            f"{float(row['flops']) / 1e9:.0f}",
            f"{float(row['tuning_trials']):.0f}",
        ]
