"""What a user's layer is made of, as bytes to be hashed: the files beside its own, or what its class refers to; and
the files that a user's task names.

beside("mine.py", source)      {Path(".../helper.py"): b"..."}       of a file
identity(Mine)                 b"..."                                of a class, such as one in a notebook cell
named_files(Reviews())         (Path(".../reviews.csv"),)            of a task
parsed("Mine(state=16)")       ("Mine", {"state": 16})
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

PACKAGE = "levelfield"  # whose own files are no part of a user's layer


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
            if parts[0] == PACKAGE:
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


CODE = (".py", ".pyc", ".log")  # endings of files that are no data


def named_files(value: object) -> tuple[Path, ...]:
    """The files that an instance of a user's class names in its fields, or its class in its code: text or paths with an
    ending, that are files here or beside the class's own file. () for what is levelfield's own.

    Text that is only put together while the code runs is not found.
    """
    cls = type(value)
    if cls.__module__.partition(".")[0] == PACKAGE:
        return ()
    source = getattr(sys.modules.get(cls.__module__), "__file__", None)
    folders = [Path(), *([Path(source).parent] if source else [])]
    named = {*_class_names(cls), *_names_in(vars(value), set())}
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
    """Text and paths in a value and, at any depth, in the user's code and the plain values that it refers to."""
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


def parsed(call: str) -> tuple[str, dict[str, Any]]:
    """ "Name(a=1)" -> ("Name", {"a": 1})."""
    try:
        tree = ast.parse(call.strip(), mode="eval").body
        if isinstance(tree, ast.Name):
            return tree.id, {}
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
            return tree.func.id, {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords if k.arg}
    except (SyntaxError, ValueError):
        pass
    raise UserError(f"'{call}' is no class name with settings: write Name or Name(setting=1, other='text').")
