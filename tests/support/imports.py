"""Reads the source as syntax: who imports whom, and where a construct stands. Used by `test_boundaries.py`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from repository import ROOT

PACKAGE = ROOT / "levelfield"
ROW = re.compile(r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Import:
    """One import. `module` is absolute; `lazy` where it stands inside a function, `typing` where only types need it."""

    module: str
    line: int
    lazy: bool
    typing: bool


@dataclass(frozen=True)
class Source:
    """One module of ours."""

    path: Path

    @property
    def module(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def unit(self) -> str:
        """The module or folder of the package it belongs to: `levelfield.mixers.s4` is in "mixers"."""
        return unit(self.module)

    @property
    def tree(self) -> ast.Module:
        return tree(self.path)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All modules that this one imports, at run time or for types."""
        return tuple(self._imports(self.tree, lazy=False, typing=False))

    @property
    def at_run_time(self) -> tuple[Import, ...]:
        return tuple(i for i in self.imports if not i.typing)

    def _imports(self, node: ast.AST, lazy: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                continue  # nine of ten nodes, in which no statement can stand
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, lazy, typing) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                yield from (Import(name, child.lineno, lazy, typing) for name in self._targets(child))
            else:
                inner = lazy or isinstance(child, ast.FunctionDef)
                only_types = typing or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
                yield from self._imports(child, inner, only_types)

    def _targets(self, node: ast.ImportFrom) -> Iterator[str]:
        """`from a import b` imports module a.b where that is one of ours, and a otherwise."""
        package = self.module.split(".") if self.path.name == "__init__.py" else self.module.split(".")[:-1]
        base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
        base = ".".join(part for part in (base, node.module) if part)
        for alias in node.names:
            inner = ROOT / f"{base}.{alias.name}".replace(".", "/")
            ours = inner.with_suffix(".py").exists() or (inner / "__init__.py").exists()
            yield f"{base}.{alias.name}" if ours else base

    @cached_property
    def calls(self) -> tuple[tuple[ast.Call, str, tuple[ast.AST, ...]], ...]:
        """Every call, the dotted name of what is called ("" for anything else), and the nodes around it."""
        return tuple(self._calls(self.tree, ()))

    def _calls(self, node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[tuple[ast.Call, str, tuple[ast.AST, ...]]]:
        if isinstance(node, ast.Call):
            yield node, dotted(node.func), around
        for child in ast.iter_child_nodes(node):
            yield from self._calls(child, (*around, node))

    def at(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def opened(module: str, sources: Mapping[str, Source]) -> set[str]:
    """Returns the modules of ours that someone opens to follow one module: its imports, theirs, and so on.

    Imports for types and inside functions count like all others. The `__init__` of a folder counts where a name is
    taken from it, and not where a module inside the folder is named.
    """
    found: set[str] = set()
    left = [module]
    while left:
        named = {i.module for i in sources[left.pop()].imports} & sources.keys()
        left += named - found
        found |= named
    return found - {module}


def unit(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{inner}.{node.attr}" if (inner := dotted(node.value)) else ""
    return ""


@cache
def tree(path: Path) -> ast.Module:
    """The syntax of a file, read once for all that ask."""
    return ast.parse(path.read_text(), str(path))


@cache
def sources() -> tuple[Source, ...]:
    return tuple(Source(path) for path in sorted(PACKAGE.rglob("*.py")))


@dataclass(frozen=True)
class Unit:
    """A row of the table in CONTRIBUTING.md. `anything_but` is True if the cell names what may not be imported."""

    name: str
    holds: str
    named: frozenset[str]
    anything_but: bool

    def may_import(self, module: str) -> bool:
        """Whether the unit may import a module, whose dotted name begins with "levelfield"."""
        hit = any(within(module, name) for name in self.named)
        return not hit if self.anything_but else hit


def table() -> dict[str, Unit]:
    """What may import what, by unit, as CONTRIBUTING.md has it."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split("<!-- table: units -->")[1].split("<!-- end -->")[0]
    rows = ROW.findall(text)
    return {
        name: Unit(name, holds, frozenset(re.findall(r"`([\w.]+)`", cell)), cell.startswith("anything but"))
        for name, holds, cell in rows
    }


def within(module: str, name: str) -> bool:
    """Whether a dotted module is the unit `name` or lies inside it: `levelfield.data.batches` is within "data"."""
    inner = module.removeprefix("levelfield").lstrip(".") or "__init__"
    return inner == name or inner.startswith(f"{name}.")


def row_of(module: str, rows: dict[str, Unit]) -> Unit | None:
    """The row with the longest name that the module lies within."""
    found = [row for name, row in rows.items() if within(module, name)]
    return max(found, key=lambda row: len(row.name), default=None)
