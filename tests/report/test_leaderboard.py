"""The leaderboard shows the medians of the rows, each cell leads to them, and no folder is misread in silence."""

from __future__ import annotations

import csv
import errno
import json
import re
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fixtures_rows as fixtures
import pytest
import read_page
from browser import program
from repository import ROOT

from levelfield import report
from levelfield.cli.app import main
from levelfield.cli.dispatch import current
from levelfield.engine.find import Source
from levelfield.report import committed, leaderboard, tables
from levelfield.report.cells import gather
from levelfield.report.leaderboard.reading import find, read
from levelfield.runs.results import Results
from levelfield.spec import ReportView, Row, Study, UserError, describe

ARM = ("task", "model", "protocol")
Key = tuple[str, str, str, str, str]  # study, effort, task, model, protocol


class Page(HTMLParser):
    """The cells of a page by what they are of, its ids, and where its links lead."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.cells: dict[Key, tuple[float, str]] = {}  # value, and the ledger that is told
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.board = self.line = self.cell = dict[str, str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.ids += [facts["id"]] if "id" in facts else []
        self.links += [facts["href"]] if "href" in facts else []
        if facts.get("class") == "board":
            self.board = facts
        elif tag == "tr":
            self.line = facts
        elif tag == "td":
            self.cell = facts
        elif tag == "a" and "title" in facts:
            task, model, protocol = self.cell["data-task"], self.line["data-model"], self.line["data-protocol"]
            key = (self.board["data-study"], self.board["data-effort"], task, model, protocol)
            assert key not in self.cells
            self.cells[key] = float(self.cell["data-value"] or "nan"), facts["title"]


def folder_of(fixture: Callable[[], tuple[Study, Results]], to: Path) -> Path:
    """A results folder, as a report writes it, without its figures."""
    study, results = fixture()
    to.mkdir(parents=True)
    named = [{**row, "study": study.name, "effort": "minutes"} for row in results.rows]
    (to / "rows.csv").write_text(tables.to_csv(named))
    records = tables.summary_records(gather(results), {}, study.name, "minutes")
    (to / "summary.csv").write_text(tables.to_csv(records))
    return to


def lines(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def medians(folder: Path) -> dict[Key, float]:
    """What the cells must be, from the file alone: percent, over the seeds that have a score."""
    found: dict[Key, dict[str, float]] = {}
    for row in lines(folder / "rows.csv"):
        whole = row["split"] == "test" and not row.get("at") and row["protocol"] != "none" and row["run"]
        if whole and row["metric"] not in ("chance", "negative_mse") and row["value"]:
            key = (row["study"], row["effort"], row["task"], row["model"], row["protocol"])
            factor = 100 if row["metric"] != "r2" else 1
            found.setdefault(key, {})[row["run"]] = factor * float(row["value"])
    return {key: statistics.median(values.values()) for key, values in found.items()}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of what is committed."""
    out = tmp_path_factory.mktemp("page") / "leaderboard.html"
    leaderboard.build([ROOT / "results"], out)
    return out


def test_cells_are_the_medians_of_the_committed_rows(kept: Path) -> None:
    expected: dict[Key, float] = {}
    for folder in find([ROOT / "results"]).folders:
        expected |= medians(folder)
    cells = Page(kept).cells
    shown = {key: value for key, (value, _) in cells.items() if value == value}  # an arm may be planned and not begun
    assert shown == pytest.approx(expected, rel=1e-12)
    told = cells["demo", "minutes", "reach", "conv17", "scratch"][1]
    assert (
        "Parameters: 103 k" in told and "Steps: " in told and "FLOPs: 614 G" in told and "Seeds: 0, 1, 2, 3, 4" in told
    )
    assert (
        "earlier rule" not in told
        and "earlier rule" in cells["amos2025_table2", "minutes", "listops", "s4", "scratch"][1]
    )


def test_the_page_loads_nothing_and_every_cell_leads_to_its_rows(kept: Path) -> None:
    page, text = Page(kept), kept.read_text()
    assert len(page.ids) == len(set(page.ids)) and not {"link", "img", "iframe"} & set(page.tags)
    assert not re.search(r"src=|@import|url\(|https?:", text)
    inside = [link[1:] for link in page.links if link.startswith("#")]
    assert len(inside) > len(page.cells) > 70 and set(inside) <= set(page.ids)
    files = {(kept.parent / unquote(link)).resolve() for link in page.links if not link.startswith("#")}
    assert files >= {ROOT / "results" / "demo-minutes" / "rows.csv"} and all(path.is_file() for path in files)
    run = lines(ROOT / "results/demo-minutes/rows.csv")[0]
    assert (
        f'<th scope=row>{run["run"]}</th><td>val</td><td>accuracy (fraction)</td><td class="number">{run["value"]}<'
        in text
    )


def test_a_rule_leads_to_its_line_and_every_list_back_to_its_cell(kept: Path) -> None:
    page = read_page.Page(kept, ROOT / "results" / "demo-minutes" / "rows.csv")
    boards = [each for each in page.root.iter("section") if each.get("class") == "board"]
    cells = [(line, cell) for board in boards for line in board.iter("tr") for cell in line.iter("td")]
    rules = 0
    for line, cell in ((line, cell) for line, cell in cells if cell.get("data-value")):
        (link,) = cell.iter("a")
        target = page.target(link)
        if line.get("class") != "quiet":
            back = [each for each in target.iter("a") if read_page.text(each) == "Back to the table"]
            assert [page.target(each) for each in back] == [link]
            continue
        rules += 1
        named, _, metric, value = (read_page.text(each) for each in target[:4])
        factor = 100 if "(fraction)" in metric else 1
        assert factor * float(value) == pytest.approx(float(cell.attrib["data-value"]))
        rule = read_page.text(line[0]).removesuffix(" rule").replace(" ", "_")
        assert named.startswith(f"{cell.attrib['data-task']}, ") and rule in (
            named.partition(", ")[2],
            metric.split()[0],
        )
    assert rules > 30


def test_seeds_that_failed_or_are_missing_are_counted(tmp_path: Path) -> None:
    folder = folder_of(fixtures.gap, tmp_path / "a 'folder'")
    out = tmp_path / "pages" / "board.html"
    leaderboard.build([folder], out)
    page = Page(out)
    assert {key: value for key, (value, _) in page.cells.items()} == pytest.approx(medians(folder))
    planned = [line for line in lines(folder / "summary.csv") if int(line["planned"] or 0)]
    short = [line for line in planned if line["n"] != line["planned"]]
    assert short and all(
        f"n {line['n']} of {line['planned']}, {line['failed']} failed" in out.read_text() for line in short
    )
    assert all((out.parent / unquote(link)).is_file() for link in page.links if not link.startswith("#"))


def test_seeds_that_nobody_started_have_not_failed(tmp_path: Path) -> None:
    folder = folder_of(lambda: (fixtures.gap()[0], replace(fixtures.gap()[1], failures={})), tmp_path / "a")
    leaderboard.build([folder], tmp_path / "board.html")
    short = [line for line in lines(folder / "summary.csv") if line["planned"] and line["n"] != line["planned"]]
    assert [(line["n"], line["planned"], line["failed"], line["unfinished"]) for line in short] == [
        ("2", "3", "0", "1"),  # attention, which nobody went on with
        ("2", "3", "1", ""),  # S4, which diverged
    ]
    text = (tmp_path / "board.html").read_text()
    assert text.count("n 2 of 3") == 2 * text.count("n 2 of 3, 1 failed") > 0


def test_an_arm_of_which_no_seed_finished_has_its_cell(tmp_path: Path) -> None:
    folder = folder_of(fixtures.gap, tmp_path / "gap")
    first = next(line for line in lines(folder / "summary.csv") if line["planned"])
    arm = [first[key] for key in ARM]
    others = [line for line in lines(folder / "rows.csv") if [line[key] for key in ARM] != arm]
    (folder / "rows.csv").write_text(tables.to_csv(others))
    with pytest.raises(UserError, match=r"summary.csv has \d scores of .* and rows.csv has 0"):
        read(folder)
    emptied = {key: "" for key in first if key in ("n", "median")}
    known = [line | (emptied if [line[key] for key in ARM] == arm else {}) for line in lines(folder / "summary.csv")]
    (folder / "summary.csv").write_text(tables.to_csv(known))
    (missing,) = [each for each in read(folder).standings if not each.rows]
    assert (missing.cell.arm.model, missing.planned, missing.cell.summary) == (first["model"], 3, None)


def test_names_that_try_to_break_out_are_text(tmp_path: Path) -> None:
    out = tmp_path / "board.html"
    leaderboard.build([folder_of(fixtures.hostile, tmp_path / "hostile")], out)
    page, text = Page(out), out.read_text()
    assert page.tags.count("script") == 1 and "&lt;script&gt;alert" in text and "<script>alert" not in text


def test_a_folder_of_folders_is_taken_and_what_has_no_place_is_named(tmp_path: Path) -> None:
    folder_of(fixtures.gap, tmp_path / "gap")
    folder_of(fixtures.gap, tmp_path / "uncosted")
    (tmp_path / "uncosted" / "summary.csv").unlink()
    variants = folder_of(fixtures.gap, tmp_path / "variants") / "summary.csv"
    variants.write_text(variants.read_text().replace(",attention,", ",attention (heads=4),"))
    found = find([tmp_path, tmp_path / "gap"])
    assert found.folders == (tmp_path / "gap",)
    assert [re.search(r"no summary.csv|variants of attention", why)[0] for why in found.left_out] == [  # type: ignore[index]
        "no summary.csv",
        "variants of attention",
    ]


def test_variants_of_a_listed_study_are_told_apart_by_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an attention on six ranges the rows say `attention`; the summary names each."""
    monkeypatch.chdir(tmp_path)
    folder = ROOT / "results" / "reach-minutes"
    main(["leaderboard", str(folder)])
    assert "Left out" not in capsys.readouterr().out


def test_variants_of_a_study_of_ones_own_are_told_apart_by_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No study of that name can be looked up, as of `levelfield reach mine.py:Mine`."""
    kept, study = ROOT / "results" / "reach-minutes", Source("reach").load()
    results = committed.read(kept, study, "minutes")
    mine = replace(results, rows=[row | Row(study="reach-mine-0a1b2c") for row in results.rows])
    to = tmp_path / "reach-mine-0a1b2c-minutes"
    report.build(replace(study, name="reach-mine-0a1b2c", views=(ReportView("compare", "All"),)), "minutes", mine, to)
    main(["leaderboard", str(to), "--out", str(tmp_path / "board.html")])
    assert "Left out" not in capsys.readouterr().out
    found, same = read(to), read(kept, lambda *_: {run.id: describe(run) for run in study.runs("minutes")})
    cells, expected = ({str(each.cell.arm): each.cell.summary for each in board.standings} for board in (found, same))
    assert cells == expected and "attention (range=16) · scratch" in cells
    main(["results", "SELECT count(*) FROM scores", "--runs-dir", str(to)])
    assert "Left out" not in capsys.readouterr().err
    without = [{key: value for key, value in line.items() if key != "variant"} for line in lines(to / "rows.csv")]
    (to / "rows.csv").write_text(tables.to_csv(without))
    with pytest.raises(UserError, match=r"to write it again, give the command that wrote it, .*`levelfield reach`"):
        find([to])


def broken(folder: Path, name: str, change: Callable[[str], str]) -> Path:
    (folder / name).write_text(change((folder / name).read_text()))
    return folder


SENTENCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda at: at / "nowhere", "There is no folder"),
    "empty": (lambda at: at, "holds no rows.csv"),
    "no rows": (lambda at: broken(folder_of(fixtures.gap, at / "x"), "rows.csv", lambda _: ""), "no score of a run"),
    "foreign": (
        lambda at: broken(folder_of(fixtures.gap, at / "x"), "rows.csv", lambda _: "a,b\n1,2\n"),
        "no score of a run",
    ),
    "damaged": (
        lambda at: broken(
            folder_of(fixtures.gap, at / "x"), "rows.csv", lambda text: text.replace(",test,", ',"te"st,')
        ),
        "cannot be read",
    ),
    "cut off": (
        lambda at: broken(folder_of(fixtures.gap, at / "x"), "rows.csv", lambda text: text[: 2 * len(text) // 3]),
        "write its report again|cannot be read|is no row|is cut off",
    ),
    "of two efforts": (
        lambda at: broken(
            folder_of(fixtures.gap, at / "x"), "rows.csv", lambda text: text.replace("minutes", "hours", 40)
        ),
        "keep one study and effort in a folder",
    ),
    "no ledger": (
        lambda at: broken(
            folder_of(fixtures.gap, at / "x"), "summary.csv", lambda text: text.replace(",s4,scratch,", ",x,y,")
        ),
        "has no line for",
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_a_folder_that_is_none_is_one_sentence(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, sentence = SENTENCES[case]
    with pytest.raises(SystemExit) as stop:
        main(["leaderboard", str(make(tmp_path)), "--out", str(tmp_path / "page.html")])
    said = capsys.readouterr().err.strip()
    assert stop.value.code == 2 and re.search(sentence, said) and said.count("\n") == 0
    assert not (tmp_path / "page.html").exists()


def test_no_other_file_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixer, page = tmp_path / "mine.py", tmp_path / "mine.html"
    mixer.write_text("class Mine: ...\n")
    words = ["leaderboard", str(folder_of(fixtures.gap, tmp_path / "gap")), "--out"]
    with pytest.raises(SystemExit) as stop:
        main([*words, str(mixer)])
    said = f"levelfield: {mixer} is there and is no page: give --out another name, such as {page}.\n"
    assert stop.value.code == 2 and capsys.readouterr().err == said and mixer.read_text() == "class Mine: ...\n"
    for out in (page, page, tmp_path / "board"):
        main([*words, str(out)])


@pytest.mark.parametrize("name", ["rows.csv", "summary.csv"])
def test_a_file_that_may_not_be_read_is_not_to_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, real = folder_of(fixtures.gap, tmp_path / "gap") / name, Path.read_text

    def refuse(self: Path, *arguments: Any, **options: Any) -> str:
        if self == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UserError) as caught:
        read(tmp_path / "gap")
    assert str(caught.value) == f"{path} may not be read (Permission denied): give yourself the right to read it."


def test_without_a_folder_the_results_here_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of(fixtures.gap, tmp_path / "results" / "gap")
    monkeypatch.chdir(tmp_path)
    main(["leaderboard"])
    assert capsys.readouterr().out == "Wrote leaderboard.html\n"
    assert "results/gap/rows.csv" in Page(tmp_path / "leaderboard.html").links


def test_a_flag_that_was_anothers_name_is_kept_where_a_command_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert current(["--out", "x"], {"--out"}) == ["--out", "x"] and capsys.readouterr().err == ""
    assert current(["--out=x"]) == ["--runs-dir=x"] and "is called --runs-dir now" in capsys.readouterr().err
    current(["--out", "x"], takes={"--runs-dir", "--folder"}.__contains__)
    assert "--folder is where files are written" in capsys.readouterr().err
    with pytest.raises(UserError, match="--folder is where files are written"):
        current(["--out", "x"], takes={"--folder"}.__contains__)


@pytest.mark.browser
def test_filters_and_sorting_work_in_a_browser(kept: Path) -> None:
    browser = program()
    steps = """
      const form = document.forms[0], all = (what) => [...document.querySelectorAll(what)];
      form.task.value = "listops"; form.effort.value = "overnight";
      form.dispatchEvent(new Event("change", {bubbles: true}));
      const board = document.querySelector("section.board:not([hidden])");
      const head = board.querySelector("th[data-task=listops] button");
      const scores = () => [...board.querySelectorAll("td[data-task=listops]")].map((cell) => cell.dataset.value);
      const found = () => scores().filter((value) => value);
      const count = all("section.board:not([hidden]) td[data-task=listops] a[title]").length;
      head.click(); const down = found(); head.click(); const up = found();
      const boards = all("section.board:not([hidden]) h2").map((each) => each.textContent);
      location.hash = board.querySelector("td a[title]").hash;
      const told = form.querySelector("output").textContent;
      setTimeout(() => { document.title = JSON.stringify([told, count, boards, down, up,
        document.querySelector(location.hash).parentElement.open,
        all("details.rules:not([hidden])").map((each) => each.dataset.effort)]); }, 50);
    """
    probe = kept.with_name("probe.html")
    probe.write_text(kept.read_text().replace("</body>", f"<script>{{{steps}}}</script></body>"))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={kept.parent / 'profile'}"]
    command += ["--virtual-time-budget=2000", "--dump-dom", probe.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=90).stdout
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    (told, count, boards, down, up, opened, rules) = json.loads(title[1].replace("&quot;", '"'))
    studies = ("amos2025_small", "miralles2025_enriched", "miralles2025_small")
    assert told == f"{count} cells" and boards == [f"{study} · overnight" for study in studies] and opened
    assert set(rules) == {"overnight"}
    assert down == sorted(down, key=lambda text: -float(text)) and up == sorted(up, key=float) and len(up) > 2
