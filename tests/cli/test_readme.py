"""The README: its tables are generated, its files exist, its Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import ROOT, script

from levelfield import contract
from levelfield.user.mixer import load_user_mixer

README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_tables_are_what_the_command_makes():
    tables = script("tables")
    pages = [page.read_text(encoding="utf-8") for page in tables.PAGES]
    assert [tables.filled(page) for page in pages] == pages, "run python docs/scripts/tables.py"
    assert sum(page.count("<!-- table:") for page in pages) == len(tables.TABLES)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_example_passes_the_contract(tmp_path: Path):
    (code,) = re.findall(r"```python\n(# my_mixer\.py.*?)```", README, flags=re.DOTALL)
    (tmp_path / "my_mixer.py").write_text(code)
    contract.check(load_user_mixer(f"{tmp_path}/my_mixer.py:MyMixer"), 16, causal=True)


def test_the_first_screen_has_both_commands_and_the_figure():
    screen = README[: README.index("## Your own model")]
    assert len(screen.splitlines()) <= 20
    for wanted in (
        "make demo",
        "make test",
        "uvx levelfield demo",
        "pip install levelfield",
        "docs/figures/findings.png",
    ):
        assert wanted in screen
