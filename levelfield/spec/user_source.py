"""Finds what a user's layer or task is made of, so that another content is another run.

A layer in a file is made of that file and those of the user's own that it imports; one in a notebook, of what
`class_identity` finds. A task is made of the code that `own_code` finds and of the data files that it names.

    beside("mine.py", source)      # {Path(".../helper.py"): b"..."}
    named_files(Reviews())         # (Path(".../reviews.csv"),)
    parsed("Mine(state=16)")       # ("Mine", {"state": 16})
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from levelfield.spec.errors import UserError, plain

PACKAGE = "levelfield"  # its own files are no part of a user's layer
_PARSING = Lock()  # Python 3.11 counts the depth of all threads together, and fails where two parse at once


def beside(path: str, source: bytes, root: Path | None = None) -> dict[Path, bytes]:
    """Returns path and content of the user's own files that a file imports, directly or through others of them.

    These are those of the same folder, and modules elsewhere that Python finds and that are not installed. root: the
    folder below which files count and from which modules are named, where that is another one. They are read off the
    syntax, so what else has been imported, or whether an import is reached, makes no difference.
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


def syntax(source: bytes) -> ast.Module:
    """Parses a file. Raises SyntaxError or ValueError."""
    with _PARSING:
        return ast.parse(source)


def _imported(at: Path, source: bytes, folder: Path) -> Iterator[Path]:
    """Yields the files that one file's import statements may mean: below the folder; elsewhere where it has none."""
    try:
        tree = syntax(source)
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
        relative = isinstance(node, ast.ImportFrom) and node.level
        for base, dotted in targets:
            parts = dotted.split(".")
            if parts[0] == PACKAGE:
                continue
            home = folder if folder in at.parents else _home_of(at)
            found = list(_files(base, parts, home))
            if not (found or relative) and (elsewhere := _own_place(parts[0])) is not None:
                found = list(_files(elsewhere, parts, elsewhere))
            yield from found


def _files(base: Path, parts: Sequence[str], home: Path) -> Iterator[Path]:
    """Yields the files below `home` that the dotted name of these parts may mean, seen from `base`."""
    for place in (base.joinpath(*parts[: i + 1]) for i in range(len(parts))):
        files = (place.with_suffix(".py"), place / "__init__.py")
        yield from (file for file in files if home in file.parents and file.is_file())


def _home_of(file: Path) -> Path:
    """Returns the folder above the outermost package that a file is in."""
    return next(each for each in file.parents if not (each / "__init__.py").is_file())


def _own_place(name: str) -> Path | None:
    """Returns the folder from which Python imports a module; None for one that is installed, and for none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or name in sys.stdlib_module_names:
        return None
    if spec.submodule_search_locations:
        first = Path(next(iter(spec.submodule_search_locations)))
        return None if is_installed_file(str(first / "__init__.py")) else first.parent
    return Path(spec.origin).parent if spec.origin and not is_installed_file(spec.origin) else None


NOTED = ("annotations_cache", "dict", "doc", "firstlineno", "module", "slotnames", "static_attributes", "weakref")
NO_PART = frozenset(f"__{name}__" for name in NOTED)
"""What Python notes in a class besides its content, some of it only while the class is used."""


def names(code: CodeType) -> set[str]:
    """Returns the names of globals and attributes in some code, and in the functions and classes inside it."""
    inner = (names(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def is_foreign(value: Any) -> bool:
    """Returns whether a class or function is Python's, of an installed package or of levelfield, and so no user's."""
    name = value.__module__ or ""
    module = sys.modules.get(name)
    return name.partition(".")[0] in ("builtins", PACKAGE) or (module is not None and is_installed(module))


def is_installed(module: ModuleType) -> bool:
    """Returns whether a module belongs to Python or to an installed package, and so is no user's own."""
    if module.__name__ == "__main__" or module.__name__.startswith("_user_"):
        return False
    return is_installed_file(getattr(module, "__file__", None))


INSTALLED = frozenset({"site-packages", "dist-packages"})  # folders of packages; the second is Debian's


def is_installed_file(file: str | None) -> bool:
    """Returns whether a module's file, or a module without one, belongs to Python or to an installed package."""
    if file is None or not INSTALLED.isdisjoint(Path(file).parts) or file.startswith(f"{sys.base_prefix}/lib"):
        return True
    return Path(sys.base_prefix, "lib") in Path(file).parents  # which Windows spells Lib, with other slashes


def held(cell: CellType) -> tuple[object, ...]:
    """Returns what a closure's cell holds; () for one that is not filled yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


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
        case FunctionType() if not is_foreign(value):
            cells = [each for cell in value.__closure__ or () for each in held(cell)]
            used = [value.__globals__[k] for k in names(value.__code__) if k in value.__globals__]
            inner = [value.__code__, value.__defaults__, value.__kwdefaults__, *cells, *used]
        case staticmethod() | classmethod():
            inner = [value.__func__]
        case property():
            inner = [value.fget]
        case type() if not is_foreign(value):
            inner = [v for k, v in vars(value).items() if k not in NO_PART] + list(value.__bases__)
    for each in inner:
        yield from _names_in(each, seen)


def frozen(value: Any) -> Any:
    """Turns lists into tuples, at any depth, and numbers of NumPy's into Python's, so that it can be hashed."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else plain(value)


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
