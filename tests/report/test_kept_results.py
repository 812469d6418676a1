"""Results that are kept in the repository can be reported, and the report that is kept is theirs."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import cast

import pytest
from repository import ROOT

from levelfield.cli.app import main
from levelfield.engine.find import Source
from levelfield.report import committed
from levelfield.report.cells import gather
from levelfield.spec import EFFORTS, Effort, UserError

KEPT = sorted(path.parent.name for path in (ROOT / "results").glob("*-*/rows.csv") if "ruler" not in path.parent.name)


@pytest.mark.parametrize("folder", KEPT)
def test_every_folder_of_results_can_be_reported(folder: str) -> None:
    name, _, ending = folder.rpartition("-")
    effort: Effort = EFFORTS[EFFORTS.index(cast("Effort", ending))]
    study = Source.of(name.removesuffix("-tuned"), trials=4 if "-tuned" in folder else 0).load()
    assert committed.find(ROOT / "results", study.name, effort) == ROOT / "results" / folder
    results = committed.read(ROOT / "results" / folder, study, effort)
    assert study.verdict and study.verdict(results.rows)
    assert gather(results).cells


def test_a_folder_of_another_study_says_what_is_missing() -> None:
    study = Source("huang2024_small").load()
    with pytest.raises(UserError, match=r"holds huang2024_small-tuned at effort minutes.*--trials"):
        committed.read(ROOT / "results" / "huang2024_small-tuned-minutes", study, "minutes")


def test_the_page_of_findings_is_that_of_the_rows_in_results() -> None:
    """`python docs/findings.py` renews it. Of the figure it is only checked that it can be drawn."""
    spec = importlib.util.spec_from_file_location("findings", ROOT / "docs" / "findings.py")
    assert spec is not None and spec.loader is not None
    findings = importlib.util.module_from_spec(spec)
    sys.modules["findings"] = findings  # where dataclasses look for their module
    spec.loader.exec_module(findings)
    assert findings.page() == (ROOT / "docs" / "findings.md").read_text(), "run python docs/findings.py"
    answers = findings.pictured()
    assert findings.findings_figure.draw(answers).startswith(b"\x89PNG")
    readme = (ROOT / "README.md").read_text()
    assert f"![{findings.findings_figure.caption(answers)}](docs/figures/findings.png)" in readme
    assert findings.readme(readme) == readme, "run python docs/findings.py"
    blurred = re.sub(r"(?m)^- \*\*Is a short range enough.*$", "- old", readme)
    assert blurred != readme and findings.readme(blurred) == readme


def test_the_report_in_the_docs_is_that_of_the_rows_in_results(tmp_path: Path) -> None:
    """`make pages` renews it. Figures depend on the version of matplotlib; text and tables do not."""
    main(["report", "demo", "--runs-dir", str(ROOT / "results"), "--report-dir", str(tmp_path)])
    pages = (tmp_path / "demo-minutes" / "report.html", ROOT / "docs" / "reports" / "demo.html")
    new, kept = (re.sub("<svg.*?</svg>", "", page.read_text(), flags=re.DOTALL) for page in pages)
    assert kept == new.replace('href="rows.csv"', 'href="../../results/demo-minutes/rows.csv"')
