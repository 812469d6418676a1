"""A report is true to its rows, self-contained, safe against its own contents, and never hides what failed."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import fixtures_rows as fixtures
import matplotlib
import pytest
from browser import program
from repository import ROOT

from levelfield import published, report
from levelfield.files import write_json, write_rows
from levelfield.report import axis_curves, committed, style
from levelfield.report.against_printed import PrintedSources, all_counterparts
from levelfield.report.cells import arms_of, gather
from levelfield.report.intervals import wilson
from levelfield.report.tables import main_tables
from levelfield.runs import store
from levelfield.runs.hits import Hits
from levelfield.runs.results import Results
from levelfield.spec import Published, ReportView, Row, UserError


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    out = tmp_path_factory.mktemp("report")
    study, results = fixtures.gap()
    return out, report.build(study, "minutes", results, out)


def test_table_numbers_are_those_of_the_rows():
    study, results = fixtures.gap()
    cells = gather(results)
    beside = all_counterparts(cells, results, PrintedSources(study.published, fixtures.references(results)))
    for task in ("listops", "image"):
        scores, ledger = main_tables(cells, beside, task)
        heads = [c.name for c in scores.columns]
        for line in scores.rows[scores.quiet :]:
            shown = dict(zip(heads, line, strict=True))
            values = fixtures.scores_of(results, task=task, model=shown["Model"], protocol=shown["Protocol"])
            assert shown["Median\u00a0%"] == f"{statistics.median(values):.1f}"
            assert shown["Min to max"] == f"{min(values):.1f} to {max(values):.1f}"
            low, high = wilson(statistics.fmean(values) / 100, fixtures.EXAMPLES)
            assert shown["Test 95 %"] == f"{100 * low:.1f} to {100 * high:.1f}"
        assert [row[:2] for row in ledger.rows] == [row[:2] for row in scores.rows[scores.quiet :]]


def test_failures_are_counted_and_named(built: tuple[Path, list[Path]]):
    _, results = fixtures.gap()
    failed = {(c.arm.task, str(c.arm)): dict(c.failures) for c in gather(results).cells if c.failures}
    assert failed == {
        ("listops", "attention · scratch"): {"at chance": 1},
        ("image", "attention · spt_masked"): {"not finished": 1},
        ("image", "s4 · scratch"): {"diverged": 1},
    }
    html = re.sub("<[^>]*>", "", (built[0] / "report.html").read_text())
    assert "35 of 36 runs finished, 3 failed or at chance" in html and "runs failed or ended" not in html
    assert "image, attention · spt_masked, seed 2: not finished. Stopped by the system" in html
    assert "listops, attention · scratch, seed 2: at chance" in html
    assert "2 of 3" in html


def test_a_run_that_nobody_started_has_not_failed(tmp_path: Path):
    study, results = fixtures.gap()
    report.build(study, "minutes", replace(results, failures={}), tmp_path)
    html = re.sub("<[^>]*>", "", (tmp_path / "report.html").read_text())
    assert "35 of 36 runs finished, 2 failed or at chance" in html
    assert "image, attention · spt_masked, seed 2: not finished." in html, "but its cell is not whole"
    records = list(csv.DictReader(io.StringIO((tmp_path / "summary.csv").read_text())))
    (short,) = [record for record in records if record["unfinished"]]
    assert [short[key] for key in ("planned", "n", "failed", "unfinished")] == ["3", "2", "0", "1"]
    assert [short[key] for key in ("task", "model", "failures")] == ["image", "attention", ""]


def test_label_prior_counts_as_chance():
    """A model that always says the commonest label has learned nothing, though it beats uniform guessing."""
    _, results = fixtures.gap()
    stuck = [
        Row(**{**r, "value": 0.18, "status": "ok"}) if r.get("model") == "conv" and r.get("task") == "listops" else r
        for r in results.rows
    ]
    cells = gather(replace(results, rows=stuck)).of("listops")
    assert all(c.failures == {"at chance": 3} for c in cells if c.arm.model == "conv")


def test_a_study_that_learned_nothing_says_so_before_anything_else(tmp_path: Path):
    study, results = fixtures.extrapolation()
    stuck = [
        Row(**{**r, "value": 0.11}) if not r.get("at") and r.get("protocol") != "none" else r for r in results.rows
    ]
    quiet = replace(study, views=(ReportView("slices", "Slices"),))
    report.build(quiet, "minutes", replace(results, rows=stuck), tmp_path)
    assert "6 of 6 runs failed or ended at chance" in (tmp_path / "report.html").read_text()


def test_printed_numbers_stand_beside_with_their_difference():
    study, results = fixtures.gap()
    cells = gather(results)
    beside = all_counterparts(cells, results, PrintedSources(study.published, fixtures.references(results)))
    by_name = {(a.task, str(a)): m for a, m in beside.items()}
    printed = {(m.paper, m.table): m for m in by_name["image", "attention · scratch"]}
    assert printed["amos2025", "2"].value == 75.04 and printed["miralles2025", "4"].value == 58.84
    ours = statistics.median(fixtures.scores_of(results, task="image", model="attention", protocol="scratch"))
    assert printed["amos2025", "2"].difference == pytest.approx(ours - 75.04)
    assert by_name["image", "s4 · scratch"][0].where == "amos2025 table 2, quoting gu2022"
    assert not any(a.model == "conv" for a in beside), "no convolution is printed in those tables"


def test_a_model_is_matched_by_what_it_is_not_by_its_name():
    """Sinusoidal positions are another row of table 4 than rotary ones; no position encoding is none of them."""
    _, results = fixtures.gap()
    answers = [Published("miralles2025", "4")]
    cells = gather(results)

    def values(**fields: Any) -> set[float | None]:
        specs = {run: json.loads(json.dumps(spec)) for run, spec in results.specs.items()}
        for spec in specs.values():
            spec["model"]["positions"] = fields["positions"]
            spec["model"]["mixers"][0]["rotary"] = fields["rotary"]
            spec["protocol"]["name"] = "enriched"
        rows = [Row(**{**r, "protocol": "enriched"}) if r.get("protocol") == "scratch" else r for r in results.rows]
        changed = replace(results, rows=rows, specs=specs)
        found = all_counterparts(gather(changed), changed, PrintedSources(answers))
        return {m.value for a, matches in found.items() if a.task == "image" for m in matches}

    assert values(positions="sinusoidal", rotary="none") == {85.52}
    assert values(positions="learned", rotary="none") == {67.87}
    assert values(positions="none", rotary="across_heads") == {88.15}
    assert values(positions="none", rotary="none") == set()
    assert all(a.protocol == "scratch" for a in all_counterparts(cells, results, PrintedSources(answers)))


def test_printed_kernels_are_found_by_the_field_of_the_model():
    study, results = fixtures.locality()
    beside = all_counterparts(gather(results), results, PrintedSources(study.published, fixtures.references(results)))
    found = {(a.task, a.variant): m[0].value for a, m in beside.items()}
    wanted = {(r["task"], r["at"].replace("_size", "")): r["value"] for r in map(dict, published.rows("miralles2025", "1")) if r["metric"] == "accuracy"}  # fmt: skip  # noqa: E501
    assert found == {k: v for k, v in wanted.items() if k[0] in ("listops", "image")} and len(found) == 12


def test_r2_is_not_shown_in_percent():
    row: dict[str, Any] = {"run": "r", "task": "bidmc_hr", "model": "s4", "protocol": "scratch", "seed": 0}
    row |= {"metric": "r2", "unit": "fraction", "value": 0.987, "split": "test", "status": "ok", "n": 100}
    cells = gather(Results([Row(**row)], {"r": {"parameters": 1}}), "r2")
    scores, _ = main_tables(cells, {}, "bidmc_hr")
    assert "0.987" in scores.rows[0] and cells.unit == "fraction"


def test_a_run_without_its_ledger_does_not_render(tmp_path: Path):
    study, results = fixtures.gap()
    lost = next(iter(results.ledgers))
    without = replace(results, ledgers={k: v for k, v in results.ledgers.items() if k != lost})
    with pytest.raises(UserError, match=re.escape(lost)):
        report.build(study, "minutes", without, tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_finished_is_one_sentence(tmp_path: Path):
    study, results = fixtures.gap()
    with pytest.raises(UserError, match="no run of protocol_gap at effort smoke"):
        report.build(study, "smoke", Results(specs=results.specs), tmp_path)


def test_a_verdict_that_cannot_be_drawn_yet_says_so(tmp_path: Path):
    study, results = fixtures.extrapolation()
    hopeful = replace(study, verdict=lambda rows: str(rows[10**9]), views=(ReportView("compare", "Seeds"),))
    planned = {**results.specs, "another": next(iter(results.specs.values()))}
    report.build(hopeful, "minutes", replace(results, specs=planned), tmp_path)
    assert f"No verdict yet: 1 of {len(planned)} runs are missing" in (tmp_path / "report.html").read_text()


def test_a_verdict_that_fails_on_complete_runs_says_where(tmp_path: Path):
    study, results = fixtures.extrapolation()

    def faulty(rows: Sequence[Row]) -> str:
        return str(statistics.fmean(row["fitness"] for row in map(dict[str, Any], rows)))

    report.build(replace(study, verdict=faulty, views=(ReportView("compare", "Seeds"),)), "minutes", results, tmp_path)
    page, line = (tmp_path / "report.html").read_text(), faulty.__code__.co_firstlineno + 1
    assert "No verdict yet" not in page and "No verdict: no run is missing" in page
    assert re.search(rf"KeyError: .{{,8}}fitness.{{,8}}, in test_report.py, line {line}\)", page)


def test_nan_and_absent_values_are_absent():
    _, results = fixtures.gap()
    broken = [
        Row(**{**r, "value": math.nan}) if r.get("model") == "conv" and r.get("seed") == 1 else r for r in results.rows
    ]
    cells = gather(replace(results, rows=broken))
    conv = [c for c in cells.cells if c.arm.model == "conv"]
    assert all(c.summary and c.summary.n == 2 and c.failures == {"no score": 1} for c in conv)
    text = "".join("".join(row) for task in cells.tasks for row in main_tables(cells, {}, task)[0].rows)
    assert "nan" not in text.lower() and "-1" not in text


class Page(HTMLParser):
    """Checks that tags nest, and collects ids, links and whatever would load something."""

    VOID = frozenset(["meta", "br", "hr", "img", "link", "input", "col", "path", "use", "rect", "circle", "line"])

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.anchors: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        if name := found.get("id"):
            self.ids.append(name)
        if tag == "a":
            self.anchors.append(found.get("href") or "")
        for key in ("src", "srcset", "data", "poster") + (() if tag == "a" else ("href", "xlink:href")):
            target = found.get(key) or ""
            if target and not target.startswith(("#", "data:")):
                self.loads.append(f"{tag} {key}={target}")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
            self.open.pop()


def parse(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    assert page.open == []
    return page


def test_page_is_well_formed_and_self_contained(built: tuple[Path, list[Path]]):
    out, files = built
    page, text = parse(out / "report.html"), (out / "report.html").read_text()
    assert page.loads == [] and page.tags.count("script") == 1 and "@import" not in text
    assert not re.search(r"url\(\s*['\"]?(?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert {a[1:] for a in page.anchors if a.startswith("#")} <= set(page.ids)
    assert page.tags.count("svg") == 5 and page.tags.count("table") == 7 + 2 + 12 * 3 + 1
    assert all(f.exists() and f.stat().st_size > 0 for f in files) and files[0].name == "report.html"
    assert len(text) < 1_000_000


def test_page_says_the_important_things_in_order(built: tuple[Path, list[Path]]):
    text = (built[0] / "report.html").read_text()
    order = ["<h1>Self-pretraining lifts", "Claim: Training from scratch", "Not the printed recipe: effort minutes",
             "Knowingly different", 'id="figures"', 'id="scores"', "Ledger", 'id="arms"', 'id="cost"',
             'id="failures"', 'id="method"', "by Student&#x27;s t", 'id="sources"']  # fmt: skip
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "reproduced" not in text.lower()


def test_effort_paper_drops_the_warning(tmp_path: Path):
    study, results = fixtures.extrapolation()
    report.build(replace(study, views=(ReportView("compare", "Seeds"),)), "paper", results, tmp_path)
    assert "Not the printed recipe" not in (tmp_path / "report.html").read_text()


def test_hostile_names_are_text(tmp_path: Path):
    study, results = fixtures.hostile()
    few = replace(study, views=(ReportView("gap", "<b>Gap</b>"),))
    files = report.build(few, "minutes", results, tmp_path)
    page, text = parse(tmp_path / "report.html"), (tmp_path / "report.html").read_text()
    assert page.tags.count("script") == 1 and page.loads == []
    assert "<script>alert" not in text and "<b>Gap" not in text and "&lt;script&gt;alert" in text
    assert all(f.resolve().is_relative_to(tmp_path.resolve()) for f in files)
    for svg in (tmp_path / "figures").glob("*.svg"):
        assert "<script" not in svg.read_text()


def test_csv_files_hold_the_numbers(built: tuple[Path, list[Path]]):
    out, _ = built
    study, results = fixtures.gap()
    records = list(csv.DictReader(io.StringIO((out / "summary.csv").read_text())))
    arms = [r for r in records if r["protocol"] != "none"]
    assert len(arms) == 12 and {r["model"] for r in records if r["protocol"] == "none"} >= {"chance", "label_prior"}
    for r in arms:
        values = fixtures.scores_of(results, task=r["task"], model=r["model"], protocol=r["protocol"])
        assert float(r["median"]) == pytest.approx(statistics.median(values))
        ledgers = [results.ledgers[k] for k, a in arms_of(results).items() if k in results.ledgers and (a.task, a.model, a.protocol) == (r["task"], r["model"], r["protocol"])]  # fmt: skip  # noqa: E501
        assert float(r["flops"]) == statistics.median(ledger["flops"] for ledger in ledgers)
    assert len(list(csv.DictReader(io.StringIO((out / "rows.csv").read_text())))) == len(results.rows)
    assert study.claim not in (out / "summary.md").read_text()
    assert "| attention | scratch |" in (out / "summary.md").read_text()


def test_figures_are_the_same_twice_and_keep_text_as_text(built: tuple[Path, list[Path]]):
    _, results = fixtures.extrapolation()
    cells = gather(results)
    first, second = (axis_curves.curve(results, cells, "length", "accuracy") for _ in range(2))
    assert first is not None and second is not None and first == second
    assert "training length" in first.svg and "<text" in first.svg
    assert first.png.startswith(b"\x89PNG")
    svgs = [p.read_text() for p in (built[0] / "figures").glob("*.svg")]
    assert len(svgs) == 5 and all("http" not in style.inline(s, "x").replace("http://www.w3.org", "") for s in svgs)


def test_drawing_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    with pytest.raises(RuntimeError), style.canvas():
        raise RuntimeError
    assert dict(matplotlib.rcParams) == before


def test_the_documented_snippet_reports_on_run_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Rows and ledgers through files, as `store` keeps them, give the same cells as the values themselves."""
    study, results = fixtures.extrapolation()
    described = {"study": study.name, "effort": "minutes", "runs": results.specs}
    write_json(tmp_path / "runs" / "studies" / f"{study.name}-minutes.json", described)
    first = next(iter(results.ledgers))
    for run, ledger in results.ledgers.items():
        where = tmp_path / "runs" / run
        own = [{**r, "run": run} for r in results.rows if r.get("run", first) == run]
        write_rows(where / "rows.jsonl", [{k: v for k, v in r.items() if k not in ("study", "effort")} for r in own])
        write_json(where / "ledger.json", ledger)
        write_rows(where / "log.jsonl", results.curves[run])
        write_json(where / store.DONE, {})
    page = (ROOT / "docs" / "report.md").read_text()
    snippet, *_ = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"study": replace(study, views=(ReportView("slices", "Slices"),))}
    exec(compile(snippet, "docs/report.md", "exec"), names)
    assert names["files"][0] == Path("report/report.html") and names["files"][0].exists()
    assert gather(names["results"]).cells == gather(results).cells


def test_committed_results_are_reported_as_the_runs_were(tmp_path: Path):
    """The tables that a report leaves are enough to make its scores and its ledger again, with every run's settings
    where its id is still one of the study's."""
    study, results = fixtures.gap()
    kept = tmp_path / f"{study.name}-minutes"
    right = {run: Hits("exam", 9, bytes([number, 128])) for number, run in enumerate(results.ledgers)}
    report.build(study, "minutes", replace(results, hits=right), kept)
    assert committed.read(kept, study, "minutes").hits == right
    report.build(study, "minutes", results, kept)
    assert {committed.find(folder, study.name, "minutes") for folder in (tmp_path, kept)} == {kept}
    again = committed.read(kept, study, "minutes")
    assert (again.rows, again.specs, again.hits) == (results.rows, results.specs, {}), "earlier hits are removed"
    new, old = gather(again), gather(results)
    assert [c.arm for c in new.cells] == [c.arm for c in old.cells]
    assert [c.cost("flops") for c in new.cells] == [c.cost("flops") for c in old.cells]
    assert [c.summary for c in new.cells] == [c.summary for c in old.cells]
    with pytest.raises(UserError, match=f"holds {study.name} at effort minutes, not {study.name} at effort hours"):
        committed.read(kept, study, "hours")


def test_report_never_loads_torch():
    code = "import levelfield.report, levelfield.report.query, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.browser
def test_page_opens_in_a_browser(built: tuple[Path, list[Path]], tmp_path: Path):
    browser = program()
    from PIL import Image

    shot: Callable[[str], Path] = lambda name: tmp_path / f"{name}.png"  # noqa: E731
    flags = ["--headless", "--no-sandbox", "--hide-scrollbars", "--enable-logging=stderr", "--log-level=0"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--disable-gpu", "--window-size=1200,2400"]
    for name, extra in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
        command = [browser, *flags, *extra, f"--screenshot={shot(name)}", (built[0] / "report.html").as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0 and "CONSOLE" not in done.stderr
        pixels = Image.open(shot(name)).convert("L")
        assert len(pixels.getcolors() or range(256)) > 50, "a page with text and figures has many greys"
    corners = [Image.open(shot(name)).convert("L").getpixel((5, 5)) for name in ("light", "dark")]
    assert corners[0] > 200 > 60 > corners[1]  # type: ignore[operator]


def test_the_page_says_where_the_data_are_from(built: tuple[Path, list[Path]]) -> None:
    """One line a task, from the study itself: no arrays are needed."""
    study, _ = fixtures.gap()
    page = (built[0] / "report.html").read_text()
    for task in {run.task for run in study.runs("minutes")}:
        assert page.count(f"<li>{task.name}: {task.source} Splits: {task.split_rule}</li>") == 1
