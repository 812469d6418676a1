"""Finds the part of a user's file that a task, mixer, objective or probe is made of, so that other code is another one.

That part is the text of the class and of the statements that define what it uses, at any depth, with the files beside
it that these import. A study may stand in the same file: what it changes of its runs leaves the task as it was. Text,
unlike byte code, is the same for every version of Python.

    keep("mine", path, source, {}, folder)      # before a file is executed
    code_sha256(module.Reviews)                 # "3f2a...", "" for a class that levelfield did not load from a file
    part(source, "Reviews")                     # the statements themselves
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from levelfield.spec.identity import HASHES_OF_CODE
from levelfield.spec.user_source import beside, syntax


class _File(NamedTuple):
    """A file as it was executed, those beside it that it imports, and the folder from which modules are named."""

    path: Path
    source: bytes
    others: Mapping[Path, bytes]
    root: Path


_OF_MODULES: dict[str, _File] = {}
_OF_PATHS: dict[Path, _File] = {}  # those that others import


def keep(module: str, path: Path, source: bytes, others: Mapping[Path, bytes], root: Path) -> None:
    """Remembers of what files a module of that name is about to be executed."""
    _OF_MODULES[module] = _File(path, source, others, root)
    _OF_PATHS.update({each: _File(each, content, others, root) for each, content in others.items()})


@cache
def code_sha256(cls: type) -> str:
    """Returns the SHA-256 of the code of a class that was loaded from a user's file; "" for any other class."""
    module = sys.modules.get(cls.__module__)
    file = _OF_MODULES.get(cls.__module__) or _OF_PATHS.get(Path(getattr(module, "__file__", None) or "").resolve())
    if file is None:
        return ""
    own = part(file.source, cls.__qualname__.partition(".")[0])
    imported = beside(str(file.path), own, file.root)
    texts = [own, *(file.others.get(path, content) for path, content in imported.items())]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def part(source: bytes, name: str) -> bytes:
    """Returns the statements of a file that define a name, and all that these use, in their order.

    A statement that does something else, such as `TABLE["x"] = 3` or a loop, counts where it has one of these names.
    """
    body = syntax(source).body
    defined = {each for node in body for each in _defined(node)}
    wanted, kept = {name}, set[ast.stmt]()
    while more := [node for node in body if node not in kept and _concerns(node, wanted)]:
        kept.update(more)
        wanted |= defined.intersection(each for node in more for each in _mentioned(node))
    lines = source.splitlines()
    texts = (lines[_first(node) - 1 : node.end_lineno] for node in body if node in kept)
    return b"\n".join(line for text in texts for line in text)


def _concerns(node: ast.stmt, wanted: set[str]) -> bool:
    names = _defined(node)
    if "*" in names or not wanted.isdisjoint(names):
        return True
    if isinstance(node, _DEFINES) and names:
        return False
    script = isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
    return not script and not wanted.isdisjoint(_mentioned(node))


_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


def _defined(node: ast.stmt) -> set[str]:
    """Returns the names that a statement at the top of a file defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    inside = list(ast.walk(node))
    imports = [each for n in inside if isinstance(n, (ast.Import, ast.ImportFrom)) for each in n.names]
    stored = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    inner = {n.name for n in inside if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    return stored | inner | {each.asname or each.name.partition(".")[0] for each in imports}


def _mentioned(node: ast.stmt) -> Iterable[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _first(node: ast.stmt) -> int:
    """Returns the line on which a statement begins, with its decorators."""
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


HASHES_OF_CODE.append(code_sha256)
