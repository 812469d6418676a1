"""The report and the leaderboard, as a reader sees them: opened from a file in a real browser.

Run with `pytest -m browser`; skipped in one sentence where no Chromium or Chrome is installed.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import fixtures_rows as fixtures
import pytest
from browser import Browser
from PIL import Image
from read_page import stored
from repository import ROOT

from levelfield import report
from levelfield.report import leaderboard, longcontext
from levelfield.report.audit import page as audit
from levelfield.report.page import document, script
from levelfield.report.tables import Column, Table

pytestmark = pytest.mark.browser
PHONE, DESK = (390, 844), (1280, 900)
RULER = "ruler-aidreams260K/rows.csv"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report with figures and failures, the leaderboard of what is committed, and pages of an audit and of RULER."""
    out = tmp_path_factory.mktemp("pages")
    study, results = fixtures.gap()
    report.build(study, "minutes", results, out / "report")
    leaderboard.build([ROOT / "results"], out / "board.html")
    audit.build(stored(ROOT / "results" / "audits" / "recall-minutes.csv"), out / "audit")
    longcontext.build("m", [longcontext.Part("", stored(ROOT / "results" / RULER), [])], out / "ruler")
    made = {name: out / name / "report.html" for name in ("report", "audit", "ruler")}
    return {**made, "board": out / "board.html"}


def shown(browser: Browser, page: Path, size: tuple[int, int] = DESK, *, dark: bool = False, media: str = "") -> None:
    browser.size(*size)
    browser.media(media, dark=dark)
    browser.errors.clear()
    browser.open(page.as_uri())
    assert browser.errors == []


def grey(picture: bytes | Path, place: tuple[int, int] = (5, 5)) -> int:
    source = picture if isinstance(picture, Path) else io.BytesIO(picture)
    value = Image.open(source).convert("L").getpixel(place)
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(
    ("name", "size"), [("report", DESK), ("board", PHONE), ("board", DESK), ("audit", PHONE), ("ruler", PHONE)]
)
def test_nothing_scrolls_sideways_but_wide_tables_in_themselves(
    name: str, size: tuple[int, int], browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    for dark in (False, True):
        shown(browser, pages[name], size, dark=dark)
        assert browser.js("[innerWidth, document.documentElement.scrollWidth]") == [size[0], size[0]]
        picture = browser.picture(tmp_path / f"{name}-{dark}.png")
        assert (grey(picture) < 60) is dark
        assert len(Image.open(picture).convert("L").getcolors() or range(256)) > 30


def test_the_first_screen_answers_the_claim(browser: Browser, pages: dict[str, Path]) -> None:
    """On a desk the answer and the claim stand above the fold; on a phone, whose screen holds less, the answer does."""
    below = "document.querySelector('{}').getBoundingClientRect().bottom"
    for size, wanted in ((DESK, ("h1", ".claim")), (PHONE, ("h1",))):
        shown(browser, pages["report"], size)
        for what in wanted:
            assert 0 < browser.js(below.format(what)) < size[1], what


def test_every_figure_has_words_for_who_cannot_see_it(browser: Browser, pages: dict[str, Path]) -> None:
    shown(browser, pages["report"])
    labels = browser.js(
        "[...document.querySelectorAll('figure svg')].map((svg) => svg.getAttribute('aria-label') || '')"
    )
    assert len(labels) >= 2 and all(len(label) > 20 for label in labels)


def test_every_link_inside_a_page_leads_somewhere(browser: Browser, pages: dict[str, Path]) -> None:
    for page in pages.values():
        shown(browser, page)
        lost = (
            "[...document.querySelectorAll('a[href^=\"#\"]')].filter((a) => !document.getElementById(a.hash.slice(1)))"
        )
        assert browser.js(f"{lost}.length") == 0


def test_a_number_written_on_a_cell_of_a_heat_map_does_not_hide_the_link_below_it(
    browser: Browser, pages: dict[str, Path]
) -> None:
    shown(browser, pages["ruler"])
    middles = """[...document.querySelectorAll("figure svg text")].filter((text) => /^\\d+$/.test(text.textContent))
        .map((text) => { text.scrollIntoView({block: "center", inline: "center"});
            const {left, right, top, bottom} = text.getBoundingClientRect();
            return document.elementFromPoint((left + right) / 2, (top + bottom) / 2).closest("a"); })"""
    maps = "[...document.querySelectorAll('figure')].filter((each) => !each.textContent.startsWith('Scores by group'))"
    cells = browser.js(f"{maps}.flatMap((each) => [...each.querySelectorAll('svg a')]).length")
    assert browser.js(f"{middles}.filter((link) => link && link.href.baseVal[0] === '#').length") == cells > 20


def test_the_leaderboard_is_filtered_and_sorted_by_keys_alone(browser: Browser, pages: dict[str, Path]) -> None:
    shown(browser, pages["board"])
    assert browser.js("document.forms[0].hidden") is False
    browser.js("document.forms[0].task.focus()")
    browser.js("document.forms[0].task.value = 'listops'; document.forms[0].dispatchEvent(new Event('change'))")
    board = "document.querySelector('section.board:not([hidden])')"
    browser.js(f"{board}.querySelector('th[data-task=listops] button').focus()")
    cells = f"[...{board}.querySelectorAll('td[data-task=listops]')].map((cell) => cell.dataset.value)"
    values = f"{cells}.filter((value) => value).map(Number)"  # rows without a score come last either way
    for key, reverse in (("Enter", True), (" ", False)):
        browser.key(key)
        found = browser.js(values)
        assert len(found) > 1 and found == sorted(found, reverse=reverse)
    browser.js(f"{board}.querySelector('td a[title]').focus()")
    told = browser.js("getComputedStyle(document.activeElement, '::after').content")
    assert "Parameters" not in (before := browser.js("document.activeElement.textContent")) and before
    browser.key("Tab")
    assert browser.js("document.activeElement.tagName") in ("A", "BUTTON", "SUMMARY") and isinstance(told, str)


KINDS = {  # cells from the least to the greatest, whatever their units; then what has no number
    "median": ("−9.9", "+0.2", "8.1", "10.0", "1,200.5", "–"),
    "interval": ("−3.0 to 2.0", "0.5 to 1.5", "0.5 to 9.0", "10.0 to 11.0", "62.0 to 62.5", "–"),
    "flops": ("950", "1.20 k", "805 k", "31.0 G", "2.10 T", ""),
    "time": ("0.5 s", "119 s", "2.5 min", "118 min", "2.1 h", "–"),
    "failed": ("0", "1 diverged", "2 at chance", "1 at chance\n2 diverged", "4 at chance", "–"),
    "seeds": ("1 of 3", "2 of 3", "3", "3 of 5", "10", "–"),
}


def drawn(browser: Browser, to: Path, columns: tuple[Column, ...], rows: tuple[tuple[str, ...], ...]) -> None:
    """Opens a page of one table."""
    to.write_text(document("table", [Table(columns, rows).html()], script=script()))
    shown(browser, to)


def column(browser: Browser, place: int) -> list[str]:
    cells = f"[...document.querySelectorAll('tbody tr:not([hidden]) > :nth-child({place})')]"
    return browser.js(f"{cells}.map((cell) => cell.innerText)")


def test_numbers_are_sorted_by_their_size_in_base_units_and_dashes_stand_last(browser: Browser, tmp_path: Path) -> None:
    mixed = (3, 5, 0, 4, 1, 2)
    rows = tuple((f"model {10 - i}", *(cells[i] for cells in KINDS.values())) for i in mixed)
    drawn(browser, tmp_path / "kinds.html", (Column("model"), *(Column(name, True) for name in KINDS)), rows)
    for place, (name, cells) in enumerate(KINDS.items(), start=2):
        browser.js(f"document.querySelector('th:nth-child({place}) button').focus()")
        for key, wanted in (("Enter", (*cells[4::-1], cells[5])), (" ", cells), ("Enter", [cells[i] for i in mixed])):
            browser.key(key)
            assert column(browser, place) == list(wanted), name
        assert browser.js("document.querySelectorAll('[aria-sort]').length") == 0
    browser.js("document.querySelector('th button').click()")
    assert column(browser, 1) == [f"model {i}" for i in range(5, 11)]
    assert browser.js("document.querySelector('th').ariaSort") == "ascending"


def test_a_long_table_is_filtered_by_words_and_one_whose_rows_continue_others_stays(
    browser: Browser, tmp_path: Path
) -> None:
    rows = tuple((f"s4 {i}" if i % 2 else f"mamba {i}", "scratch" if i % 3 else "masked") for i in range(20))
    drawn(browser, tmp_path / "long.html", (Column("model"), Column("protocol")), rows)
    box = "document.querySelector('.filter input')"
    browser.js(f"{box}.value = 'S4 mask'; {box}.dispatchEvent(new Event('input'))")
    assert column(browser, 1) == ["s4 3", "s4 9", "s4 15"]
    assert browser.js("document.querySelector('.filter output').textContent") == "3 of 20 rows"
    browser.media("print")
    displayed = "getComputedStyle(document.querySelector('.filter')).display"
    assert browser.js(displayed) == "block", "paper says which rows it lacks"
    browser.js(f"{box}.value = ''; {box}.dispatchEvent(new Event('input'))")
    assert len(column(browser, 1)) == 20 and browser.js(displayed) == "none"
    drawn(browser, tmp_path / "grouped.html", (Column("field"), Column("value")), (("depth", "1"), ("", "2")) * 9)
    assert browser.js("document.querySelectorAll('button, input').length") == 0


def test_the_report_is_sorted_by_keys_alone(browser: Browser, pages: dict[str, Path]) -> None:
    shown(browser, pages["report"], PHONE)
    browser.js("document.querySelector('#scores th.number button').focus()")
    table = "document.activeElement.closest('table')"
    browser.key("Enter")
    found = browser.js(f"[...{table}.querySelectorAll('tbody tr > :nth-child(3)')].map((cell) => cell.innerText)")
    values = [float(text) for text in found if text != "–"]
    assert len(values) > 4 and values == sorted(values, reverse=True)
    browser.key("Tab")
    assert browser.js("document.activeElement.textContent") == "Seeds"


@pytest.mark.parametrize(("name", "scripts"), [("report", True), ("report", False), ("audit", False), ("ruler", False)])
def test_a_score_leads_to_its_rows_and_back_by_keys_alone(
    name: str, scripts: bool, browser: Browser, pages: dict[str, Path]
) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
    try:
        shown(browser, pages[name])
        browser.js("document.querySelector('td a[href^=\"#rows-\"]').focus()")
        own, seen = browser.js("document.activeElement.id"), "document.querySelector(':target')"
        for key in ("Enter", "Tab", "Enter"):
            browser.key(key)
            if key == "Enter":
                assert 0 <= browser.js(f"{seen}.getBoundingClientRect().top") < DESK[1]
            else:
                assert browser.js(f"{seen}.closest('details').open && {seen}.contains(document.activeElement)") is True
                assert browser.js("document.activeElement.textContent") == "Back to the table"
        assert own == browser.js("document.activeElement.id") == browser.js(f"{seen}.id") != ""
        opened = browser.js("[...document.querySelectorAll('details[open]')].length")
        assert opened == 1, "the other lists stay closed"
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_paper_has_dark_letters_and_no_controls(browser: Browser, pages: dict[str, Path]) -> None:
    shown(browser, pages["report"], dark=True, media="print")
    assert browser.js("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    controls = "[...document.querySelectorAll('nav, form, .filter')]"
    assert browser.js(f"{controls}.every((each) => getComputedStyle(each).display === 'none')")
    paper = base64.b64decode(browser.ask("Page.printToPDF", printBackground=True)["data"])
    assert paper.startswith(b"%PDF") and len(paper) > 20_000
    assert json.dumps(browser.errors) == "[]"


@pytest.mark.parametrize("name", ["report", "audit"])
def test_a_mark_of_a_figure_opens_its_list(name: str, browser: Browser, pages: dict[str, Path]) -> None:
    shown(browser, pages[name])
    mark = "document.querySelector('figure svg a')"
    assert browser.js(f"getComputedStyle({mark}).cursor") == "pointer"
    browser.js(f"{mark}.dispatchEvent(new MouseEvent('click', {{bubbles: true, cancelable: true}}))")
    seen = "document.querySelector('#rows :target')"
    assert browser.js(f"location.hash === {mark}.getAttribute('xlink:href') && {seen}.closest('details').open") is True
    assert 0 <= browser.js(f"{seen}.getBoundingClientRect().top") < DESK[1]
