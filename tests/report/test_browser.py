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
from repository import ROOT

from levelfield import report
from levelfield.report import leaderboard

pytestmark = pytest.mark.browser
PHONE, DESK = (390, 844), (1280, 900)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report with figures and failures, and the leaderboard of what is committed."""
    out = tmp_path_factory.mktemp("pages")
    study, results = fixtures.gap()
    report.build(study, "minutes", results, out / "report")
    leaderboard.build([ROOT / "results"], out / "board.html")
    return {"report": out / "report" / "report.html", "board": out / "board.html"}


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


@pytest.mark.parametrize(("name", "size"), [("report", DESK), ("board", PHONE), ("board", DESK)])
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


def test_the_leaderboard_is_filtered_and_sorted_by_keys_alone(browser: Browser, pages: dict[str, Path]) -> None:
    shown(browser, pages["board"])
    assert browser.js("document.forms[0].hidden") is False
    browser.js("document.forms[0].task.focus()")
    browser.js("document.forms[0].task.value = 'listops'; document.forms[0].dispatchEvent(new Event('change'))")
    board = "document.querySelector('section.board:not([hidden])')"
    browser.js(f"{board}.querySelector('th[data-task=listops] button').focus()")
    values = f"[...{board}.querySelectorAll('td[data-task=listops]')].map((cell) => Number(cell.dataset.value))"
    for key, reverse in (("Enter", True), (" ", False)):
        browser.key(key)
        found = browser.js(values)
        assert len(found) > 1 and found == sorted(found, reverse=reverse)
    browser.js(f"{board}.querySelector('td a[title]').focus()")
    told = browser.js("getComputedStyle(document.activeElement, '::after').content")
    assert "Parameters" not in (before := browser.js("document.activeElement.textContent")) and before
    browser.key("Tab")
    assert browser.js("document.activeElement.tagName") in ("A", "BUTTON", "SUMMARY") and isinstance(told, str)


def test_paper_has_dark_letters_and_no_controls(browser: Browser, pages: dict[str, Path]) -> None:
    shown(browser, pages["report"], dark=True, media="print")
    assert browser.js("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    hidden = "[...document.querySelectorAll('nav, form')].every((each) => getComputedStyle(each).display === 'none')"
    assert browser.js(hidden)
    paper = base64.b64decode(browser.ask("Page.printToPDF", printBackground=True)["data"])
    assert paper.startswith(b"%PDF") and len(paper) > 20_000
    assert json.dumps(browser.errors) == "[]"
