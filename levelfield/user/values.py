"""Loads a value that a user names: a task, a study, a probe, from their class, a function that makes one, or itself.

    value("my_task.py:Lookup(pairs=64)", Task)           # an instance of a class of that file
    value("tinylab.tasks:LOOKUP", Task)                  # a value of an importable module

Whatever goes wrong in the user's code becomes one sentence with its line.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from levelfield.spec.errors import UserError, closest, format_error
from levelfield.spec.interrupt import raise_interrupt
from levelfield.spec.user_source import parsed
from levelfield.user import named

T = TypeVar("T")
_MODULES: dict[tuple[str, str], ModuleType] = {}  # (path or dotted name, source hash) -> what was loaded


def value(where: str, kind: type[T]) -> T:
    """Loads FILE.py:Name(setting=1) or package.module:Name. Raises UserError for anything that is not of that kind."""
    return value_in(loaded(named.split(where)[0]), where, kind)


@named.alone()
def loaded(place: str) -> ModuleType:
    """Loads a place once for each of its contents, so that the same name is the same class throughout a process."""
    key = (str(Path(place).resolve()) if named.is_file(place) else place, named.source(place).sha256)
    if key not in _MODULES:
        _MODULES[key] = module(place)
    return _MODULES[key]


def value_in(found: ModuleType, where: str, kind: type[T]) -> T:
    """Returns what a loaded module has under the name of `where`, made with the settings there; of a value that is a
    dataclass, the same with these settings in place of its own."""
    place, call = named.split(where)
    name, settings = parsed(call)
    given, what = getattr(found, name, None), kind.__name__.lower()
    if isinstance(given, kind) and not settings:
        return given
    if isinstance(given, kind) and is_dataclass(given) and not isinstance(given, type):
        _check_settings(type(given), name, settings)
        with user_errors(where, found.__file__ or ""):
            return replace(given, **settings)
    if not (isinstance(given, type) and issubclass(given, kind)) and not isinstance(given, FunctionType):
        own = offered(found, kind)
        near = closest(name, own) if own else f"write a subclass of {kind.__name__}."
        raise UserError(f"{place} defines no {what} {name}: {near}")
    _check_settings(given, name, settings)
    with user_errors(where, found.__file__ or ""):
        made = given(**settings)
    if not isinstance(made, kind):
        raise UserError(f"{where} makes a {type(made).__name__}: return a {kind.__name__}.")
    return made


def _check_settings(make: Callable[..., Any], name: str, settings: Collection[str]) -> None:
    """Raises UserError for a setting that a class or function does not take."""
    with suppress(ValueError, TypeError):  # of what has no signature, calling it says as much
        parameters = inspect.signature(make).parameters
        takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
        if not takes_any and (unknown := next((key for key in settings if key not in parameters), None)):
            choice = closest(unknown, list(parameters)) if parameters else "it has none, so leave them out."
            raise UserError(f"{name} has no setting '{unknown}': {choice}")


def module(place: str) -> ModuleType:
    """Loads a file or module. Raises UserError where there is none, and for whatever goes wrong in it."""
    found = named.source(place)
    with user_errors(place, named.code_file(place)):
        return named.load(place, found)


def offered(found: ModuleType, kind: type) -> list[str]:
    """Returns the names in a loaded module that are values of a kind, or classes of it."""
    return [
        name
        for name, given in vars(found).items()
        if isinstance(given, kind) or (isinstance(given, type) and issubclass(given, kind) and given is not kind)
    ]


@contextmanager
def user_errors(name: str, file: str) -> Iterator[None]:
    """Turns whatever a user's code raises into one sentence, with the line of `file` where it passed through it.

    What it prints goes to standard error: standard output is for the answer of a command.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except UserError:
        raise
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise UserError(f"{error.filename or file}{where}: {error.msg}.") from error
    except (Exception, SystemExit) as error:
        raise_interrupt(error)
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        where = f", line {lines[-1]}" if lines else ""
        if isinstance(error, SystemExit):
            raise UserError(f"{name}{where} ends the program with sys.exit: take that out.") from error
        raise UserError(f"{name}{where}: {format_error(error)}{named.advice(error)}") from error
