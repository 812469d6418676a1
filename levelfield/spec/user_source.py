"""Finds what a user's layer or task is made of, so that another content is another run.

A layer in a file is made of that file and those beside it that it imports; one in a notebook, of its byte code and of
what that refers to. A task is made of its code and of the data files that it names.

    beside("mine.py", source)      # {Path(".../helper.py"): b"..."}
    identity(Mine)                 # b"...", of a class such as one in a notebook cell
    named_files(Reviews())         # (Path(".../reviews.csv"),)
    parsed("Mine(state=16)")       # ("Mine", {"state": 16})
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from levelfield.spec.errors import UserError

PACKAGE = "levelfield"  # its own files are no part of a user's layer


def beside(path: str, source: bytes, root: Path | None = None) -> dict[Path, bytes]:
    """Returns path and content of the files in the same folder that a file imports, directly or through others of them.

    root: the folder below which files count and from which modules are named, where that is another one. They are read
    off the syntax, so what else has been imported, or whether an import is reached, makes no difference.
    """
    folder = root or Path(path).resolve().parent
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
    """Yields the files below the folder that one file's import statements may mean."""
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
            if parts[0] == PACKAGE:
                continue
            for place in (base.joinpath(*parts[: i + 1]) for i in range(len(parts))):
                files = (place.with_suffix(".py"), place / "__init__.py")
                yield from (file for file in files if folder in file.parents and file.is_file())


def identity(cls: type) -> bytes:
    """Returns the byte code and constants of a class, and of all that it names in its own module or closes over.

    The source alone shows neither a closure nor a helper, and a file may have changed since it was imported.
    """
    return b"\0".join(_named(cls, set()))


def _named(value: Any, seen: set[int]) -> Iterator[bytes]:
    """Yields the bytes of `value` and, at any depth, of the user's classes, functions and values that it refers to."""
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
    """Returns whether a module belongs to Python or to an installed package, and so is no user's own."""
    if module.__name__ == "__main__" or module.__name__.startswith("_user_"):
        return False
    return is_installed_file(getattr(module, "__file__", None))


def is_installed_file(file: str | None) -> bool:
    """Returns whether a module's file, or a module without one, belongs to Python or to an installed package."""
    if file is None or "site-packages" in file or file.startswith(f"{sys.base_prefix}/lib"):
        return True
    return Path(sys.base_prefix, "lib") in Path(file).parents  # which Windows spells Lib, with other slashes


def _bytes(value: object) -> bytes:
    """Returns bytes that are the same in every process: of code and plain values in full, of other objects the type."""
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


CODE = (".py", ".pyc", ".log")  # endings of files that are no data


def named_files(value: object) -> tuple[Path, ...]:
    """Returns the files that an instance of a user's class names in its fields, or that its class names in its code.

    A name is a text or path with an ending that is a file here, or beside the class's own file. Text that is only put
    together while the code runs is not found. A class of levelfield's own names no files: ().
    """
    cls = type(value)
    if cls.__module__.partition(".")[0] == PACKAGE:
        return ()
    source = getattr(sys.modules.get(cls.__module__), "__file__", None)
    folders = [Path(), *([Path(source).parent] if source else [])]
    named = [name for name in {*_class_names(cls), *_names_in(vars(value), set())} if "." in name]  # an ending has one
    found = {(folder / name).resolve() for name in named for folder in folders if _is_data(folder / name)}
    return tuple(sorted(found))


def _is_data(path: Path) -> bool:
    try:
        return path.suffix not in ("", *CODE) and path.is_file()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


@cache
def _class_names(cls: type) -> frozenset[str]:
    return frozenset(_names_in(cls, set()))


def _names_in(value: Any, seen: set[int]) -> Iterator[str]:
    """Yields text and paths in a value and, at any depth, in the user's code and the values that it refers to."""
    if id(value) in seen:
        return
    seen.add(id(value))
    inner: list[Any] = []
    match value:
        case str() | Path():
            yield str(value)
        case tuple() | list() | set() | frozenset():
            inner = list(value)
        case dict():
            inner = list(value.values())
        case CodeType():
            inner = list(value.co_consts)
        case FunctionType() if not _is_foreign(value):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            used = [value.__globals__[k] for k in _names(value.__code__) if k in value.__globals__]
            inner = [value.__code__, value.__defaults__, value.__kwdefaults__, *cells, *used]
        case staticmethod() | classmethod():
            inner = [value.__func__]
        case property():
            inner = [value.fget]
        case type() if not _is_foreign(value) and value.__module__.partition(".")[0] != PACKAGE:
            inner = [v for k, v in vars(value).items() if k not in _NO_PART] + list(value.__bases__)
    for each in inner:
        yield from _names_in(each, seen)


def frozen(value: Any) -> Any:
    """Turns lists into tuples, at any depth, so that a value with such a setting can be hashed."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


def parsed(call: str) -> tuple[str, dict[str, Any]]:
    """Returns name and settings of a class: parsed("Name(a=1)") is ("Name", {"a": 1}). Raises UserError otherwise."""
    try:
        tree = ast.parse(call.strip(), mode="eval").body
        if isinstance(tree, ast.Name):
            return tree.id, {}
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
            return tree.func.id, {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords if k.arg}
    except (SyntaxError, ValueError):
        pass
    raise UserError(f"'{call}' is no class name with settings: write Name or Name(setting=1, other='text').")
