"""Results that are kept in the repository can be reported, and the report that is kept is theirs."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from repository import ROOT, script

from levelfield.cli.app import main
from levelfield.engine.find import Source
from levelfield.report import committed
from levelfield.report.cells import gather
from levelfield.spec import EFFORTS, Effort, Row, UserError, impossible

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
    """`python docs/scripts/findings.py` renews it. Of the figure it is only checked that it can be drawn."""
    findings = script("findings")
    assert findings.page() == (ROOT / "docs" / "findings.md").read_text(), "run python docs/scripts/findings.py"
    answers = findings.pictured()
    assert findings.findings_figure.draw(answers).startswith(b"\x89PNG")
    readme = (ROOT / "README.md").read_text()
    assert f"![{findings.findings_figure.caption(answers)}](docs/figures/findings.png)" in readme
    assert findings.readme(readme) == readme, "run python docs/scripts/findings.py"
    blurred = re.sub(r"(?m)^- \*\*Is a short range enough.*$", "- old", readme)
    assert blurred != readme and findings.readme(blurred) == readme


def test_the_report_in_the_docs_is_that_of_the_rows_in_results(tmp_path: Path) -> None:
    """`make pages` renews it. Figures depend on the version of matplotlib; text and tables do not."""
    main(["report", "demo", "--runs-dir", str(ROOT / "results"), "--report-dir", str(tmp_path)])
    pages = (tmp_path / "demo-minutes" / "report.html", ROOT / "docs" / "reports" / "demo.html")
    new, kept = (re.sub("<svg.*?</svg>", "", page.read_text(), flags=re.DOTALL) for page in pages)
    assert kept == new.replace('href="rows.csv"', 'href="../../results/demo-minutes/rows.csv"')


MINE = ROOT / "results" / "miralles2025_small-overnight"
AGAIN = "take the file from the repository again, or write it again with `levelfield report`"


def with_rows(tmp_path: Path, change: Callable[[list[str]], list[str]]) -> Path:
    """A copy of the folder whose lines of rows are changed."""
    copy = Path(shutil.copytree(MINE, tmp_path / MINE.name))
    lines = (copy / committed.ROWS).read_text().splitlines(keepends=True)
    (copy / committed.ROWS).write_text("".join(change(lines)))
    return copy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [], "rows.csv holds no rows: "),
        (lambda lines: lines[:1], "rows.csv holds no rows: "),
        (lambda lines: lines[1:], "rows.csv does not begin with a line that names its columns, task among them: "),
        (lambda lines: [*lines[:9], lines[9][:60]], "rows.csv is cut off on line 10: "),
        (
            lambda lines: lines[:100],
            "lacks 53 of the test scores that summary.csv beside it counts, of conv3 (enriched) on listops and of 17 "
            "more arms: ",
        ),
        (
            lambda lines: [*lines[:2], lines[2].replace("0.3372", "33.72"), *lines[3:]],
            "rows.csv has on line 3 accuracy 33.72, which does not lie between 0 and 1: ",
        ),
    ],
)
def test_rows_that_are_lost_or_impossible_are_one_sentence(
    change: Callable[[list[str]], list[str]], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = with_rows(tmp_path, change)
    with pytest.raises(SystemExit) as end:
        main(["report", "miralles2025_small", "--effort", "overnight", "--runs-dir", str(copy)])
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and not shown.out
    assert said in shown.err and AGAIN in shown.err, shown.err


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (Row(metric="accuracy", value=52.32), "accuracy 52.32, which does not lie between 0 and 1"),
        (Row(metric="f1", unit="fraction", value=-0.1), "f1 -0.1, which does not lie between 0 and 1"),
        (Row(metric="accuracy", unit="percent", value=101.0), "accuracy 101, which does not lie between 0 and 100"),
        (Row(metric="accuracy", unit="percent", value=52.32), None),
        (Row(metric="accuracy", unit="fraction", value=1.0), None),
        (Row(metric="accuracy", unit="fraction", value=math.nan), None),
        (Row(metric="accuracy", unit="fraction"), None),
        (Row(metric="negative_mse", unit="", value=-7.0), None),
        (Row(metric="r2", unit="fraction", value=-1.5), None),
        (Row(metric="receptive_field", unit="steps", value=121.0), None),
        (Row(metric="bits", unit="fraction", value=1.7), None),
    ],
)
def test_only_shares_lie_between_0_and_1(row: Row, wrong: str | None) -> None:
    assert impossible(row) == wrong
