"""Puts a table of contents on every page of docs that is longer than two screens.

    python docs/scripts/contents.py           # rewrites the lines between the markers, or adds them
    python docs/scripts/contents.py --check   # exit 1 if that would change anything

The contents are one paragraph of links to the page's sections, between `<!-- contents -->` and `<!-- end -->`, before
the first section. Scripts that write a page as a whole pass it through `filled`. On the site the paragraph is left out:
each page has its contents beside it there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
SCREENS = 120  # lines of two screens
BLOCK = re.compile(r"<!-- contents -->.*?<!-- end -->\n\n", re.DOTALL)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def sections(text: str) -> list[str]:
    """Returns the titles of a page's sections, in their order."""
    return SECTION.findall(CODE.sub("", text))


def anchor(title: str) -> str:
    """Returns the anchor that the repository and the site give a heading, such as `add-a-mixer` of "Add a `mixer`!"."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def filled(text: str) -> str:
    """Returns a page with its contents made anew; a page of two screens or fewer has none."""
    bare = BLOCK.sub("", text)
    if bare.count("\n") <= SCREENS:
        return bare
    links = " ·\n".join(f"[{title.replace('`', '')}](#{anchor(title)})" for title in sections(bare))
    start = re.search(rf"^## {re.escape(sections(bare)[0])}$", bare, re.MULTILINE)
    assert start is not None
    block = f"<!-- contents -->\n\nOn this page: {links}\n\n<!-- end -->\n\n"
    return bare[: start.start()] + block + bare[start.start() :]


def main() -> str | None:
    """Rewrites the pages, or says which would change."""
    pages = sorted(DOCS.glob("*.md"))
    after = {page: filled(page.read_text(encoding="utf-8")) for page in pages}
    changed = [page for page in pages if page.read_text(encoding="utf-8") != after[page]]
    if "--check" in sys.argv:
        return (
            f"Out of date: {', '.join(page.name for page in changed)}. Run python docs/scripts/contents.py."
            if changed
            else None
        )
    for page in changed:
        page.write_text(after[page], encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main())
