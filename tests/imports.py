"""Reads the source as syntax: who imports whom, and where a construct stands. Used by `test_boundaries.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "levelfield"


@dataclass(frozen=True)
class Import:
    """One import at run time. `module` is absolute; `lazy` where it stands inside a function."""

    module: str
    line: int
    lazy: bool


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
        """The row of the table it belongs to: `levelfield.mixers.s4` is "mixers"."""
        return unit(self.module)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(), str(self.path))

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(self._imports(self.tree, lazy=False))

    def _imports(self, node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, lazy) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                yield from (Import(name, child.lineno, lazy) for name in self._targets(child))
            else:
                yield from self._imports(child, lazy or isinstance(child, (ast.FunctionDef, ast.Lambda)))

    def _targets(self, node: ast.ImportFrom) -> Iterator[str]:
        """`from a import b` imports module a.b where that is one of ours, and a otherwise."""
        package = self.module.split(".") if self.path.name == "__init__.py" else self.module.split(".")[:-1]
        base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
        base = ".".join(part for part in (base, node.module) if part)
        for alias in node.names:
            inner = ROOT / f"{base}.{alias.name}".replace(".", "/")
            ours = inner.with_suffix(".py").exists() or (inner / "__init__.py").exists()
            yield f"{base}.{alias.name}" if ours else base

    def calls(self) -> Iterator[tuple[ast.Call, str, tuple[ast.AST, ...]]]:
        """Every call, the dotted name of what is called ("" for anything else), and the nodes around it."""
        yield from self._calls(self.tree, ())

    def _calls(self, node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[tuple[ast.Call, str, tuple[ast.AST, ...]]]:
        if isinstance(node, ast.Call):
            yield node, dotted(node.func), around
        for child in ast.iter_child_nodes(node):
            yield from self._calls(child, (*around, node))

    def at(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def unit(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "levelfield"


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{inner}.{node.attr}" if (inner := dotted(node.value)) else ""
    return ""


def sources() -> list[Source]:
    return [Source(path) for path in sorted(PACKAGE.rglob("*.py"))]
