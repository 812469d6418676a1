"""Results that are kept in the repository can be reported, and the report that is kept is theirs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import ROOT

from levelfield.cli.app import main
from levelfield.engine.find import Source
from levelfield.report import committed
from levelfield.report.cells import gather
from levelfield.spec import UserError

KEPT = sorted(path.parent.name for path in (ROOT / "results").glob("*-minutes/rows.csv"))


@pytest.mark.parametrize("folder", KEPT)
def test_every_folder_of_results_can_be_reported(folder: str) -> None:
    name = folder.removesuffix("-minutes").removesuffix("-tuned")
    study = Source.of(name, trials=4 if "-tuned" in folder else 0).load()
    assert committed.find(ROOT / "results", study.name, "minutes") == ROOT / "results" / folder
    results = committed.read(ROOT / "results" / folder, study, "minutes")
    assert study.verdict and study.verdict(results.rows)
    assert gather(results).cells


def test_a_folder_of_another_study_says_what_is_missing() -> None:
    study = Source("huang2024_small").load()
    with pytest.raises(UserError, match=r"holds huang2024_small-tuned at effort minutes.*--trials"):
        committed.read(ROOT / "results" / "huang2024_small-tuned-minutes", study, "minutes")


def test_the_report_in_the_docs_is_that_of_the_rows_in_results(tmp_path: Path) -> None:
    """`make pages` renews it. Figures depend on the version of matplotlib; text and tables do not."""
    main(["report", "demo", "--runs-dir", str(ROOT / "results"), "--report-dir", str(tmp_path)])
    pages = (tmp_path / "demo-minutes" / "report.html", ROOT / "docs" / "reports" / "demo.html")
    new, kept = (re.sub("<svg.*?</svg>", "", page.read_text(), flags=re.DOTALL) for page in pages)
    assert kept == new
