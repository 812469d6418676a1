"""Files, modules and types that pages and docstrings name exist; generated pages and pictures are up to date."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from repository import ROOT, script

from levelfield import published, tasks

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


SYMBOL = re.compile(r"\[`([\w.]+)`\]\((\.\./levelfield/[\w./]+\.py)\)")
LINKING = [ROOT / "docs" / name for name in ("architecture.md", "glossary.md")]


def test_what_the_page_on_tasks_says_that_tasks_have_they_have() -> None:
    """Such as `MQAR.bounded(w)`."""
    classes = {type(task).__name__: type(task) for module in tasks.modules().values() for task in module.TASKS.values()}
    named = re.findall(r"\b(\w+)\.(\w+)\b", (ROOT / "docs" / "tasks.md").read_text())
    named = [(task, member) for task, member in named if task in classes]
    assert len(named) > 5
    assert [f"{task}.{member}" for task, member in named if member not in dir(classes[task])] == []


@pytest.mark.parametrize("page", LINKING, ids=lambda p: p.name)
def test_linked_names_are_defined_in_the_linked_files(page: Path) -> None:
    links = SYMBOL.findall(page.read_text())
    assert len(links) > 10
    assert [f"{name} in {file}" for name, file in links if not _defines((page.parent / file).read_text(), name)] == []


def test_the_glossary_has_at_most_forty_words_each_with_its_type() -> None:
    rows = [line for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert 0 < len(rows) <= 40
    assert [row for row in rows if not SYMBOL.search(row)] == []
    words = [row.split(" | ")[0] for row in rows]
    assert words == sorted(words, key=str.lower)


def test_the_picture_of_the_layers_is_that_of_the_imports() -> None:
    architecture = script("architecture")
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert architecture.filled(page) == page, "run python docs/scripts/architecture.py"
    graph = architecture.imports()
    depth = {name: number for number, row in enumerate(architecture.layers(graph)) for name in row}
    assert depth.keys() == graph.keys()
    assert [name for name, mine in graph.items() if any(depth[other] <= depth[name] for other in mine)] == []
    picture = (ROOT / "docs" / "figures" / "architecture.svg").read_text()
    assert architecture.stamp(graph) in picture, "run python docs/scripts/architecture.py"


def test_the_page_on_coverage_is_what_the_command_writes() -> None:
    coverage = script("printed_cells")
    page = (ROOT / "docs" / "coverage.md").read_text()
    assert coverage.page(coverage.shipped()) == page, "run python docs/scripts/printed_cells.py"


def test_every_printed_cell_is_covered_or_named_as_missing() -> None:
    """Without the study that answers to a table its measured cells have no run, and the page says so."""
    coverage = script("printed_cells")
    studies = coverage.shipped()
    found = coverage.cells(studies)
    assert [cell.row for cell in found] == published.rows()
    causal = [cell for cell in found if cell.table == ("amos2025", "3") and cell.row.get("at") == "direction=causal"]
    assert {answer.arm for cell in causal for answer in cell.answers} == {"s4_causal", "transformer_rotary_causal"}
    needles = [cell for cell in found if cell.table == ("huang2024", "4")]
    assert all(len(cell.answers) == 1 for cell in needles)
    fewer = [study for study in studies if study.name not in ("amos2025_table3", "huang2024_needles")]
    for table, measured in {("amos2025", "3"): 24, ("huang2024", "4"): 81}.items():
        assert coverage.counts([c for c in found if c.table == table])[1:] == (measured, measured)
        assert coverage.counts([c for c in coverage.cells(fewer) if c.table == table])[1:] == (measured, 0)
    lines = coverage.page(fewer).splitlines()
    assert sum(line.endswith("bidmc_rr, bidmc_spo2: no study contains this run |") for line in lines) == 4


def _defines(source: str, name: str) -> bool:
    """name: a class, function or constant at the top of the file, or `Class.member`."""
    body: list[ast.stmt] = ast.parse(source).body
    for part in name.split("."):
        found = [node for node in body if part in _names(node)]
        if not found:
            return False
        body = found[0].body if isinstance(found[0], ast.ClassDef) else []
    return True


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}
