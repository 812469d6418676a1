"""Checks that calls can be read where they stand: at most five arguments by position, at most eight parameters.

Inner loops that numba compiles take flat arguments, and functions of the command line one for each flag, so both are
left out; so are calls of Python's, NumPy's and torch's own functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from imports import PACKAGE, dotted, tree
from repository import ROOT

MOST_BY_POSITION = 5
MOST_PARAMETERS = 8
LIBRARIES = {"torch", "np", "nn", "functional", "math", "numba"}
METHODS = {"apply", "save_for_backward", "reshape"}  # of torch and NumPy, where arguments have no names
BUILTINS = {"zip", "print", "max", "min", "chain", "product"}  # that take any number
COMPILED = {"njit", "compiled"}  # decorators that hand a function to numba
FLAT = ("levelfield/cli/", "levelfield/ops/arithmetic.py")  # a parameter for each flag; torch's rules for FLOPs
DICTATED = ("torch.", "register_", "custom_op")  # decorators of operators; torch says what their parameters are


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES = {name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def decorators(function: ast.FunctionDef) -> list[str]:
    return [dotted(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list]


def is_compiled(function: ast.FunctionDef) -> bool:
    return any(head.split(".")[-1].lstrip("_") in COMPILED for head in decorators(function))


@cache
def any_number() -> frozenset[str]:
    """Functions of the package that numba compiles, or that take any number of arguments by position."""
    nodes = (node for path in FILES.values() for node in ast.walk(tree(path)))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef))
    return frozenset(f.name for f in functions if is_compiled(f) or f.args.vararg)


def outside_numba(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those inside a function that numba compiles."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.FunctionDef) and is_compiled(child)):
            yield child
            yield from outside_numba(child)


def long_calls(module: ast.Module) -> Iterator[str]:
    """Line and function of every call of ours with more than five arguments by position."""
    for node in outside_numba(module):
        if isinstance(node, ast.Call) and len(node.args) > MOST_BY_POSITION:
            called = dotted(node.func) or ast.unparse(node.func)
            last = called.split(".")[-1]
            if called.split(".")[0] not in LIBRARIES | BUILTINS and last not in METHODS | any_number():
                yield f"{node.lineno}: {called} is called with {len(node.args)} arguments by position"


def wide_functions(module: ast.Module) -> Iterator[str]:
    """Line and name of every function with more than eight parameters, self and cls aside."""
    for node in outside_numba(module):
        if isinstance(node, ast.FunctionDef) and not any(
            head.split(".")[-1].startswith(DICTATED) or head.startswith(DICTATED) for head in decorators(node)
        ):
            a = node.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
            if (count := sum(p.arg not in ("self", "cls") for p in every)) > MOST_PARAMETERS:
                yield f"{node.lineno}: {node.name} has {count} parameters"


def faults(file: str) -> list[str]:
    """All that is wrong in one file, a line each."""
    if file.startswith("levelfield/ops/compiled/"):
        return []
    module = tree(FILES[file])
    wide = [] if file.startswith(FLAT) else list(wide_functions(module))
    return [*long_calls(module), *wide]


@pytest.mark.parametrize("file", sorted(FILES))
def test_calls_are_readable(file: str) -> None:
    assert faults(file) == []


def test_the_check_itself() -> None:
    call, wide = "f(1, 2, 3, 4, 5, 6, x=7)\n", "def f(self, a, b, c, d, e, f, g, *, h, i): ...\n"
    assert len(list(long_calls(ast.parse(call)))) == len(list(wide_functions(ast.parse(wide)))) == 1
    assert (
        list(long_calls(ast.parse("np.f(1, 2, 3, 4, 5, 6)\nf(1, 2, 3, 4, 5, x=6)\n@njit\ndef g():\n    " + call))) == []
    )
