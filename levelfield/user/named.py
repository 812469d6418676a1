"""Loads what a user names in words: a class or value in a Python file, or in a module that Python can import.

    place, call = split("mine.py:Mine(state=16)")       # ("mine.py", "Mine(state=16)")
    place, call = split("torch.nn:GRU")                 # ("torch.nn", "GRU")
    found = source(place)                               # its content, and a hash of it
    module = load(place, found)

A file is executed as these very bytes, under a name of its own, as a package whose path is its folder: `import helper`
and `from .helper import ...` both find the file beside it. A module is searched for in the current folder too, as
`python -m` does. One thread at a time: Python's path and its modules, which loading changes, are the whole process's.
Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from levelfield.spec import own_code, torch_settings
from levelfield.spec.errors import UserError, format_error
from levelfield.spec.identity import release
from levelfield.spec.user_source import beside, is_installed, is_installed_file

FORM = re.compile(r"(?P<place>.+?\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<call>.*)", re.DOTALL)
_LOADED: dict[str, tuple[tuple[Path, str], ModuleType]] = {}  # name of a user's -> its file and hash when last imported
_THEIRS: dict[Path, list[ModuleType]] = {}  # file of a user -> modules of it that their own program had imported before

_ALONE = threading.RLock()  # the same thread again may, as a user's file may load another


@contextmanager
def alone() -> Iterator[None]:
    """Keeps every other thread from reading and loading what users name meanwhile."""
    with _ALONE:
        yield


class Source(NamedTuple):
    """The content of a file or module, the other files that it imports, and the hash that identifies them."""

    content: bytes
    others: Mapping[Path, bytes]
    sha256: str


def is_named(text: str) -> bool:
    """Tells whether text is FILE.py:Name or package.module:Name, and not the name of something that ships."""
    return FORM.fullmatch(text) is not None


def split(text: str) -> tuple[str, str]:
    """Returns the place and the call in it. Raises UserError for text without both."""
    found = FORM.fullmatch(text)
    if found is None or not found["call"]:
        raise UserError(f"'{text}' names no class: write FILE.py:Name or package.module:Name, such as mine.py:Mine.")
    return found["place"], found["call"]


def is_file(place: str) -> bool:
    """Tells a path from the dotted name of a module."""
    return place.endswith(".py") or "/" in place or os.sep in place


def with_colon(text: str) -> str:
    """Returns package.module:Name of what is written package.module.Name, where there is that module and no such one:
    "torch.nn:GRU" of "torch.nn.GRU". "" of anything else."""
    whole = text.partition("(")[0]
    place, _, name = whole.rpartition(".")
    if not place or is_file(whole) or not all(part.isidentifier() for part in whole.split(".")):
        return ""
    with suppress(UserError):
        _origin(whole)
        return ""
    with suppress(UserError):
        _origin(place)
        return f"{place}:{name}{text.removeprefix(whole)}"
    return ""


def require_colon(text: str) -> None:
    """Raises UserError, with the right form, for package.module.Name."""
    if meant := with_colon(text):
        raise UserError(f"{text.partition('(')[0]} is no module: did you mean '{meant}'?")


@alone()
def source(place: str) -> Source:
    """Reads what a place consists of. Raises UserError where there is no such file or module.

    Of a file that is its content and that of the files that it imports, of its folder and of modules that are not
    installed; of a module of one's own, the same from the folder of its outermost package. An installed module is
    identified by its name, and the name and version of what installed it.
    """
    if is_file(place):
        content = _read(place)
        others = beside(place, content)
        return Source(content, others, hashlib.sha256(b"\0".join([content, *others.values()])).hexdigest())
    file, installed = _origin(place)
    if installed:
        return Source(b"", {}, hashlib.sha256(f"{place}\0{release(place)}".encode()).hexdigest())
    content, root = file.read_bytes(), _root(place, file)
    others = beside(str(file), content, root)
    for above in (each / "__init__.py" for each in file.resolve().parents if root in each.parents):
        others |= {above: above.read_bytes(), **beside(str(above), above.read_bytes(), root)} if above.is_file() else {}
    others = {each: others[each] for each in sorted(others) if each != file.resolve()}
    parts = [place.encode(), content, *others.values()]
    return Source(content, others, hashlib.sha256(b"\0".join(parts)).hexdigest())


def below(place: str, found: Source) -> dict[str, bytes]:
    """Returns the files of a place by their names below the folder that they are imported from; {} where one of them
    lies elsewhere."""
    file = Path(place).resolve() if is_file(place) else _origin(place)[0].resolve()
    root = file.parent if is_file(place) else _root(place, file)
    every = {file: found.content, **found.others}
    if any(root not in each.parents for each in every):
        return {}
    return {each.relative_to(root).as_posix(): content for each, content in every.items()}


@alone()
def load(place: str, found: Source) -> ModuleType:
    """Executes the file or imports the module. What it prints meanwhile goes to standard error, and the current folder
    and torch's settings are the same afterwards: paths were given from there. Raises whatever its code raises."""
    with redirect_stdout(sys.stderr), chdir("."), torch_settings.kept():
        if not is_file(place):
            if found.content:  # a user's own, and not installed
                path = _origin(place)[0].resolve()
                own_code.keep(place, path, found.content, found.others, _root(place, path))
            return _imported(place, found)
        path = Path(place).resolve()
        own_code.keep(_module_name(found), path, found.content, found.others, path.parent)
        return _executed(place, found)


def _module_name(found: Source) -> str:
    return f"_user_{found.sha256[:16]}"


@contextmanager
def importable(place: str) -> Iterator[None]:
    """Searches a file's folder, or the current one for a module, meanwhile; does nothing where there is no place.

    Nothing compiled is kept of what is imported: Python would take it for an edit of the same second and size.
    """
    folders = [str(Path(place).resolve().parent) if is_file(place) else os.getcwd()] if place else []
    sys.path[:0] = folders
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
        for each in folders:
            sys.path.remove(each)


def _executed(path: str, found: Source) -> ModuleType:
    """Executes these very bytes as a module, and imports the files beside it anew."""
    full = Path(path).resolve()
    module = ModuleType(_module_name(found))
    module.__file__ = str(full)
    module.__path__, module.__package__ = [str(full.parent)], module.__name__  # for `from .helper import ...`
    sys.modules[module.__name__] = module
    try:
        with _anew(full.parent, [*found.others]), importable(path):
            exec(compile(found.content, str(full), "exec"), vars(module))
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _imported(name: str, found: Source) -> ModuleType:
    """Imports a module; one of a user's own anew where it has changed since this process imported it."""
    if not found.content:
        with importable(name):
            return importlib.import_module(name)
    file = _origin(name)[0].resolve()
    before, module = _LOADED.get(name, (None, None))
    if module is None or before != (file, found.sha256):
        with _anew(_root(name, file), [*found.others, file], drop=module is not None), importable(name):
            module = importlib.import_module(name)
        _LOADED[name] = ((file, found.sha256), module)
    return module


@contextmanager
def _anew(folder: Path, files: Sequence[Path], drop: bool = True) -> Iterator[None]:
    """Has the modules of these files, below a folder and elsewhere, imported anew meanwhile, unless `drop` is False.

    Those that the user's own program had imported are the very same objects again afterwards.
    """
    own = {file: _theirs(file) for file in files}
    kept: dict[str, ModuleType] = {}
    for name in (each for file in own if drop for each in _names(folder, file)):
        if not is_installed(module := sys.modules[name]):
            kept |= {name: module} if module in _theirs(Path(module.__file__ or "").resolve()) else {}
            del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(kept)
        for name, module in kept.items():
            above, _, last = name.rpartition(".")
            if above in sys.modules:
                setattr(sys.modules[above], last, module)


def _theirs(file: Path) -> list[ModuleType]:
    """Returns the modules of a file that the user's own program had imported before this was first asked."""
    if file not in _THEIRS:
        loaded = [module for name, module in list(sys.modules.items()) if name != "__main__"]
        named_alike = [each for each in loaded if Path(getattr(each, "__file__", None) or "").name == file.name]
        _THEIRS[file] = [module for module in named_alike if Path(str(module.__file__)).resolve() == file]
    return _THEIRS[file]


def _names(folder: Path, file: Path) -> list[str]:
    """Returns the names of the modules of a file that are loaded, and of any that has its name below the folder."""
    found = [k for k, each in list(sys.modules.items()) if getattr(each, "__file__", None) == str(file)]
    if folder in file.parents:
        place = file.relative_to(folder).with_suffix("")
        found.append(".".join(place.parts[:-1] if place.name == "__init__" else place.parts))
    return [name for name in dict.fromkeys(found) if name in sys.modules and name != "__main__"]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"Cannot read {path} ({error.strerror}): give the path of a Python file.") from error


def _origin(name: str) -> tuple[Path, bool]:
    """Returns a module's file, and whether it is of Python or of an installed package. Raises UserError for none."""
    importlib.invalidate_caches()  # a file that was written a moment ago is there
    try:
        with importable(name):
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise _unknown(name, f"No module named '{error.name}'") from error
    except (Exception, SystemExit) as error:  # whatever a package above it raises
        raise UserError(f"{name} fails when imported: {format_error(error)}") from error
    if spec is None:
        raise _unknown(name, f"No module named '{name}'")
    file = spec.origin if spec.has_location else None
    if file is None and spec.submodule_search_locations is not None:
        raise _unknown(name, f"'{name}' is a folder without __init__.py")
    return Path(file or name), is_installed_file(file)


def _unknown(name: str, why: str) -> UserError:
    if Path(name).is_file():
        return UserError(
            f"{name} is no Python file: write what you name into one that ends in .py, or in a notebook call "
            "levelfield.compare with the class itself."
        )
    return UserError(f"There is no module {name} to import ({why}): install it, or run this in the folder above it.")


def _root(name: str, file: Path) -> Path:
    """Returns the folder that holds the outermost package of a module."""
    return file.resolve().parents[name.count(".") + (file.name == "__init__.py")]


def code_file(place: str) -> str:
    """Returns the file name that a place's code has in tracebacks."""
    return str(Path(place).resolve()) if is_file(place) else str(_origin(place)[0])


def advice(error: BaseException) -> str:
    """Returns what to do about an import that a file cannot make, as the end of a sentence."""
    if "beyond top-level package" in str(error):
        return "; name it as a module, package.module:Name, in the folder above its package"
    return ""
