"""What a user's layer is made of, as bytes to be hashed: the files beside its own, or what its class refers to.

beside("mine.py", source)      {Path(".../helper.py"): b"..."}       of a file
identity(Mine)                 b"..."                                of a class, such as one in a notebook cell
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any


def beside(path: str, source: bytes) -> dict[Path, bytes]:
    """The files of the same folder that a file imports by name, and those that they do: where they lie, what they hold.

    Read off the syntax, so it is the same whatever else has been imported, and whether an import is reached or not.
    """
    folder = Path(path).resolve().parent
    found: dict[Path, bytes] = {}
    left = [(Path(path).resolve(), source)]
    while left:
        at, content = left.pop()
        for file in _imported(at, content, folder):
            if file not in found and file != Path(path).resolve():
                found[file] = file.read_bytes()
                left.append((file, found[file]))
    return dict(sorted(found.items()))


def _imported(at: Path, source: bytes, folder: Path) -> Iterator[Path]:
    """Files below the folder that one file's import statements may mean."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return  # importing it will say so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [(folder, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = at.parents[node.level - 1] if 0 < node.level <= len(at.parents) else folder
            module = [node.module] if node.module else []
            targets = [(base, ".".join([*module, alias.name])) for alias in node.names]
        else:
            continue
        for base, dotted in targets:
            parts = dotted.split(".")
            if parts[0] == __package__:
                continue
            for place in (base.joinpath(*parts[: i + 1]) for i in range(len(parts))):
                files = (place.with_suffix(".py"), place / "__init__.py")
                yield from (file for file in files if folder in file.parents and file.is_file())


def identity(cls: type) -> bytes:
    """The class's byte code and constants, and those of all that it names in its own module or closes over.

    Source alone knows neither a closure nor a helper, and a file may have changed since it was imported.
    """
    return b"\0".join(_named(cls, set()))


def _named(value: Any, seen: set[int]) -> Iterator[bytes]:
    """`value` and, at any depth, the user's classes, functions and plain values that it refers to."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, type):
        if _is_foreign(value):
            yield f"{value.__module__}.{value.__qualname__}".encode()
            return
        members = sorted((k, v) for k, v in vars(value).items() if k not in _NO_PART)
        yield value.__qualname__.encode()
        for key, member in members:
            yield key.encode()
            yield from _named(member, seen)
        for base in value.__bases__:
            yield from _named(base, seen)
    elif isinstance(value, (staticmethod, classmethod)):
        yield from _named(value.__func__, seen)
    elif isinstance(value, property):
        for each in (value.fget, value.fset):
            yield from _named(each, seen)
    elif isinstance(value, FunctionType) and not _is_foreign(value):
        yield _bytes(value)
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        found = {k: c.cell_contents for k, c in cells.items() if k != "__class__"}
        found |= {k: value.__globals__[k] for k in sorted(_names(value.__code__)) if k in value.__globals__}
        for key, member in found.items():
            yield key.encode()
            yield from _named(member, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__.encode()
    else:
        yield _bytes(value)


_NO_PART = {"__firstlineno__", "__dict__", "__weakref__", "__doc__", "__module__", "__static_attributes__"}


def _names(code: CodeType) -> set[str]:
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def _is_foreign(value: Any) -> bool:
    module = sys.modules.get(value.__module__)
    return value.__module__ == "builtins" or (module is not None and is_installed(module))


def is_installed(module: ModuleType) -> bool:
    """Of Python or an installed package, which is the same wherever it is named."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or module.__name__.startswith("_user_"):
        return False
    return file is None or "site-packages" in file or file.startswith(f"{sys.base_prefix}/lib")


def _bytes(value: object) -> bytes:
    """The same in every process: code and plain values in full, other objects by their type alone."""
    match value:
        case CodeType():
            return b"\0".join(map(_bytes, (value.co_code, value.co_names, value.co_varnames, value.co_consts)))
        case FunctionType():
            return b"\0".join(map(_bytes, (value.__code__, value.__defaults__, value.__kwdefaults__)))
        case tuple() | list():
            return b"(" + b"\0".join(map(_bytes, value)) + b")"
        case frozenset() | set():
            return b"{" + b"\0".join(sorted(map(_bytes, value))) + b"}"  # a set has another order in every process
        case dict():
            return b"\0".join(_bytes(key) + b":" + _bytes(item) for key, item in value.items())
        case bool() | int() | float() | complex() | str() | bytes() | None:
            return repr(value).encode()
    return type(value).__qualname__.encode()
