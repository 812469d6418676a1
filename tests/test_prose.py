"""Checks the mechanical part of our prose: how docstrings begin and end, shapes of tensors, and names of files.

A docstring is a sentence of its own: it begins with a capital letter (or with code), not in the middle of a sentence,
and its first paragraph ends with a full stop, a colon or a block of code. Names in the pages of docs/ are checked in
`test_docs.py`.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from imports import tree
from repository import ROOT, TESTS

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
BEGINS = re.compile(r"[A-Z`\d(\[{]")
MID_SENTENCE = re.compile(
    r"(And|Or|But|Of|Which|That|Whose|So|As|With|Without|In|At|By|For|From|To|Where|When|After|Before|On|If)\b"
)
SHAPE = re.compile(r"\([\w*+/ -]*, *[^()]*\)|\b(same|any) (shape|size)|\bshaped?\b|\bscalar\b|\blike\b")
SHAPED = ("ops", "mixers", "model.py", "objectives")  # where functions of tensors give shapes
FILE = re.compile(r"`([\w./-]+\.py)\b[^`]*`")
FOREIGN = frozenset(  # files that a reader writes, and files of other projects
    {
        "NAME.py",
        "lra_benchmarks/data/listops.py",
        "lra_benchmarks/data/pathfinder.py",
        "modules/mha.py",
        "snakes.py",
        "snakes2.py",
        "src/dataloaders/datasets/sc.py",
    }
)


def prose_files() -> list[Path]:
    """The package, the benchmarks, and the helpers of the tests, whose other functions are named as sentences."""
    helpers = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    return sorted([*(ROOT / "levelfield").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *helpers])


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES = {name(path): path for path in prose_files()}


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring of a module, class or function."""
    for node in ast.walk(tree(path)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def docstring_faults(text: str) -> list[str]:
    """What is wrong with the form of one docstring."""
    paragraph = text.split("\n\n")[0].rstrip()
    last = paragraph.splitlines()[-1]
    found = []
    if not BEGINS.match(text):
        found.append("begins with a small letter")
    if begin := MID_SENTENCE.match(text):
        found.append(f"begins in the middle of a sentence ('{begin[0]}')")
    if not paragraph.endswith((".", ":", "?", "!", ")")) and not last.startswith("    "):
        found.append("its first paragraph does not end")
    return found


def is_tensor(node: ast.AST | None) -> bool:
    return node is not None and any(
        isinstance(n, (ast.Name, ast.Attribute)) and _last(n) == "Tensor" for n in ast.walk(node)
    )


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def takes_tensors(node: ast.FunctionDef) -> bool:
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return is_tensor(node.returns) or any(is_tensor(a.annotation) for a in arguments)


def shapeless(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of public functions of tensors that have a docstring without a shape.

    A method may leave its shapes to the docstring of its class.
    """

    def walk(node: ast.AST, said: str) -> Iterator[tuple[int, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
                yield from walk(child, ast.get_docstring(child) or "")
            elif isinstance(child, ast.FunctionDef) and not child.name.startswith("_"):
                text = ast.get_docstring(child)
                if text and takes_tensors(child) and not SHAPE.search(text) and not SHAPE.search(said):
                    yield child.lineno, child.name

    yield from walk(tree(path), "")


def comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def faults(path: Path) -> list[str]:
    """All that is wrong in one file, a line each."""
    found = [f"{line}: {fault}" for line, text in docstrings(path) for fault in docstring_faults(text)]
    inner = path.relative_to(ROOT).parts
    if inner[0] == "levelfield" and inner[1] in SHAPED:
        found += [f"{line}: {function} gives no shape" for line, function in shapeless(path)]
    texts = (*docstrings(path), *comments(path))
    return [*found, *(f"{line}: there is no {file}" for line, text in texts for file in missing_files(text))]


@cache
def known_files() -> frozenset[str]:
    """Every path of a Python file here, and every end of one: `ops/attention/lsh.py`, `attention/lsh.py`, `lsh.py`."""
    folders = ("levelfield", "tests", "benchmarks", "docs")
    paths = [path.relative_to(ROOT).parts for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return frozenset("/".join(parts[i:]) for parts in paths for i in range(len(parts)))


def missing_files(text: str) -> list[str]:
    return [file for file in FILE.findall(text) if file not in known_files() | FOREIGN]


@pytest.mark.parametrize("file", sorted(FILES))
def test_prose_is_well_formed(file: str) -> None:
    assert faults(FILES[file]) == []


def test_the_check_itself() -> None:
    assert docstring_faults("Reads a file.") == docstring_faults("(n,) int64: counts.") == []
    assert len(docstring_faults("reads a file")) == 2
    assert len(docstring_faults("Of the backward.")) == 1
    assert docstring_faults("Reads a file, for example\n    read('a')\n\nand so on") == []
    assert missing_files("see `ops/nowhere.py` and `repository.py:3`") == ["ops/nowhere.py"]
