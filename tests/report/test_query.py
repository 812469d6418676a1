"""The tables that SQL sees: which study a run is of, one score a run, and every query that is documented."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import fixtures_rows as fixtures
import pytest
from imports import ROOT

from levelfield.cli.app import main
from levelfield.cli.query_command import answer
from levelfield.files import write_json, write_rows
from levelfield.report.query import Measured, collect, find_files, query
from levelfield.report.tables import to_csv
from levelfield.runs.results import Results
from levelfield.spec import Row, UserError

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "results").glob("*.md")))
COMMAND = re.compile(r'levelfield results (".+?")', re.DOTALL)


def help_text() -> str:
    shown = io.StringIO()
    with redirect_stdout(shown), pytest.raises(SystemExit):
        main(["results", "--help"])
    return re.sub(r"[│╭╮╰╯─\s]+", " ", shown.getvalue())


@pytest.mark.parametrize("late", ["length=512,depth=4", 'my "x"', "two\nlines", "two\r\nlines", "chat, 'x', \"y\""])
def test_texts_are_what_they_are_however_late_the_first_comma_comes(late: str) -> None:
    """A reader that guesses how a table is written looks at its first 20,000 rows or so."""
    plain = Row(source="levelfield", task="listops", model="m", metric="accuracy", value=0.5, split="test", at="a=1")
    measured = Measured([*[plain] * 30_000, plain | Row(at=late)])
    found = query("SELECT place, count(*) AS n FROM rows GROUP BY place ORDER BY n", measured)[1]
    assert found == [(late, 1), ("a=1", 30_000)]


def documented() -> list[str]:
    """Every query of a page, of the help, and of the module that answers them."""
    texts = [*(page.read_text() for page in PAGES), help_text()]
    module = (ROOT / "levelfield" / "report" / "query.py").read_text()
    quoted = [text for page in texts for text in COMMAND.findall(page)] + re.findall(r'query\((".+?"),', module)
    return [shlex.split(text)[0] for text in quoted]


def stored(folder: Path, study: str, results: Results, efforts: tuple[str, ...] = ("minutes",)) -> Path:
    """The results as a folder of runs, whose rows do not say which study they are of."""
    baselines = [row for row in results.rows if "run" not in row]
    for place, run in enumerate(results.ledgers):
        own = [row for row in results.rows if row.get("run") == run] + (baselines if place == 0 else [])
        bare = [{key: value for key, value in row.items() if key not in ("study", "effort")} for row in own]
        write_rows(folder / run / "rows.jsonl", bare)
    for effort in efforts:
        described = {"study": study, "effort": effort, "runs": results.specs}
        write_json(folder / "studies" / f"{study}-{effort}.json", described)
    return folder


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    study, results = fixtures.extrapolation()
    return collect(stored(tmp_path_factory.mktemp("runs"), study.name, results))


def test_documented_queries_are_found() -> None:
    assert len(documented()) >= 7


@pytest.mark.parametrize("sql", documented())
def test_a_documented_query_answers(sql: str, measured: Measured) -> None:
    columns, _ = query(sql, measured)
    assert columns


def test_every_column_can_be_selected_by_its_plain_name(measured: Measured) -> None:
    """But for "table", which every page puts into quotes."""
    columns, _ = query("SELECT * FROM rows LIMIT 0", measured)
    assert "place" in columns and "at" not in columns
    plain = [name for name in columns if name != "table"]
    assert query(f'SELECT {", ".join(plain)}, "table" FROM rows', measured)[0] == [*plain, "table"]


def test_scores_are_one_whole_test_split_a_run(measured: Measured) -> None:
    _, results = fixtures.extrapolation()
    wanted = {
        row["run"]: row["value"]
        for row in results.rows
        if "run" in row and "at" not in row and row.get("split") == "test" and "value" in row
    }
    assert any("at" in row for row in results.rows), "there are slices to be left out"
    assert dict(query("SELECT run, value FROM scores", measured)[1]) == pytest.approx(wanted)


def test_of_a_regression_the_score_is_r2(tmp_path: Path) -> None:
    _, results = fixtures.gap()
    run = next(iter(results.ledgers))
    named = Row(source="levelfield", run=run, task="t", model="m", protocol="scratch", seed=0, split="test")
    rows = [named | Row(metric="negative_mse", value=-2.0), named | Row(metric="r2", value=0.5)]
    rows += [row | Row(model="label_prior", protocol="none") for row in rows]
    stored(tmp_path, "gap", replace(results, rows=rows, ledgers={run: {}}))
    assert query("SELECT run, metric, value FROM scores", collect(tmp_path))[1] == [(run, "r2", 0.5)]


def test_rows_of_runs_say_which_study_and_effort_they_are_of(tmp_path: Path) -> None:
    study, results = fixtures.gap()
    found = collect(stored(tmp_path, study.name, results, ("minutes", "smoke")))
    sql = "SELECT DISTINCT study, effort FROM rows WHERE run IS NOT NULL"
    assert query(sql, found)[1] == [(study.name, "minutes")]
    sql = "SELECT effort, count(*) FROM scores JOIN studies USING (run) GROUP BY studies.effort ORDER BY ALL"
    sql = sql.replace("SELECT effort", "SELECT studies.effort")
    count = len(query("SELECT run FROM scores", found)[1])
    assert count and query(sql, found)[1] == [("minutes", count), ("smoke", count)]


def test_a_committed_copy_of_a_run_counts_once(tmp_path: Path) -> None:
    study, results = fixtures.gap()
    stored(tmp_path, study.name, results)
    asked = "SELECT count(*), round(sum(value), 6) FROM scores"  # rounded: threads add in any order
    alone = query(asked, collect(tmp_path))[1]
    (tmp_path / "committed").mkdir()
    rows = [row | Row(asked="by\u2028two\nlines") for row in results.rows]
    (tmp_path / "committed" / "rows.csv").write_text(to_csv(rows))
    assert query(asked, collect(tmp_path))[1] == alone


def test_two_audits_of_one_task_keep_their_numbers_and_a_copy_of_one_counts_once(tmp_path: Path) -> None:
    row = Row(source="levelfield", task="t", model="window9", protocol="none", at="window=9", split="test")
    row |= Row(metric="score", study="audit-t", n=500)
    for folder, effort, value in (("a", "minutes", 0.5), ("a", "overnight", 0.75), ("b", "minutes", 0.5)):
        where = tmp_path / folder / f"audit-t-{effort}"
        where.mkdir(parents=True)
        (where / "rows.csv").write_text(to_csv([row | Row(effort=effort, value=value)]))
    _, records = query("SELECT effort, value FROM rows ORDER BY value", collect(tmp_path))
    assert records == [("minutes", 0.5), ("overnight", 0.75)]


def test_files_of_rows_are_found_in_the_order_of_their_paths_and_none_of_trials(tmp_path: Path) -> None:
    names = ["a-b/rows.jsonl", "a/rows.jsonl", "a/probe-x-1.jsonl", "a/log.jsonl", "trials/c/rows.jsonl", "rows.csv"]
    names += ["a/b/rows.jsonl", "trials/rows.csv", "a/rows.jsonl.tmp", "trials/c/probe-x-1.jsonl"]
    names += ["a/.lease/staged-0f/rows.jsonl", ".a.partial/rows.jsonl"]  # nobody's results yet
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path).as_posix() for path in find_files(tmp_path)]
    runs = ["a/b/rows.jsonl", "a/rows.jsonl", "a-b/rows.jsonl", "a/probe-x-1.jsonl"]
    assert found == [*runs, "rows.csv", "trials/rows.csv"]
    assert find_files(tmp_path / "absent") == []
    with pytest.raises(UserError, match=r"There is no folder .*absent"):
        answer("SELECT 1", tmp_path / "absent")


def test_folders_that_may_not_be_looked_into_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    real = os.scandir

    def refused_at(refused: Path) -> list[str]:
        def refuse(folder: Any) -> Any:
            if Path(folder) == refused:
                raise PermissionError(errno.EACCES, "Permission denied", str(folder))
            return real(folder)

        monkeypatch.setattr(os, "scandir", refuse)
        return [path.relative_to(tmp_path).as_posix() for path in find_files(tmp_path)]

    assert refused_at(tmp_path / "run") == ["run/rows.jsonl"], "which whoever reads it is told about"
    with pytest.raises(UserError, match=r"may not be read \(Permission denied\): give yourself the right to read it\."):
        refused_at(tmp_path)


def test_committed_results_of_the_repository_can_be_read() -> None:
    found = collect(ROOT / "results")
    assert not found.complaints
    ((count,),) = query("SELECT count(*) FROM scores WHERE study IS NOT NULL AND effort IS NOT NULL", found)[1]
    assert count > 100


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", "[1, 2]\n"),
        ("rows.jsonl", json.dumps({"value": "high"}) + "\n"),
        ("rows.jsonl", '{"value": NaN}\n'),
        ("rows.csv", "seed,value\nfirst,0.5\n"),
        ("rows.csv", "value\n0.5,0.6\n"),
        ("rows.csv", 'value\n"0.5\n'),
    ],
)
def test_a_damaged_file_is_left_out_and_named(tmp_path: Path, name: str, content: str) -> None:
    study, results = fixtures.gap()
    whole = query("SELECT count(*) FROM rows", collect(stored(tmp_path, study.name, results)))[1]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).write_text(content)
    found = collect(tmp_path)
    assert query("SELECT count(*) FROM rows", found)[1] == whole
    (complaint,) = found.complaints
    assert str(tmp_path / "other" / name) in complaint
