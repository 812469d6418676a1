"""Every number of a language model's page leads to its rows: each link is compared with rows.csv, read by csv."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import pytest
from read_page import Line, Page, leads, lightness, lines, stored, text
from repository import ROOT

from levelfield.report import longcontext
from levelfield.report.longcontext import Part
from levelfield.report.plain_lists import ListLine, PlainIndex, section
from levelfield.spec import Row
from levelfield.spec.gap import Gap, Share

SHARES = {
    "length=4096": Gap(Share(0.9, 12, 12), Share(0.65, 8, 8)),
    "length=1024": Gap(Share(0.5, 10, 10), Share(0.75, 10, 10)),
}


def asked(seed: int) -> tuple[list[Row], list[Row]]:
    """Rows of the committed report, with scores that differ, and of sets beside RULER's; and rows of its baselines."""
    draw = random.Random(seed)
    rows = stored(ROOT / "results" / "ruler-aidreams260K" / "rows.csv")
    rows = [row | Row(at=row.get("at", "").replace("2048", "4096")) for row in rows]
    own = [row | Row(value=round(draw.uniform(20, 100), 3)) for row in rows if row.get("protocol") != "none"]
    own = [row | Row(value=gap(row)) if row.get("metric") == "middle_gap" else row for row in own]
    base = Row(task="walks_bfs", model="aidreams260K", protocol="pretrained", split="test", unit="percent", n=5)
    for at, value in (("length=1024", 71.0), ("length=1024,kind=far", 60.5), ("length=1024,kind=near", 81.5)):
        own += [base | Row(metric=metric, at=at, value=value + seed) for metric in ("accuracy", "strict_accuracy")]
    own += [base | Row(metric="thinking_tokens", at=at, unit="tokens", value=300.0 + seed) for at in SHARES]
    return own, [row for row in rows if row.get("protocol") == "none"]


def gap(row: Row) -> float:
    found = SHARES[row.get("at", "")]
    return 100 * (found.outer.mean - found.inner.mean)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A page of two parts, without figures, which no number here needs."""
    out = tmp_path_factory.mktemp("ruler")
    parts = []
    for seed, name in enumerate(("official base", "paper base")):
        rows, baselines = asked(seed)
        places = [(row.get("task", ""), row.get("at", "")) for row in rows if row.get("metric") == "middle_gap"]
        gaps = {(task, int(at.removeprefix("length="))): SHARES[at] for task, at in places}
        parts.append(Part(name, rows, baselines, gaps, variant=name.split()[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Part, "figures", {})
        longcontext.build("aidreams260K", parts, out)
    return Page(out / "report.html", out / "rows.csv")


class OfPart(NamedTuple):
    """A table's line, the title of its table's part and the rows of the file that are of this part."""

    heading: str
    line: Line
    rows: list[dict[str, str]]


def tables(page: Page) -> Iterator[OfPart]:
    """Yields the lines of all tables but the lists of rows."""
    half = len(page.rows) // 2
    rows, heading = {"official base": page.rows[:half], "paper base": page.rows[half:]}, ""
    for each in page.root.iter():
        if each is page.by_id["rows"]:
            return
        heading = text(each) if each.tag == "h2" else heading
        for line in lines(each) if each.tag == "table" else ():
            yield OfPart(heading, line, rows[heading])


def value(rows: list[dict[str, str]], **names: str) -> str:
    names |= {"protocol": "pretrained"}
    (found,) = (row for row in rows if all(row[key] == name for key, name in names.items()))
    return found["value"]


def listed(page: Page, link: Element) -> list[dict[str, str]]:
    """Returns the lines of the list to which a link leads; of a line, that alone."""
    target = page.target(link)
    around = next(each for each in page.by_id["rows"].iter("div") if each.get("id") and target in each.iter())
    (table,) = around.iter("table")
    found = zip(table.iterfind("tbody/tr"), lines(table), strict=True)
    return [line.texts for row, line in found if target in (row, around)]


def test_every_measured_number_is_a_link_and_nothing_leads_nowhere(page: Page) -> None:
    assert page.lost() == []
    names = [each.get("id") for each in page.root.iter() if each.get("id")]
    assert len(names) == len(set(names)) > 100, "no anchor is there twice"
    for _, line, _ in tables(page):
        ours = line.texts.get("from", "asked here") == "asked here"
        links = [name for name, cell in line.cells.items() if list(cell.iter("a"))]
        numbers = [name for name, cell in line.cells.items() if cell.get("class") == "number" and text(cell)]
        assert links == ([name for name in numbers if name != "length"] if ours else []), line.texts


def test_scores_lead_to_their_rows_and_back(page: Page) -> None:
    followed = 0
    for heading, line, rows in tables(page):
        if list(line.texts) != ["task", "1024", "4096"] or "mean of" in line.texts["task"]:
            continue
        first, *others = (link for cell in line.cells.values() for link in cell.iter("a"))
        back = next(link for link in page.target(first).iter("a") if text(link) == "Back to the table")
        assert page.target(back) is first and heading.replace(" ", "-") in first.attrib["href"]
        for length in ("1024", "4096"):
            if shown := line.texts[length]:
                where = {"task": line.texts["task"], "at": f"length={length}"}
                own = [float(value(rows, metric=metric, **where)) for metric in ("accuracy", "strict_accuracy")]
                assert shown == "{:.1f} ({:.1f})".format(*own)
                here = {(each["Where"], each["Metric"]): _signed(each["Value"]) for each in listed(page, first)}
                assert [here[where["at"], metric] for metric in ("accuracy", "strict accuracy")] == own
                followed += 1
        for link in others:
            (row,) = listed(page, link)
            assert f"{float(row['Value']):.1f} (" in text(link) and row["Metric"] == "accuracy"
    assert followed == 2 * 26


def test_baselines_lead_to_the_rows_of_which_they_are_the_mean(page: Page) -> None:
    found = [each for each in tables(page) if "mean of" in each.line.texts.get("task", "")]
    assert len(found) == 4
    for _, line, rows in found:
        name = line.texts["task"].partition(",")[0]
        here = listed(page, next(link for cell in line.cells.values() for link in cell.iter("a")))
        for length in ("1024", "4096"):
            shown = {each["Task"]: float(each["Value"]) for each in here if each["Where"] == f"length={length}"}
            own = {r["task"]: float(r["value"]) for r in rows if (r["model"], r["at"]) == (name, f"length={length}")}
            assert shown == pytest.approx(own, abs=1e-4)
            assert line.texts[length] == f"{statistics.fmean(own.values()):.1f}"


def test_gaps_and_kinds_of_questions_lead_to_their_lines(page: Page) -> None:
    gaps = kinds = 0
    for _, line, rows in tables(page):
        for link in (link for cell in line.cells.values() for link in cell.iter("a")):
            if "gap" in line.texts:
                (row,) = listed(page, link)
                where = {"task": line.texts["task"], "at": f"length={line.texts['length']}", "metric": "middle_gap"}
                assert (row["Where"], row["Metric"]) == (where["at"], "middle gap")
                assert text(link).split()[0] == f"{float(value(rows, **where)):+.1f}" == f"{_signed(row['Value']):+.1f}"
                around = next(
                    d for d in page.by_id["rows"].iter("div") if page.target(link) in d.iter("tr") and d.get("id")
                )
                said = re.search(rf"The gap at {line.texts['length']}: (\S+) % of \d+ in .*?, (\S+) % of", text(around))
                assert said and float(said[1]) - float(said[2]) == pytest.approx(_signed(row["Value"]))
                gaps += 1
            if "questions" in line.texts:
                here = [
                    each for each in listed(page, link) if line.texts["questions"].replace(": ", "=") in each["Where"]
                ]
                assert f"{float(here[0]['Value']):.1f} (n=5)" == text(link)
                kinds += 1
    assert gaps > 10 and kinds == 4


def _signed(shown: str) -> float:
    return float(shown.replace("−", "-"))


def test_effective_lengths_lead_to_averages_and_those_to_the_tasks_they_are_of(page: Page) -> None:
    half = len(page.rows) // 2
    said = [p for p in page.root.iter("p") if text(p).startswith("Effective length")]
    assert len(said) == 4, "by both rules in both parts"
    for rows, sentence in zip((page.rows[:half], page.rows[half:]), said[::2], strict=True):
        (link,) = sentence.iter("a")
        tasks = [text(each) for each in page.target(link).iter("a")]
        assert len(tasks) == 13, "those that the longer length has"
        for each in page.target(link).iter("a"):
            assert page.target(each).get("id", "").endswith(re.sub(r"\W", "-", text(each)))
        for row in listed(page, link):
            if row["Metric"] == "average":
                own = [float(value(rows, task=task, at=row["Where"], metric="accuracy")) for task in tasks]
                assert float(row["Value"]) == pytest.approx(statistics.fmean(own), abs=1e-4)


def test_tokens_of_thought_lead_to_their_rows(page: Page) -> None:
    for said in (p for p in page.root.iter("p") if "It thought for" in text(p)):
        (link,) = said.iter("a")
        shown = [float(each["Value"]) for each in listed(page, link)]
        assert len(shown) == 2 and text(link) == f"{statistics.fmean(shown):.0f} tokens"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a page with figures."""
    out = tmp_path_factory.mktemp("drawn")
    rows, baselines = asked(0)
    longcontext.build("m", [Part("", rows, baselines)], out)
    return out


def test_points_of_curves_by_group_lead_to_averages_of_their_tasks(drawn: Path) -> None:
    page = Page(drawn / "report.html", drawn / "rows.csv")
    places = dict[tuple[str, ...], list[tuple[float, float]]]()
    for link in curves(page, "#computed"):
        ((row,), (use,)) = listed(page, link), link.iter("use")
        inside = next(d for d in page.by_id["rows"].iter("div") if d.get("id") and page.target(link) in d.iter("tr"))
        tasks = tuple(text(task) for task in inside.iter("a") if leads(task).startswith("#rows"))
        own = [float(value(page.rows, task=task, at=row["Where"], metric="accuracy")) for task in tasks]
        assert row["Metric"] == "average" and float(row["Value"]) == pytest.approx(statistics.fmean(own), abs=1e-4)
        assert float(row["95 % from"]) < float(row["Value"]) < float(row["to"])
        places.setdefault(tasks, []).append((float(row["Value"]), float(use.attrib["y"])))
    asked_for = {row["task"] for row in page.rows if row["protocol"] != "none"} - {"ruler_average"}
    assert {task for tasks in places for task in tasks} == asked_for
    both = [found for found in places.values() if len(found) == 2]
    slopes = [(above - below) / (more - less) for (less, below), (more, above) in both]
    assert len(places) == 6 and len(slopes) == 3
    assert slopes == pytest.approx([slopes[0]] * 3, rel=1e-3) and slopes[0] < 0, "the higher the more"


def test_grey_lines_of_printed_averages_lead_to_their_rows(drawn: Path) -> None:
    page = Page(drawn / "report.html", drawn / "rows.csv")
    table = next(each for each in page.root.iter("table") if "RULER's public table" in text(each))
    rows = dict(zip(table.iterfind("tbody/tr"), lines(table), strict=True))
    shown = []
    for link in curves(page, "#printed"):
        score = float(rows[page.target(link)].texts["4096"])
        shown += [(score, float(use.attrib["y"])) for use in link.iter("use")]
    assert len(shown) > 40, "of every printed model the point at the one length that has all tasks"
    (low, bottom), *_, (high, top) = sorted(shown)
    places = [bottom + (score - low) * (top - bottom) / (high - low) for score, _ in shown]
    assert [place for _, place in shown] == pytest.approx(places, abs=0.1), "the table has one decimal"


def curves(page: Page, to: str) -> list[Element]:
    """The links of the curves by group that lead to such places."""
    (figure,) = (each for each in page.root.iter("figure") if text(each).startswith("Scores by group"))
    return [link for link in figure.iter("a") if leads(link).startswith(to)]


def test_cells_of_heat_maps_lead_to_their_lines_from_the_page_and_from_the_file_beside_it(drawn: Path) -> None:
    page = Page(drawn / "report.html", drawn / "rows.csv")
    assert page.lost() == []
    for name, title, keys in (("tasks", "Tasks by length", ["length"]), ("depth", "Needles by", ["length", "depth"])):
        (figure,) = (each for each in page.root.iter("figure") if text(each).startswith(title))
        marks = list(figure.iter("a"))
        shown = []
        for link in marks:
            (row,) = listed(page, link)
            assert row["Metric"] == "accuracy" and re.findall(r"(\w+)=", row["Where"]) == keys
            shown.append((float(row["Value"]), lightness(next(link.iter("path")))))
        cells = [r for r in page.rows if r["metric"] == "accuracy" and re.findall(r"(\w+)=", r["at"]) == keys]
        own = [r["value"] for r in cells if r["protocol"] != "none"]
        assert len(set(map(leads, marks))) == len(marks) == len(own) > 20
        assert sorted(value for value, _ in shown) == pytest.approx(sorted(map(float, own)), abs=1e-4)
        shades = [shade for _, shade in sorted(shown)]
        assert all(a <= b + 2 for a, b in pairwise(shades)) and shades[-1] > shades[0] + 50, "the higher the lighter"
        assert f'xlink:href="report.html{leads(marks[0])}"' in (drawn / f"{name}.svg").read_text()


def test_a_list_that_is_too_long_is_cut_and_what_is_cut_leads_to_the_list() -> None:
    rows = [Row(task=task, metric="accuracy", at=f"length={n}", value=float(n)) for task in "ab" for n in range(5)]
    index = PlainIndex.of([(ListLine((r.get("task", ""),), (r.get("at", ""),)), r) for r in rows], lines=6)
    assert [row.get("anchor") for row in index.rows[:5]] == [f"rows-a-length-{n}" for n in range(3)] + ["rows-a"] * 2
    html = section(index.lists.values(), "Read.", [])
    assert html.count("2 more rows of") == 2 and html.count("<tr id=") == 6 and "Back to" not in html
