"""Each mark of a figure leads to the rows that it shows: it lies, is coloured or is called as those rows say."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import fixtures_rows as fixtures
import pytest
from read_page import Page, leads, lightness, lines, text

from levelfield import published, report
from levelfield.report import row_lists, tuning
from levelfield.report.arms import Arm
from levelfield.report.axis_curves import lines_along
from levelfield.report.links import printed_anchor
from levelfield.runs.results import Results
from levelfield.spec import ReportView, Row, Study

LEFT_OUT = "length=800,depth=5"  # a cell of the heat map without rows


def drawn(to: Path, study: Study, results: Results, references: Sequence[tuple[Arm, Any]] = ()) -> Page:
    report.build(study, "minutes", results, to, references)
    page = Page(to / "report.html", to / "rows.csv")
    assert page.lost() == []
    assert {link.get("tabindex") for svg in page.root.iter("svg") for link in svg.iter("a")} <= {"-1"}
    return page


def hot() -> tuple[Study, Results]:
    """The study of lengths, with a needle at several depths."""
    study, results = fixtures.extrapolation()
    scores = [r for r in results.rows if r.get("run") and r.get("split") == "test" and not r.get("at")]
    places = [(length, depth) for length in (200, 400, 800) for depth in (0, 5, 10)]
    more = [
        Row(**{**r, "at": at, "value": r.get("value", 0.0) * (1 - length / 2000) * (1 - depth / 25)})
        for r in scores
        for length, depth in places
        if (at := f"length={length},depth={depth}") != LEFT_OUT
    ]
    views = (*study.views, ReportView("heat", "By depth", axis="depth"))
    return replace(study, views=views), replace(results, rows=[*results.rows, *more])


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return drawn(tmp_path_factory.mktemp("placed"), *hot())


@pytest.fixture(scope="module")
def gap(tmp_path_factory: pytest.TempPathFactory) -> Page:
    study, results = fixtures.gap()
    return drawn(tmp_path_factory.mktemp("gap"), replace(study, views=(ReportView("training", "Training"),)), results)


def links(page: Page, title: str) -> list[Element]:
    """The links of all figures whose title begins so."""
    figures = (f for f in page.root.iter("figure") if text(f).lstrip().startswith(title))
    return [link for figure in figures for link in figure.iter("a")]


def scores(page: Page, link: Element) -> list[float]:
    """What the rows to which a mark leads say, one score for each seed."""
    target = page.target(link)
    if target.tag == "tr":
        return [float(text(cell)) for cell in target[3:]]
    return [float(line.texts["accuracy %"]) for line in lines(next(target.iter("table")))]


def corners(path: Element) -> tuple[list[float], list[float]]:
    found = [float(number) for number in re.findall(r"-?\d+\.?\d*", path.attrib["d"])]
    return found[::2], found[1::2]


def on_one_line(pairs: Iterable[tuple[float, float]], least: int = 13) -> None:
    """One line takes all scores to all places."""
    found = sorted(pairs)
    (low, left), (high, right) = found[0], found[-1]
    assert len(found) >= least and all(
        place == pytest.approx(left + (score - low) * (right - left) / (high - low), abs=0.05) for score, place in found
    )


def shown(places: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """A mark with one place is the median of the scores, any other has a place for each of them."""
    medians = [statistics.median(values)]
    return list(zip(medians if len(places) == 1 else values, places, strict=True))


def test_points_of_a_curve_lead_to_the_rows_at_their_place(placed: Page) -> None:
    found, columns, colours = [], {}, Counter()
    marks = links(placed, "Beyond the training length")
    assert len(marks) == 3 * 6 * 2, "of each arm at each length the median and the seeds"
    for link in marks:
        target = placed.target(link)
        uses = list(link.iter("use"))
        found += shown([float(use.attrib["y"]) for use in uses], scores(placed, link))
        columns.setdefault(float(text(target[0]).removeprefix("length=")), set()).update(u.attrib["x"] for u in uses)
        colours[leads(link).split("-")[2], re.findall(r"fill: ([^;]*)", uses[0].attrib["style"])[0]] += 1
    on_one_line(found)
    assert [len(xs) for xs in columns.values()] == [1] * 6
    assert sorted(columns) == sorted(columns, key=lambda length: float(min(columns[length])))
    assert sorted(colours.values()) == [12] * 3, "one colour for each model"


def test_marks_of_slices_lead_to_the_rows_of_their_slice(placed: Page) -> None:
    found = []
    marks = links(placed, "By root operator")
    assert len(marks) == 3 * 4 * 2, "of each arm on each slice a bar and the seeds"
    for link in marks:
        assert text(placed.target(link)[0]).startswith("root=")
        bars = [max(corners(path)[0]) for path in link.iter("path") if path.get("clip-path")]
        found += shown(bars or [float(use.attrib["x"]) for use in link.iter("use")], scores(placed, link))
    on_one_line(found)


def test_cells_of_a_heat_map_lead_to_their_rows_and_are_the_lighter_the_higher_these_are(placed: Page) -> None:
    marks = links(placed, "By depth")
    assert len(marks) == 3 * (3 * 3 - 1)
    light, across, down = [], {}, {}
    for link in marks:
        (path,) = link.iter("path")
        where = dict(part.split("=") for part in text(placed.target(link)[0]).split(","))
        xs, ys = corners(path)
        across.setdefault(leads(link).split("-")[2], {}).setdefault(int(where["length"]), set()).add(min(xs))
        down.setdefault(int(where["depth"]), set()).add(min(ys))
        light.append((statistics.median(scores(placed, link)), lightness(path)))
    for columns in across.values():
        assert [len(columns[length]) for length in (200, 400, 800)] == [1] * 3
        assert max(columns[200]) < max(columns[400]) < max(columns[800])
    assert len(down[0]) == 1 and max(down[0]) < max(down[5]) < max(down[10])
    shades = [shade for _, shade in sorted(light)]
    assert all(a <= b + 2 for a, b in pairwise(shades)) and shades[-1] > shades[0] + 20


def test_points_that_are_arms_and_level_lines_lead_to_their_arms(tmp_path: Path) -> None:
    study, results = fixtures.locality()
    page = drawn(tmp_path, study, results)
    marks = links(page, "How far")
    assert len(marks) == 2 * (6 * 2 + 2), "on each task six kernels, and two models that see everything"
    for task in ("listops", "image"):
        found = []
        for link in (link for link in marks if f"-{task}-" in leads(link)):
            uses = [float(use.attrib["y"]) for use in link.iter("use")]
            lying = {y for path in link.iter("path") if path.get("clip-path") for y in corners(path)[1]}
            found += shown(uses or list(lying), scores(page, link))
        on_one_line(found)


def test_a_point_of_several_arms_has_no_link() -> None:
    """There is no list of which one could say that it has the rows of this point."""
    _, results = fixtures.extrapolation()
    rows = [Row(**{**row, "anchor": "here"}) for row in results.rows]  # type: ignore[typeddict-unknown-key]
    parted = [
        Row(**{**row, "anchor": f"of-{row.get('seed')}"})  # type: ignore[typeddict-unknown-key]
        if row.get("at") == "length=400" and row.get("model") == "s4"
        else row
        for row in rows
    ]
    along = lines_along(replace(results, rows=parted), "listops", "length", "accuracy").along
    assert [line.anchors for line in along] == [("here",) * 6, ("here", "here", "", *("here",) * 3), ("here",) * 6]


def test_training_curves_lead_to_the_arm_of_their_run(gap: Page) -> None:
    _, results = fixtures.gap()
    expected: Counter[str] = Counter()
    for run, log in results.curves.items():
        row = next(row for row in results.rows if row.get("run") == run)
        phases = {record["phase"] for record in log}
        names = (row.get(key, "") for key in ("task", "model", "protocol"))
        expected[f"#rows-{'-'.join(names)}-accuracy"] += 2 * len(phases)  # loss and score
    marks = links(gap, "Training")
    assert Counter(map(leads, marks)) == expected
    strokes = {
        (leads(link).split("-")[2], re.findall(r"stroke: ([^;]*)", path.attrib["style"])[0])
        for link in marks
        for path in link.iter("path")
    }
    assert len(strokes) == 3, "one colour for each model"


def test_costs_in_the_figure_are_those_of_the_ledger_to_which_they_lead(gap: Page) -> None:
    marks = links(gap, "One run, median over seeds")
    ledgers = [t for t in gap.by_id["scores"].iter("table") if t.find("caption") is not None]
    followed = 0
    for line in (line for table in ledgers for line in lines(table)):
        to = leads(next(line.cells["Wall time"].iter("a")))
        mine = [link for link in marks if leads(link) == to]
        said = [text(link).strip() for link in mine if link.find("text") is not None]
        assert said == [line.texts[name] for name in ("Tokens", "FLOPs", "Wall time")]
        phases = 2 if line.texts["Protocol"] == "spt_masked" else 1
        assert len(mine) - len(said) == 3 * phases, "a bar for each phase"
        followed += len(mine)
    assert followed == len(marks) > 0


@pytest.mark.parametrize("most", [1_000, 2])
def test_what_a_figure_leads_to_is_never_left_out(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where there is room for few lines, they are those."""
    monkeypatch.setattr(row_lists, "LINES", most)
    study, results = fixtures.extrapolation()
    page = drawn(tmp_path, replace(study, views=study.views[:1]), results)
    assert len({leads(link) for link in links(page, "Beyond")}) == 18
    listed = [each for each in page.by_id["rows"].iter("tr") if text(each[0]).startswith(("length=", "root="))]
    assert len(listed) == (30 if most > 2 else 18) and ("more rows of this arm" in text(page.root)) is (most == 2)


def tuned() -> tuple[Study, Results]:
    """The study of lengths, with four trials of every arm, of which one diverged; one more arm has no run yet."""
    study, results = fixtures.extrapolation()
    arms = {row.get("model", ""): row.get("run", "") for row in results.rows if row.get("run")}
    trials = []
    for place, (model, run) in enumerate((arms | {"later": "listops-later-scratch-0-x"}).items()):
        for number, lr in enumerate((1.0, 0.25, 4.0, 2.0)):
            trial = {"arm": run, "task": "listops", "model": model, "protocol": "scratch", "lr": lr}
            trial |= {"weight_decay": 1.5, "chosen": number == 1, "flops": 1e12, "wall_s": 60.0}
            trial |= {"metric": "accuracy", "unit": "fraction"}
            trials.append(trial | ({} if number == 2 else {"validation": 0.3 + 0.01 * number + 0.1 * place}))
    return replace(study, views=study.views[:1]), replace(results, trials=trials)


def test_an_arm_that_was_tuned_and_has_no_run_yet_is_shown() -> None:
    _, results = tuned()
    assert [row[1] for row in tuning.table(results).rows] == ["attention", "s4", "conv", "later"]


def test_trials_lead_to_their_lines(tmp_path: Path) -> None:
    """As marks of the figure, of which the chosen ones have a ring, and as numbers of the table."""
    study, results = tuned()
    page = drawn(tmp_path, study, results)
    section = page.by_id["tuning"]
    across, down, times = dict[float, set[str]](), list[tuple[float, float]](), Counter[str]()
    for link in (link for svg in section.iter("svg") for link in svg.iter("a")):
        _, lr, _, score, *_, said = (text(cell) for cell in page.target(link))
        (use,) = link.iter("use")
        across.setdefault(float(lr), set()).add(use.attrib["x"])
        down.append((float(score), float(use.attrib["y"])))
        times[said] += 1
    assert times == {"chosen": 4 * 2, "": 4 * 2}, "one diverged, and the chosen one has a ring"
    assert [len(xs) for xs in across.values()] == [1] * 3
    assert sorted(across) == sorted(across, key=lambda lr: float(min(across[lr])))
    on_one_line(down)
    (table,) = section.iter("table")
    for line in lines(table):
        listed = page.target(next(line.cells["Trials"].iter("a")))
        trials = [[text(cell) for cell in tr] for tr in listed.iterfind(".//tbody/tr")]
        assert [trial[-1] for trial in trials] == ["", "chosen", "diverged", ""] and trials[2][3] == "–"
        own, best, lr = (page.target(next(line.cells[name].iter("a"))) for name in ("Own recipe", "Best", "lr ×"))
        assert text(own[3]) == line.texts["Own recipe"] and text(best[3]) == line.texts["Best"]
        assert lr is best and text(best[1]) == line.texts["lr ×"] == "0.25"
        assert line.texts["Model"] in leads(next(line.cells["Trials"].iter("a")))


CELL = {"Model": "model", "Protocol": "protocol", "Task": "task", "Where": "at", "Metric": "metric"}


def printed(page: Page, link: Element) -> dict[str, str]:
    """The line of a printed number to which a link leads, which is the cell of its paper's table."""
    target = page.target(link)
    table = next(each for each in page.root.iter("table") if target in each.iter("tr"))
    found = dict(zip(map(text, table.iterfind("thead/tr/th")), map(text, target), strict=True))
    rows = published.rows(found["Paper"], found["Table"])
    (own,) = (row for row in rows if all(row.get(key, "–") == found[head] for head, key in CELL.items()))
    assert float(found["Printed"]) == own.get("value")
    return found


@pytest.mark.parametrize("same", [True, False])
def test_printed_numbers_lead_to_the_cells_of_their_tables(same: bool, tmp_path: Path) -> None:
    """In the table of scores and as diamonds, where a run is the printed one, or else where it says how it is not."""
    study, results = fixtures.gap()
    references = fixtures.references(results) if same else ()
    page = drawn(tmp_path, replace(study, views=study.views[:1]), results, references)
    followed = 0
    for line in (line for table in page.by_id["scores"].iter("table") for line in lines(table)):
        for link in line.cells["Printed" if same else "Source"].iter("a") if "Source" in line.cells else ():
            cell = printed(page, link)
            assert cell["Printed"] == text(link) and f"{cell['Paper']} table {cell['Table']}" in line.texts["Source"]
            followed += 1
    places = dict[str, list[tuple[float, float]]]()
    for link in (link for link in links(page, "Ours beside") if leads(link).startswith("#printed")):
        cell, (use,) = printed(page, link), link.iter("use")
        places.setdefault(cell["Task"], []).append((float(cell["Printed"]), float(use.attrib["x"])))
    assert followed == 10 and sorted(places) == (["image", "listops"] if same else [])
    for found in places.values():
        on_one_line(found, least=5)
    summary = (tmp_path / "summary.md").read_text()
    assert "47.90" in summary and not re.search("[\ue000-\ue002]", summary), "no mark is left in a text"


def test_points_of_printed_curves_lead_to_their_cells(tmp_path: Path) -> None:
    study, results = fixtures.locality()
    page = drawn(tmp_path, study, results, fixtures.references(results))
    marks = [link for link in links(page, "How far") if leads(link).startswith("#printed")]
    assert len(marks) == 2 * 6, "on each task six kernels"
    for task in ("listops", "image"):
        found = [(cell, next(link.iter("use"))) for link in marks if (cell := printed(page, link))["Task"] == task]
        on_one_line([(float(cell["Printed"]), float(use.attrib["y"])) for cell, use in found], least=6)
        kernels = {int(cell["Where"].removeprefix("kernel_size=")): float(use.attrib["x"]) for cell, use in found}
        assert sorted(kernels) == [5, 7, 11, 21, 31, 61] == sorted(kernels, key=lambda kernel: kernels[kernel])


def test_no_two_printed_numbers_have_one_place() -> None:
    rows = published.rows()
    assert len({printed_anchor(row) for row in rows}) == len(rows) > 1_000
