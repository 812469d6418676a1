"""Two models beside each other: only what both were asked counts, and nothing is asked again."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from browser import program
from read_page import Page, leads, lines, text
from toy_reader import SINGLE

from levelfield import published
from levelfield.cli import app
from levelfield.cli.ruler_report_command import labels
from levelfield.longcontext.answers import Answers
from levelfield.longcontext.pairing import pairings
from levelfield.longcontext.predictions import Prediction, settings_of
from levelfield.report import difference_plot, group_curves, references, side_by_side
from levelfield.report.effective_length import TASKS
from levelfield.report.paired import Span
from levelfield.ruler import RULER, Needle, RulerTask
from levelfield.spec import Row

TASKS_ASKED: tuple[RulerTask, ...] = (SINGLE, Needle())


def answer(task: RulerTask, length: int, index: int, text: str) -> Prediction:
    """An answer to a question whose expected one is a number of its own."""
    return Prediction(
        key=f"{task.name}{length}{index}",
        task=task.name,
        settings=settings_of(task),
        length=length,
        index=index,
        flavour="sound",
        template="base",
        seed=42,
        tokens=length - 10,
        made=3,
        depths=(0.5,),
        slices={"essays": "emerson"},
        references=(f"{index:08x}",),
        text=text,
        version=task.version("sound"),
    )


def store(folder: Path, right: Callable[[int, int], bool], tasks: tuple[RulerTask, ...] = TASKS_ASKED) -> None:
    folder.mkdir(parents=True)
    answers = Answers(folder)
    for task in tasks:
        for length in (1024, 2048):
            for index in range(30):
                answers.append(answer(task, length, index, f" {index:08x}" if right(length, index) else " <no>"))


def test_what_was_not_asked_alike_has_no_counterpart(tmp_path: Path) -> None:
    store(tmp_path / "a", lambda length, index: True)
    store(tmp_path / "b", lambda length, index: index % 3 > 0)
    answers = Answers(tmp_path / "b")
    changed = answer(SINGLE, 1024, 0, " x")
    answers.append(replace(changed, key="other", references=("99",)))
    answers.append(replace(answer(SINGLE, 1024, 2, " x"), key="seed", seed=7))
    answers.append(replace(answer(SINGLE, 1024, 3, " x"), key="far", length=4096))
    (found,) = pairings(tmp_path / "a", tmp_path / "b")
    assert len(found.pairs) == 119 and found.alone == (1, 2)
    assert {(p.first.task, p.first.length, p.first.index) for p in found.pairs} == {
        (p.second.task, p.second.length, p.second.index) for p in found.pairs
    }
    assert sum(p.scores[0] for p in found.pairs) == 119
    assert [p.scores[1] for p in found.pairs if p.first.index in (0, 4)] == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    others = Answers(tmp_path)
    others.append(replace(answer(SINGLE, 1024, 1, " x"), slices={"essays": "mine"}))
    assert pairings(tmp_path / "a", tmp_path) == []


def test_a_template_of_its_own_is_said_and_the_same_one_is_taken_where_there_is_one(tmp_path: Path) -> None:
    store(tmp_path / "a", lambda length, index: True)
    store(tmp_path / "b", lambda length, index: True)
    more = Answers(tmp_path / "b")
    more.append(replace(answer(SINGLE, 1024, 0, " x"), key="own", template="own"))
    assert [p.templates for p in pairings(tmp_path / "a", tmp_path / "b")] == [("base", "base")]
    chats = Answers(tmp_path)
    chats.append(replace(answer(SINGLE, 1024, 0, " x"), template="chat-own"))
    assert [p.templates for p in pairings(tmp_path, tmp_path / "a")] == [("chat-own", "base")]


@pytest.mark.parametrize(
    ("label", "other"),
    [
        ("base-lm-eval", False),
        ("base-inspect", True),
        ("base-lighteval", True),  # which may have added a template
        ("base-plain-lighteval", False),
        ("base-chat-lm-eval", True),
        ("base-text", False),
        ("own-lm-eval", True),
        ("own-chat", True),
        ("base-text-0a1b2c", True),
        ("imported-ruler", True),
    ],
)
def test_templates_are_said_to_differ_only_where_the_prompts_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], label: str, other: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, template in (("a", "base"), ("b", label)):
        Path("runs/ruler", name).mkdir(parents=True)
        Answers(Path("runs/ruler", name)).append(replace(answer(SINGLE, 1024, 0, " x"), template=template))
    app.main(["report", "ruler", "a", "b"])
    shown = capsys.readouterr().out
    assert "in common" in shown
    assert (f"base and b by {label}: differences are those of a model with its template" in shown) == other


def test_answers_whose_logits_were_not_finite_are_told_of_on_the_page_and_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sound", "broken"):
        store(Path("runs/ruler", name), lambda length, index: True, tasks=(SINGLE,))
    diverged = Answers(Path("runs/ruler/broken"))
    for index in range(30, 33):
        Answers(Path("runs/ruler/sound")).append(answer(SINGLE, 2048, index, f" {index:08x}"))
        diverged.append(replace(answer(SINGLE, 2048, index, f" {index:08x}"), status="diverged"))
    app.main(["report", "ruler", "sound", "broken"])
    note = "The logits of broken were NaN or infinite in 3 of these 63 answers, which count as wrong."
    folder = Path("report/ruler-sound-and-broken")
    assert note in capsys.readouterr().out
    assert note in Cells(folder / "report.html").texts and note in (folder / "summary.md").read_text()
    rows = csv.DictReader((folder / "differences.csv").read_text().splitlines())
    assert [float(row["broken"]) for row in rows] == [100.0, 90.9]


class Cells(HTMLParser):
    """The texts of a page's table cells, and whether it loads anything."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value for name, value in attrs if name in ("src", "href") and value and tag != "a"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_the_command_writes_pairs_differences_and_who_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second model is worse from 2048 on, and on different questions of the first length."""
    monkeypatch.chdir(tmp_path)
    store(Path("runs/ruler/first"), lambda length, index: length < 2000 or index % 3 > 0)
    store(Path("runs/ruler/second"), lambda length, index: length < 2000 and index > 0)
    app.main(["report", "ruler", "first", "runs/ruler/second"])
    said = capsys.readouterr().out
    assert "sound, base, seed 42: 120 questions in common." in said
    assert "first finds more at 2048 (by 66.7 points, " in said and "neither does at 1024 (" in said
    folder = Path("report/ruler-first-and-second")
    rows = {(r["task"], r["length"]): r for r in csv.DictReader((folder / "differences.csv").read_text().splitlines())}
    assert {key: (float(r["first"]), float(r["second"])) for key, r in rows.items()} == {
        (task, length): scores
        for task in ("average", SINGLE.name, "niah_single_2")
        for length, scores in (("1024", (100.0, 96.7)), ("2048", (66.7, 0.0)))
    }
    assert all(float(r["low"]) < float(r["difference"]) < float(r["high"]) for r in rows.values())
    page = Cells(folder / "report.html")
    assert page.loads == [] and "<no>" in page.texts and "niah_single_2" in page.texts
    assert {path.name for path in folder.glob("*.svg")} == {"groups.svg", "differences.svg"}
    drawn = Page(folder / "report.html", folder / "differences.csv")
    check_links(drawn)
    check_marks(drawn)
    app.main(["report", "ruler", "first"])
    assert Path("report/ruler-first/report.html").exists()


def check_links(page: Page) -> None:
    """Follows every number of the table and of the first paragraph to its line, which is that of the file."""
    assert page.lost() == []
    (table,) = (each for each in page.root.iter("table") if "average of" in text(each))
    lists = {each.attrib["id"] for each in page.by_id["rows"].iter("div") if each.get("id")}
    of_file = {(row["task"], row["length"]): row for row in page.rows}
    for line in lines(table):
        task = line.texts["task"].partition(" of ")[0]
        first, second = (next(line.cells[length].iter("a")) for length in ("1024", "2048"))
        assert first.attrib["href"][1:] in lists and page.target(next(page.target(first).iter("a"))) is first
        (listed,) = page.target(first).iter("table")
        for row, each in zip(listed.iterfind("tbody/tr"), lines(listed), strict=True):
            own = of_file[task, each.texts["length"]]
            assert [each.texts[f"{name} (%)"] for name in ("first", "second")] == [own["first"], own["second"]]
            shown = [float(each.texts[name].replace("−", "-")) for name in ("difference", "low", "high")]
            assert shown == [float(own[name]) for name in ("difference", "low", "high")]
            better = [int(each.texts[f"{name} does better on"]) for name in ("first", "second")]
            assert 100 * (better[0] - better[1]) / int(each.texts["questions"]) == pytest.approx(shown[0], abs=1e-3)
            assert each.texts["questions"] == own["n"]
            assert (page.target(second) is row) == (each.texts["length"] == "2048")
    said = list(next(page.root.iter("header")).iter("a"))
    assert [text(page.target(link)[0]) for link in said] == ["2048", "1024"], "who finds more, then who does not"
    assert "66.7" in text(said[0]) and "66.667" in text(page.target(said[0]))


def check_marks(page: Page) -> None:
    """Follows every mark of both figures: it lies where the line to which it leads says."""
    groups, differences = (list(figure.iter("a")) for figure in page.root.iter("figure"))
    marks = dict[str, list[float]]()
    for link in differences:
        path = [float(x) for each in link.iter("path") for x in re.findall(r"[ML] (\S+)", each.attrib["d"])]
        marks.setdefault(leads(link), []).extend([float(use.attrib["x"]) for use in link.iter("use")] or path)
    assert len(marks) == 6 and len(differences) == 12, "of three tasks at two lengths an interval and its middle"
    scales = []
    for to, (left, right, dot) in marks.items():
        difference, low, high = (float(text(cell).replace("−", "-")) for cell in list(page.by_id[to[1:]])[-3:])
        scales.append((right - left) / (high - low))
        assert dot == pytest.approx(left + scales[-1] * (difference - low), abs=0.01)
    assert scales == pytest.approx([scales[0]] * 6, rel=1e-3)
    for link in groups:
        length, metric, value = (text(cell) for cell in list(page.target(link))[:3])
        model = leads(link).rpartition("-length")[0].rpartition("-")[2]
        own = {row["length"]: row[model] for row in page.rows if row["task"] == "average"}
        assert metric == "average" and f"{float(value):.1f}" == own[length.removeprefix("length=")]
    assert len(groups) == 8 and len({*map(leads, groups)}) == 4, "both panels are of the same tasks and share lists"


def test_two_folders_of_one_name_are_called_by_what_tells_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert labels(Path("/a/ruler/m"), Path("/b/ruler/n")) == ("m", "n")
    assert labels(Path("/b/x/ruler/m"), Path("/b/y/ruler/m")) == ("x/m", "y/m")
    assert labels(Path("/b/ruler/m"), Path("/b/ruler/m/m")) == ("ruler/m", "m/m")
    monkeypatch.chdir(tmp_path)
    store(Path("runs/ruler/m"), lambda length, index: True, (SINGLE,))
    store(Path("other/ruler/m"), lambda length, index: index > 0, (SINGLE,))
    app.main(["report", "ruler", "m", "other/ruler/m"])
    assert ", neither finds more at 1024 (" in capsys.readouterr().out
    folder = Path("report/ruler-runs-m-and-other-m")
    rows = list(csv.DictReader((folder / "differences.csv").read_text().splitlines()))
    assert [(row["runs/m"], row["other/m"]) for row in rows] == [("100.0", "96.7")] * 2
    assert {path.name for path in folder.glob("*.svg")} == {"groups.svg", "differences.svg"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frist"], "did you mean 'first'"),
        (["first", "runs/ruler/first"], "are the same answers"),
        (["first", "first", "first"], "Name one model that was asked, or two"),
        (["first", "other"], "were asked no question in common"),
    ],
)
def test_what_cannot_be_compared_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store(Path("runs/ruler/first"), lambda length, index: True, (SINGLE,))
    store(Path("runs/ruler/other"), lambda length, index: True, (Needle(),))
    with pytest.raises(SystemExit) as stop:
        app.main(["report", "ruler", *words])
    assert stop.value.code == 2 and said in capsys.readouterr().err


def test_printed_averages_name_their_variant_and_are_rulers_own() -> None:
    """RULER's rule and its bar follow from the table itself: its underlined numbers are those from 85.6 on."""
    assert set(TASKS) == {task.name for task in RULER}
    printed = {(r.get("model"), r.get("at")): r.get("value") for r in published.ruler_table()}
    assert len(printed) == 1 + 44 * 6 - 1 and printed["Llama2 (7B)", "length=4096"] == 85.6
    assert printed["Llama3.1 (8B)", "length=131072"] == 77.0
    assert {r.get("origin") for r in published.ruler_table()} <= published.library().keys()
    found = references.table([4096, 131072], {"mine": {4096: 91.25}}, "sound")
    assert found and found.rows[0] == ("mine", "sound", "asked here", "91.2", "")
    assert {row[1] for row in found.rows[1:]} == {"official", "paper"}
    assert references.table([700], {}, "sound") is None


def test_a_length_with_one_task_takes_no_task_from_the_averages_of_two_models() -> None:
    """The first model is right at 4096 and wrong at 8192, the second the other way round; at 131072 both are right."""
    cells = {4096: TASKS, 8192: TASKS, 131072: TASKS[:1]}
    scores = {4096: (1.0, 0.0), 8192: (0.0, 1.0), 131072: (1.0, 1.0)}
    asked = [
        side_by_side.PairedQuestion(task, length, index, "", "x", ("", ""), scores[length])
        for length, tasks in cells.items()
        for task in tasks
        for index in range(30)
    ]
    part = side_by_side.Part("sound", "sound", asked)
    said = side_by_side.decided(("a", "b"), part)
    assert said.startswith("Averaged over RULER's 13 tasks, a finds more at 4096 (by 100.0 points")
    assert "b finds more at 8192" in said and said.endswith("are left out of it: 131072 (1 of 13).")
    found = side_by_side.lengths(("a", "b"), part)
    assert found and [row[1] for row in found.rows] == ["4096", "8192, the longest at which all tasks were asked"]
    shown = [cell.partition("\n")[0] for cell in side_by_side.table(part).rows[0]]
    assert shown[1:] == ["100.0 | 0.0", "0.0 | 100.0", ""]
    assert part.printed and ("average", 131072) not in part.spans
    whole = side_by_side.Part("sound", "sound", [q for q in asked if q.length < 131072])
    assert said.startswith(side_by_side.decided(("a", "b"), whole))


def test_curves_have_a_panel_for_each_group_and_none_with_one_length() -> None:
    rows = [
        Row(task=task, at=f"length={length}", metric="accuracy", value=90.0, n=50)
        for task in (*TASKS, "walks_bfs", "ruler_average")
        for length in (4096, 8192)
    ]
    titles = [panel.title for panel in group_curves.panels({"m": rows})]
    assert titles == ["all 13 tasks", "retrieval", "tracing", "aggregation", "questions", "walks"]
    some = [row for row in rows if (row.get("task"), row.get("at")) != ("cwe", "length=8192")]
    kept = {panel.title: list(panel.models["m"]) for panel in group_curves.panels({"m": some})}
    assert kept["all 13 tasks"] == kept["aggregation"] == [4096] and kept["walks"] == [4096, 8192]
    assert group_curves.curves({"m": [row for row in rows if row.get("at") == "length=4096"]}) is None


def test_a_figure_of_one_task_has_room_below_a_legend_of_long_names() -> None:
    models = "a-model-with-a-long-name-of-its-own", "another-model-with-a-long-name"
    figure = difference_plot.draw(models, {("vt", 1024): Span(0.06, 0.01, 0.11)})
    assert figure
    ys = {name: float(y) for y, name in re.findall(r'<text [^>]*? y="([\d.-]+)"[^>]*>([^<]+)', figure.svg)}
    legend = [y for name, y in ys.items() if name.endswith((" (left)", " (right)", "told apart"))]
    below = [ys[name] for name in ("1K", "vt", "0", "difference (points)")]
    assert len(legend) == 3 and all(a + 10 < b for a, b in pairwise([max(legend), *below]))
    assert below[-1] < float(re.findall(r'height="([\d.]+)pt"', figure.svg)[0])


STEPS = """
const list = [...document.querySelectorAll("details")].find(d => d.textContent.includes("does better"));
const field = list.querySelector("input"), rows = [...list.querySelectorAll("tbody tr")];
const seen = () => rows.filter(row => !row.hidden).length;
list.querySelector("summary").focus();
const focused = document.activeElement === list.querySelector("summary");
list.open = true;
const before = seen();
field.value = "0000000c"; field.dispatchEvent(new Event("input", {bubbles: true}));
const dark = getComputedStyle(document.body).backgroundColor;
const fits = document.documentElement.scrollWidth <= window.innerWidth;
document.title = JSON.stringify([focused, before, seen(), dark, fits]);
"""
"""Opens the list of differences, searches it, and looks whether the page is wider than the window."""


@pytest.mark.browser
def test_the_page_is_searched_in_the_dark_on_a_narrow_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = program()
    monkeypatch.chdir(tmp_path)
    store(Path("runs/ruler/a-model-with-a-name-that-is-rather-long"), lambda length, index: True)
    store(Path("runs/ruler/second"), lambda length, index: index % 3 > 0)
    app.main(["report", "ruler", "a-model-with-a-name-that-is-rather-long", "second"])
    page = next(Path("report").glob("*/report.html"))
    probe = page.with_name("probe.html").resolve()
    probe.write_text(page.read_text().replace("</body>", f"<script>{{{STEPS}}}</script></body>"))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += [
        "--window-size=500,800",
        "--blink-settings=preferredColorScheme=0",
    ]  # Chromium's windows are no narrower
    shown = subprocess.run([*command, "--dump-dom", probe.as_uri()], capture_output=True, text=True, timeout=90).stdout
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    focused, before, after, background, fits = json.loads(title[1].replace("&quot;", '"'))
    assert focused and fits and background == "rgb(23, 25, 28)"
    assert (before, after) == (40, 4)  # of 4 cells with 10 questions each; one question in each
