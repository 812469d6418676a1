"""What the pages of docs and the docstrings name exists: files, modules and commands' folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "results" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
OURS = ("levelfield", "tests", "docs", "benchmarks", "results")
FILE = re.compile(rf"(?<![\w./-])(?:{'|'.join(OURS)})/[\w./-]*\w(?![\w*-])")
MODULE = re.compile(r"(?<![\w./-])levelfield(?:\.\w+)+")
EXAMPLES = {"levelfield/mixers/shift.py", "levelfield/tasks/lookup.py"}  # files that a page tells its reader to write


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = set(FILE.findall(page.read_text())) - EXAMPLES
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    """A dotted name is a module, or a module and what it defines."""
    assert [name for name in sorted(set(MODULE.findall(page.read_text()))) if not _exists(name)] == []


def test_every_file_that_the_source_names_exists() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "levelfield").rglob("*.py"))
        for name in FILE.findall(path.read_text())
        if name.endswith((".py", ".md", ".csv")) and not (ROOT / name).exists()
    ]
    assert found == []


def _exists(name: str) -> bool:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        inner = ROOT.joinpath(*parts[:end])
        for source in (inner.with_suffix(".py"), inner / "__init__.py"):
            if source.exists():
                rest = parts[end:]
                return not rest or re.search(rf"\b{rest[0]}\b", source.read_text()) is not None
    return False
