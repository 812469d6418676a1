"""Every number of a report leads to its rows: each link is followed, and what it leads to is compared with rows.csv."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import fixtures_rows as fixtures
import pytest
from read_page import Line, Page, lines, text
from repository import ROOT

from levelfield import report
from levelfield.report import links, row_lists
from levelfield.report.decisions import Contrast, Span, difference
from levelfield.report.verdicts import Key, Table, ahead, percent_of
from levelfield.spec import ReportView, Row, Study

QUIET = (ReportView("gap", "Gap"),)  # as few figures as there can be
THEIRS = ("Printed", "Source")  # columns of printed numbers, which lead to cells of papers' tables


def main_tables(page: Page) -> Iterator[tuple[bool, Line]]:
    """Yields whether it is of a ledger, and the row."""
    task = ""
    for each in page.by_id["scores"]:
        if each.tag == "h3":
            task = text(each).partition(":")[0]
        for table in each.iter("table"):
            for line in lines(table, task):
                yield table.find("caption") is not None, line


@pytest.fixture(scope="module")
def gap(tmp_path_factory: pytest.TempPathFactory) -> Page:
    out = tmp_path_factory.mktemp("gap")
    study, results = fixtures.gap()
    report.build(replace(study, views=QUIET), "minutes", results, out)
    return Page(out / "report.html", out / "rows.csv")


@pytest.fixture(scope="module")
def kept() -> Page:
    return Page(ROOT / "docs" / "reports" / "demo.html", ROOT / "results" / "demo-minutes" / "rows.csv")


@pytest.mark.parametrize("name", ["gap", "kept"])
def test_every_score_leads_to_the_rows_it_is_computed_from(name: str, request: pytest.FixtureRequest) -> None:
    page: Page = request.getfixturevalue(name)
    followed = 0
    for ledger, line in main_tables(page):
        if ledger or line.quiet:
            continue
        shown = line.texts
        ours = (cell for name, cell in line.cells.items() if name not in THEIRS)
        (target,) = {page.target(link) for cell in ours for link in cell.iter("a")}
        listed = list(lines(next(target.iter("table"))))
        values = {each.texts["Run"]: float(t) for each in listed if (t := each.texts["accuracy %"]) != "–"}
        assert values == pytest.approx(page.scores(task=line.task, model=shown["Model"], protocol=shown["Protocol"]))
        assert float(shown["Median %"]) == pytest.approx(statistics.median(values.values()), abs=0.0501)
        assert f"mean {statistics.fmean(values.values()):.1f}" in text(target)
        low, high = shown["Min to max"].split(" to ")
        assert (float(low), float(high)) == pytest.approx((min(values.values()), max(values.values())), abs=0.0501)
        assert int(shown["Seeds"].split(" of ")[-1]) == len(listed)
        failed = sum(map(int, re.findall(r"\d+", shown["Failed"])))
        assert failed == sum(each.texts["Ended"] != "ok" for each in listed)
        followed += 1
    assert followed == {"gap": 12, "kept": 8}[name]


def test_every_measured_number_of_the_tables_is_a_link_and_each_row_is_one_stop_of_the_tab_key(gap: Page) -> None:
    for _, line in main_tables(gap):
        stops = 0
        for name, cell in line.cells.items():
            if name in THEIRS:
                continue
            measured = cell.get("class") == "number" and line.texts[name] not in ("", "–")
            assert (cell.find("a") is not None) is measured, (name, line.texts)
            stops += sum(link.get("tabindex") is None for link in cell.iter("a"))
        assert stops == 1
    assert gap.lost() == []


def test_costs_lead_to_the_ledger_of_each_run(gap: Page) -> None:
    _, results = fixtures.gap()
    for ledger, line in main_tables(gap):
        if not ledger:
            continue
        target = gap.target(next(line.cells["Wall time"].iter("a")))
        scores, costs = (list(lines(table)) for table in list(target.iter("table"))[:2])
        runs = {each.texts["Seed"]: each.texts["Run"] for each in scores}
        for each in costs:
            cost = results.ledgers[runs[each.texts["Seed"]]]
            seconds, minutes = f"{cost['wall_s']:.3g} s", f"{cost['wall_s'] / 60:.3g} min"
            assert each.texts["Wall time"] == (seconds if cost["wall_s"] < 120 else minutes)
            assert each.texts["Parameters"] == f"{cost['parameters'] / 1000:.0f} k"
        times = [float(each.texts["Wall time"].split()[0]) for each in costs]
        assert float(line.texts["Wall time"].split()[0]) == pytest.approx(statistics.median(times), rel=0.01)


def test_rules_lead_to_their_rows_and_failures_to_their_runs(gap: Page) -> None:
    quiet = [line for ledger, line in main_tables(gap) if line.quiet and not ledger]
    assert len(quiet) == 5
    for line in quiet:
        target = gap.target(next(line.cells["Median %"].iter("a")))
        by_rule = {each.texts["Rule"]: each.texts["Score %"] for each in lines(next(target.iter("table")))}
        assert f"{float(by_rule[line.texts['Model']]):.1f}" == line.texts["Median %"]
        own = gap.scores(task=line.task, model=line.texts["Model"].replace(" rule", "").replace(" ", "_"))
        assert float(by_rule[line.texts["Model"]]) == pytest.approx(next(iter(own.values())))
    failed = list(gap.by_id["failures"].iter("li"))
    assert len(failed) == 3
    for item in failed:
        (link,) = item.iter("a")
        ended = {each.texts["Seed"]: each.texts["Ended"] for each in lines(next(gap.target(link).iter("table")))}
        assert ended[text(link).removeprefix("seed ")] in text(item)


def test_counts_of_runs_above_the_verdict_lead_to_the_rows_and_to_the_runs_that_failed(tmp_path: Path) -> None:
    study, results = fixtures.gap()
    guessing = [Row(**{**r, "value": 0.1}) if r.get("run") and r.get("value") else r for r in results.rows]
    report.build(replace(study, views=QUIET), "minutes", replace(results, rows=guessing), tmp_path)
    page = Page(tmp_path / "report.html", tmp_path / "rows.csv")
    counts = {text(a): page.target(a) for a in next(page.root.iter("header")).iter("a") if "of 36" in text(a)}
    failed = "36 of 36 runs failed or ended at chance"
    assert counts == {"35 of 36 runs finished": page.by_id["rows"], failed: page.by_id["failures"]}
    assert len(list(page.by_id["failures"].iter("li"))) == 36


def test_the_way_back_is_the_number_that_led_there(gap: Page) -> None:
    for _, line in main_tables(gap):
        first = next(link for cell in line.cells.values() for link in cell.iter("a"))
        back = next(link for link in gap.target(first).iter("a") if text(link) == "Back to the table")
        assert gap.target(gap.target(back)) is gap.target(first)
        assert first.get("id") in (None, back.attrib["href"][1:])


def told(rows: list[Row]) -> str:
    """A verdict with four numbers: a rule's, two arms that score alike, and one of them beyond its length."""
    whole, longer = Table.of(rows), Table.of(rows, "length")
    own, other = (Key("listops", name, "scratch") for name in ("s4", "conv"))
    rule = whole.rule("listops", only=("greedy_root",))
    return (
        f"S4 has {whole.cells[own]}. On listops the convolution has {whole.cells[other]}, the {rule}, and at 1600 "
        f"steps it has {longer.cells[other._replace(place='1600')]}."
    )


def alike() -> tuple[Study, fixtures.Results]:
    """A study of which two arms have the very same scores."""
    study, results = fixtures.extrapolation()
    mine = [r for r in results.rows if r.get("model") == "s4" and r.get("split") == "test"]
    values = {(r.get("seed"), r.get("at")): r.get("value", 0.0) for r in mine}
    rows = [
        Row(**{**r, "value": values[r.get("seed"), r.get("at")]})
        if r.get("model") == "conv" and r.get("split") == "test"
        else r
        for r in results.rows
    ]
    return replace(study, views=QUIET, verdict=told), replace(results, rows=rows)


def test_numbers_of_the_verdict_lead_to_their_own_arm_even_where_two_are_alike(tmp_path: Path) -> None:
    study, results = alike()
    report.build(study, "minutes", results, tmp_path)
    page = Page(tmp_path / "report.html", tmp_path / "rows.csv")
    head = next(page.root.iter("header"))
    first, second, rule, longer = (
        link for each in head if each.tag in ("h1", "p") for link in each.iter("a") if "%" in text(link)
    )
    assert text(first) == text(second), "the two arms are alike"
    for link, model in ((first, "s4"), (second, "conv")):
        listed = [each.texts for each in lines(next(page.target(link).iter("table")))]
        assert [f"-{model}-" in texts["Run"] for texts in listed] == [True, True]
        values = [float(texts["accuracy %"]) for texts in listed]
        assert text(link).startswith(f"{statistics.median(values):.1f} %")
    assert "greedy root" in text(page.target(rule)) and text(rule) == "40.5 %"
    row = page.target(longer)
    assert row.tag == "tr" and text(row[0]) == "length=1600"
    placed = [100 * float(r["value"]) for r in page.rows if r["model"] == "conv" and r["at"] == "length=1600"]
    assert [float(text(cell)) for cell in row[3:]] == pytest.approx(placed, abs=0.006)
    assert "\ue000" not in (tmp_path / "report.html").read_text() and told(list(results.rows)).isprintable()


@pytest.mark.parametrize("most", [6, 2])
def test_a_page_has_so_many_rows_and_says_where_the_others_are(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_lists, "LINES", most)
    study, results = alike()
    report.build(study, "minutes", results, tmp_path)
    page = Page(tmp_path / "report.html", tmp_path / "rows.csv")
    assert page.lost() == []
    for model in ("attention", "s4", "conv"):
        target = page.by_id[f"rows-listops-{model}-scratch-accuracy"]
        tables = [table for table in target.iter("table") if "Ledger" not in text(table)]
        assert len(tables) == (most > 2) + (model == "conv"), "what the verdict names is never left out"
        listed = [line.texts for table in tables for line in lines(table)]
        rows = sum(1 if "Run" in texts else sum(name.startswith("Seed") for name in texts) for texts in listed)
        where = r"(\d+) more rows of this arm are in rows.csv, where task is listops, model is (\w+)"
        found = re.search(where, text(target))
        assert found is not None and found[2] == model
        assert int(found[1]) + rows == sum(row["model"] == model for row in page.rows)


def test_names_that_break_out_of_anchors_do_not(tmp_path: Path) -> None:
    study, results = fixtures.hostile()
    report.build(replace(study, views=QUIET), "minutes", results, tmp_path)
    page = Page(tmp_path / "report.html", tmp_path / "rows.csv")
    assert page.lost() == []
    names = [each.get("id", "") for each in page.by_id["rows"].iter() if each.get("id", "").startswith("rows-")]
    assert len(set(names)) == len(names) == 12 and all(re.fullmatch(r"[\w.-]+", name) for name in names)


def test_marks_are_links_in_html_and_nothing_elsewhere() -> None:
    marked = f"It has {links.marked('59.6 %', 'rows-a.b_c-1')} and {links.marked('7', '')}."
    assert links.linked(marked) == 'It has <a href="#rows-a.b_c-1">59.6 %</a> and 7.'
    assert links.plain(marked) == "It has 59.6 % and 7." and links.cited(marked) == {"rows-a.b_c-1"}
    cut = links.marked("59.6 %", "rows-a")
    assert links.linked(cut[:-3]) == links.plain(cut[:-3]) == "59.6"
    assert links.linked(links.marked("x", 'a"onclick="b')) == "x"
    assert links.slug("rows", "length=200", "a  b/c") == "rows-length-200-a-b-c"


def summed(rows: list[Row]) -> str:
    """A verdict of four numbers that are computed: a difference, it beyond a limit, a mean of places, and a share."""
    whole, longer = Table.of(rows), Table.of(rows, "length")
    own, other = (whole.cells[Key("listops", name, "scratch")] for name in ("s4", "attention"))
    far = longer.cells[Key("listops", "s4", "scratch", "1600")]
    rule = whole.rule("listops", only=("greedy_root",))
    assert rule is not None
    span = Span(12.5, 11.0, 14.0, (*difference(own, other).led, (-3.0, "")))
    share = percent_of(difference(other, rule.score), difference(own, rule.score))
    mean = Contrast(((0.5, own), (0.5, far)))
    return (
        f"Apart by {difference(own, other).shown}, {ahead(difference(other, own))}. Beyond it {span}. "
        f"On average {mean.told(f'{mean.value:.1f} %')}, and {share} of the gain."
    )


def term(page: Page, link: Element) -> float:
    """Returns the mean of the rows of the file to which a line of a sum leads."""
    anchor, target = link.attrib["href"][1:], page.target(link)
    if anchor.startswith("rules-"):
        name = text(target[0]).replace(" rule", "").replace(" ", "_")
        return next(iter(page.scores(task="listops", model=name).values()))
    model = anchor.split("-")[2]
    if target.tag == "tr":
        placed = [float(row["value"]) for row in page.rows if row["model"] == model and row["at"] == text(target[0])]
        return 100 * statistics.fmean(placed)
    return statistics.fmean(page.scores(task="listops", model=model, protocol="scratch").values())


def test_numbers_that_are_computed_lead_to_a_sum_whose_terms_lead_to_their_rows(tmp_path: Path) -> None:
    study, results = fixtures.extrapolation()
    report.build(replace(study, views=QUIET, verdict=summed), "minutes", results, tmp_path)
    page = Page(tmp_path / "report.html", tmp_path / "rows.csv")
    assert page.lost() == []
    head = next(page.root.iter("header"))
    links = [link for link in head.iter("a") if link.attrib["href"].startswith("#computed~")]
    assert len(links) == 5
    for link in links:
        found, total = [], 0.0
        for line in lines(next(page.target(link).iter("table"))):
            times, shown = line.texts["Times"].replace("−", "-"), line.texts["Comes to"].replace("−", "-")
            if times:
                value = float(times) * term(page, next(line.cells["Mean %"].iter("a")))
                assert float(shown) == pytest.approx(value, abs=0.006)
                assert float(line.texts["Mean %"]) * float(times) == pytest.approx(value, abs=0.006)
                total += value
            elif line.texts["Mean of"] == "the limit of the question":
                total += float(shown)
            elif line.texts["Mean of"] == "together":
                assert float(shown) == pytest.approx(total, abs=0.01)
                found.append(total)
                total = 0.0
        told = float(re.findall(r"[+-]?\d+(?:\.\d+)?", text(link))[0])
        if "interval" in text(link):
            assert found == [pytest.approx(_apart(page) - 3.0)], "its own limit is a term"
        elif len(found) == 2:
            assert told == pytest.approx(100 * found[0] / found[1], abs=0.51)
        else:
            assert told == pytest.approx(abs(found[0]) if "+" not in text(link) else found[0], abs=0.051)


def _apart(page: Page) -> float:
    first, second = (page.scores(task="listops", model=name, protocol="scratch") for name in ("s4", "attention"))
    return statistics.fmean(first.values()) - statistics.fmean(second.values())


def test_numbers_of_the_kept_page_that_are_computed_are_what_their_rows_come_to(kept: Page) -> None:
    assert kept.lost() == []
    head = next(kept.root.iter("header"))
    links = [link for link in head.iter("a") if link.attrib["href"].startswith("#computed~")]
    assert len(links) >= 5
    for link in links:
        found = list(lines(next(kept.target(link).iter("table"))))
        for line in (line for line in found if line.texts["Times"]):
            listed = kept.target(next(line.cells["Mean %"].iter("a")))
            if listed.tag == "div":
                values = [float(each.texts["accuracy %"]) for each in lines(next(listed.iter("table")))]
                assert float(line.texts["Mean %"]) == pytest.approx(statistics.fmean(values), abs=1e-3)
        told = float(re.findall(r"[+-]?\d+(?:\.\d+)?", text(link))[0])
        last = float(found[-1].texts["Comes to"].removesuffix(" %").replace("−", "-"))
        assert told == pytest.approx(last, abs=0.51 if text(link).endswith("%") else 0.051)


def test_marks_of_figures_lead_to_the_arm_whose_scores_they_show(gap: Page) -> None:
    """Along the axis of a panel a mark lies where its list says: one line takes all scores to all places."""
    places: dict[str, list[tuple[float, float]]] = {}
    for link in (link for svg in gap.by_id["figures"].iter("svg") for link in svg.iter("a")):
        anchor = link.attrib["xlink:href"].removeprefix("#")
        assert link.get("tabindex") == "-1" and "target" not in link.attrib
        listed = list(lines(next(gap.by_id[anchor].iter("table"))))
        scores = sorted(float(t) for each in listed if (t := each.texts["accuracy %"]) != "–")
        xs = sorted(float(mark.attrib["x"]) for mark in link.iter("use"))
        shown = [statistics.median(scores)] if len(xs) == 1 < len(scores) else scores
        places.setdefault(anchor.split("-")[1], []).extend(zip(shown, xs, strict=True))
    assert len(places) == 2
    for found in places.values():
        (low, left), (high, right) = min(found), max(found)
        assert len(found) > 12 and all(
            x == pytest.approx(left + (score - low) * (right - left) / (high - low), abs=0.02) for score, x in found
        )


def test_the_file_of_a_figure_leads_to_the_page_beside_its_folder(tmp_path: Path) -> None:
    study, results = fixtures.gap()
    report.build(replace(study, views=QUIET), "minutes", results, tmp_path)
    found = re.findall(r'<a xlink:href="([^"#]*)#([^"]*)"', (tmp_path / "figures" / "gap.svg").read_text())
    page = Page(tmp_path / "report.html", tmp_path / "rows.csv")
    assert {(tmp_path / "figures" / path).resolve() for path, _ in found} == {(tmp_path / "report.html").resolve()}
    assert {anchor for _, anchor in found} <= page.by_id.keys()
