"""The measured speed of samples: a row for every task, the page's figures, files that stand in. Nothing is timed."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest

from levelfield.ruler import BEYOND, RULER, Bytes, PromptOptions, Sources, generate, named

ROOT = Path(__file__).parents[1]
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks come with the repository, not with the package", allow_module_level=True)
sys.path.append(str(ROOT / "benchmarks"))

import stand_in_questions  # noqa: E402

with (ROOT / "results" / "speed-questions.csv").open(newline="") as rows_file:
    ROWS = list(csv.DictReader(rows_file))


def test_every_task_has_a_row_which_says_where_its_texts_are_made_up() -> None:
    assert [(row["task"], row["length"]) for row in ROWS] == [(task.name, "131072") for task in (*RULER, *BEYOND)]
    assert {row["task"] for row in ROWS if row["texts"] == "stand-in"} == {"qa_1", "qa_2"}


def test_the_page_has_the_figures_of_the_rows() -> None:
    page = (ROOT / "docs" / "ruler.md").read_text()
    table = page.partition("| samples per second of CPU time | |\n| --- | --- |\n")[2].partition("\n\n")[0]
    shown = [figure for line in table.splitlines() for figure in re.findall(r"[\d.]+", line.split("|")[2])]
    rates = [float(row["per_second"]) for row in ROWS]
    assert shown == [f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}" for rate in rates]


@pytest.mark.slow
@pytest.mark.filterwarnings("error")  # which say that a file is only a part
def test_files_that_stand_in_are_as_large_as_the_official_ones(tmp_path: Path) -> None:
    sources = Sources(**stand_in_questions.stand_ins(tmp_path))
    for task in ("qa_1", "qa_2"):
        (sample,) = generate(named(task), 20_000, Bytes(), PromptOptions("sound", sources=sources), count=1)
        assert 0 <= 20_000 - sample.answer_tokens - len(sample.ids) <= 1_500
