"""The site of the documentation: each page is in its navigation, links and anchors lead somewhere, nothing is local."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from types import ModuleType
from typing import Any

import pytest
from browser import program
from repository import ROOT, script

from levelfield.cli import listing
from levelfield.cli.app import COMMANDS

USERS = ["Start", "Tutorials", "How-to", "Reference", "Concepts", "Glossary", "Gallery", "Findings"]
LOCAL = re.compile(r"/(?:home|root|Users|tmp)/\w|file://\w")
ANCHOR = re.compile(r"\]\(([^)\s#]*)#([^)\s]+)\)")


def website() -> ModuleType:
    return script("website")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return website().staged()


def listed(entry: Any) -> Iterator[str]:
    """The pages below one entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from listed(inner)


def test_every_page_is_in_the_navigation_once(pages: dict[str, str]) -> None:
    """Data cards are many and have a page that lists them."""
    navigation = tomllib.loads(website().settings())["project"]["nav"]
    assert [name for entry in navigation for name in entry] == USERS
    named = list(listed(navigation))
    assert len(named) == len(set(named))
    assert set(named) == {name for name in pages if not name.startswith("cards/")} | {"cards/index.md"}
    for name in pages:
        if name.startswith("cards/") and name != "cards/index.md":
            assert f"({name.removeprefix('cards/')})" in pages["cards/index.md"]


def test_links_lead_to_pages_to_files_and_into_the_repository(pages: dict[str, str]) -> None:
    repository = website().PROJECT["urls"]["Repository"]
    assert f"]({repository}/levelfield/train.py)" in pages["architecture.md"]
    assert "](contributing.md)" in pages["architecture.md"] and "](docs/" not in pages["index.md"]
    assert "](cards/index.md)" in pages["index.md"] and "](reports/demo.html)" in pages["index.md"]
    report = website().handed_out(ROOT / "docs" / "reports" / "demo.html")
    assert f'href="{repository}/results/demo-minutes/rows.csv"' in report and 'href="../' not in report
    assert "](first_look.md)" in pages["index.md"] and "](tutorial-proposer.md)" in pages["first_look.md"]
    assert '<a href="first_look.ipynb">' in pages["first_look.md"]


def test_a_link_that_leads_nowhere_is_an_error_and_code_is_left_alone(tmp_path: Path) -> None:
    site, page = website(), ROOT / "docs" / "imagined.md"
    with pytest.raises(site.Broken, match=re.escape("docs/imagined.md: 'nowhere.md' leads nowhere")):
        site.address("nowhere.md", page, {page: "imagined.md"})
    with pytest.raises(site.Broken):
        site.address("../../elsewhere.md", page, {page: "imagined.md"})
    code = "`x[0](nowhere.md)`\n\n```\na](nowhere.md)\n```\n"
    written = tmp_path / "page.md"
    written.write_text(code)
    assert site.linked(written, {written: "page.md"}) == code


def test_one_page_leads_to_every_page_and_every_command(pages: dict[str, str]) -> None:
    """The page is read from the folder, so that whoever opens that finds the same."""
    text = (ROOT / "docs" / "overview.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.(?:md|ipynb))", text))
    there = {path.name for path in (ROOT / "docs").iterdir() if path.suffix in (".md", ".ipynb")} - {"overview.md"}
    assert linked == there
    assert set(re.findall(r"`levelfield (\w+)`", text)) == set(COMMANDS.commands)
    assert "](overview.md)" in pages["index.md"]
    (listed,) = re.findall(r"`levelfield list` \| lists ([\w, ]+); with `(\w+)`", text)
    assert [*re.findall(r"\w+", listed[0].replace(" and ", ", ")), listed[1]] == list(listing.ALL)


def test_a_page_of_more_than_two_screens_has_contents(pages: dict[str, str]) -> None:
    """All links to its sections stand before the first one; on the site, where each page has its own, no such lines."""
    contents, long = script("contents"), []
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text()
        assert contents.filled(text) == text, "run python docs/scripts/contents.py"
        if contents.BLOCK.sub("", text).count("\n") > contents.SCREENS:
            long.append(page.name)
            sections = contents.sections(text)
            opening = text[: text.index(f"\n## {sections[0]}\n")]
            assert [s for s in sections if f"](#{contents.anchor(s)})" not in opening] == []
            assert len(sections) >= 3
    assert {"mixers.md", "coverage.md", "ruler.md", "studies.md"} <= set(long)
    assert not any("<!-- contents -->" in text for text in pages.values())


def test_contents_come_and_go_with_the_length_of_a_page() -> None:
    contents = script("contents")
    short = "# A\n\n## One `b`, and (two)\n\n```\n## no section\n```\n\n## Three\n\n"
    assert contents.filled(short) == short
    made = contents.filled(short + "line\n" * 120)
    assert "[One b, and (two)](#one-b-and-two) ·\n[Three](#three)\n" in made and "no-section" not in made
    assert contents.filled(made) == made
    assert contents.filled(made.replace("line\n" * 120, "")) == short


def test_every_anchor_is_a_heading(pages: dict[str, str]) -> None:
    """A heading's anchor is its text in small letters, without punctuation, with a hyphen for each blank."""
    lost = []
    for name, text in pages.items():
        for target, anchor in ANCHOR.findall(text):
            if target.startswith("http"):
                continue
            inner = (Path(name).parent / target).as_posix() if target else name
            if anchor not in anchors(pages[inner]):
                lost.append(f"{name}: {target}#{anchor}")
    assert lost == []


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings]
    slugs = {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}
    return slugs | set(re.findall(r'\b(?:id|name)="([^"]+)"', text))


def test_no_page_names_a_path_of_a_machine(pages: dict[str, str]) -> None:
    assert [f"{name}: {found[0]}" for name, text in pages.items() for found in LOCAL.finditer(text)] == []
    assert [name for name, text in pages.items() if str(ROOT) in text] == []


def test_the_reference_is_of_modules_that_are_there() -> None:
    for _, modules in website().REFERENCE.values():
        for module in modules:
            path = ROOT.joinpath(*module.split("."))
            assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), module


def test_what_builds_the_site_is_pinned_without_an_address() -> None:
    pins = (ROOT / "docs" / "constraints.txt").read_text().split()
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []
    names = {pin.partition("==")[0] for pin in pins}
    assert {"zensical", "mkdocstrings", "mkdocstrings-python"} <= names


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as the builder makes it, with its own check of links and anchors, from a copy of the pages."""
    if not (ROOT / ".venv-docs" / ".ready").exists():
        pytest.skip("the site's own environment is not there: make docs makes it")
    copy = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", copy / "docs")
    for name in ("levelfield", "results", "benchmarks", "tests", ".venv-docs"):
        (copy / name).symlink_to(ROOT / name)
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, copy / name)
    done = subprocess.run([sys.executable, "docs/scripts/website.py"], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy / "build" / "site"


@pytest.mark.slow
def test_the_site_builds_with_an_index_and_a_reference_and_loads_nothing(site: Path) -> None:
    found = json.loads((site / "search.json").read_text())
    assert {"mixers.html", "verdicts.html"} <= {item["location"].partition("#")[0] for item in found["items"]}
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=.?(?:https?:)?//")
    assert [page.name for page in site.rglob("*.html") if loaded.search(page.read_text())] == []
    runs = (site / "reference" / "runs.html").read_text()
    assert 'id="levelfield.spec.run.Run"' in runs and str(site) not in runs


ASKS = """<script>
const within = (node, wanted) => [...(node.shadowRoot ? [node.shadowRoot] : []), ...(node.children || [])]
  .flatMap(inner => [...(wanted(inner) ? [inner] : []), ...within(inner, wanted)]);
let step = setInterval(() => {
  const [field] = within(document.body, n => n.tagName === "INPUT" && n.type === "text");
  if (!field) return document.querySelector(".md-search__button").click();
  if (!field.value) { field.value = "certified range"; field.dispatchEvent(new Event("input", {bubbles: true})); }
  const links = within(document.body, n => n.tagName === "A" && n.getRootNode() !== document).map(n => n.href);
  if (links.length) { clearInterval(step); fetch("/found", {method: "POST", body: links.join(" ")}); }
}, 500);
</script></body>"""
"""Opens the search, whose parts stand in shadow trees, types two words, and sends the addresses of what is found."""


@pytest.mark.browser
def test_the_search_finds_a_page_in_a_browser(site: Path, tmp_path: Path) -> None:
    browser = program()
    found: Queue[str] = Queue()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/":
                self.send_response(200)
                self.end_headers()
                self.wfile.write((site / "index.html").read_text().replace("</body>", ASKS).encode())
            else:
                super().do_GET()

        def do_POST(self) -> None:
            found.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        address = f"http://127.0.0.1:{server.server_port}/"
        page = subprocess.Popen(
            [browser, *flags, f"--user-data-dir={tmp_path / 'profile'}", address], stderr=subprocess.DEVNULL
        )
        try:
            assert "reach.html" in found.get(timeout=90)
        finally:
            page.terminate()
            page.wait(timeout=20)
            server.shutdown()
