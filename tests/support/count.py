"""Counts the sizes of the source: `python tests/support/count.py` prints them, `tests/test_sizes.py` sets bounds.

    files: 61, 7,204 lines; per file 98 / 212 / 389 (median / 90% / most)
    functions: 804; lines 8 / 27 / 58

A function's lines include its docstring; a nested function counts in its own right and in the one around it.
"""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from repository import ROOT


@dataclass(frozen=True)
class Function:
    """The size of one function. `where` is "path:line name"; parameters do not include self and cls."""

    where: str
    lines: int
    parameters: int
    typed: int


@dataclass(frozen=True)
class Count:
    """The sizes of all files and functions below a folder. files: lines by path."""

    files: dict[str, int]
    functions: tuple[Function, ...]

    @property
    def lines(self) -> int:
        return sum(self.files.values())

    @property
    def typed(self) -> float:
        """The fraction of parameters that have an annotation."""
        total = sum(f.parameters for f in self.functions)
        return sum(f.typed for f in self.functions) / total if total else 1.0


@cache
def count(folder: Path) -> Count:
    """Every .py file below the folder that is not empty."""
    texts = {str(p.relative_to(ROOT)): p.read_text() for p in sorted(folder.rglob("*.py"))}
    files = {name: text.count("\n") for name, text in texts.items() if text.strip()}
    return Count(files, tuple(f for name, text in texts.items() for f in functions(name, text)))


def functions(name: str, text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text, name)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno:
            a = node.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
            every = [p for p in every if p.arg not in ("self", "cls")]
            typed = sum(p.annotation is not None for p in every)
            yield Function(f"{name}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1, len(every), typed)


def p90(values: Sequence[int]) -> int:
    return sorted(values)[int(0.9 * len(values))]


def spread(values: Sequence[int]) -> str:
    return f"{statistics.median(values):.0f} / {p90(values)} / {max(values)} (median / 90% / most)"


def main() -> None:
    source, tests = count(ROOT / "levelfield"), count(ROOT / "tests")
    print(f"files: {len(source.files)}, {source.lines:,} lines; per file {spread(list(source.files.values()))}")
    print(f"functions: {len(source.functions)}; lines {spread([f.lines for f in source.functions])}")
    print(f"parameters with a type: {source.typed:.1%}; tests / source: {tests.lines / source.lines:.2f}")
    for name, lines in sorted(source.files.items(), key=lambda item: -item[1])[:5]:
        print(f"  {lines:4} {name}")
    for function in sorted(source.functions, key=lambda f: -f.lines)[:5]:
        print(f"  {function.lines:4} {function.where}")


if __name__ == "__main__":
    main()
