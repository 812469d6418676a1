"""Defines the error that a user can mend, how errors are put into words, and the check of settings with few values.

Python never compares a value with its `Literal` annotation, and code that asks `if positions == "learned"` takes any
other text as the last of its cases, so that a misspelt setting would silently be another experiment.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


class UserError(Exception):
    """Something the user can mend. The message is one sentence that says how; the command line exits with 2."""


READABLE = 80  # names that an error still lists whole
SOME = 10
LINE = 200  # letters of an exception whose message has several lines
FEW = 12  # names that it lists although a command lists them, too


def closest(name: str, names: Sequence[str], command: str = "") -> str:
    """Returns the end of a sentence about an unknown name: a near one, or the whole list where none is near.

    Those that differ by case only are nearest, and all of them are named.

    command: what lists the names. With it, it stands for a long list.
    """
    if same := [each for each in names if each.casefold() == name.casefold()]:
        return f"did you mean {' or '.join(map(repr, same))}?"
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.55)
    if near:
        return f"did you mean '{near[0]}'?"
    if command and len(names) > FEW:
        return f"`{command}` shows all {len(names)}."
    shown = names if len(names) <= READABLE else [*names[:SOME], f"... ({len(names)} in all)"]
    return f"choose one of: {', '.join(shown)}."


def format_error(error: BaseException) -> str:
    """Returns an exception in one line: its class and its message, whose lines after the first end at LINE letters."""
    said = str(error).strip()
    if not said:
        return type(error).__name__
    first, whole = said.splitlines()[0].strip(), " ".join(said.split())
    longest = max(LINE, len(first))
    return f"{type(error).__name__}: {first if whole == first else shortened(whole, longest)}"


def shortened(text: str, longest: int) -> str:
    """Returns a text of at most so many letters, of which the last whole word is followed by [...] where it is cut."""
    return text if len(text) <= longest else f"{text[: longest + 1].rpartition(' ')[0]} [...]"


def check_literals(value: object) -> None:
    """Raises UserError where a field with a `Literal` annotation holds anything else, and says what is nearest. Numbers
    of NumPy's among the fields become Python's first, so that the value has the same id."""
    kind = type(value)
    for name, given in [*getattr(value, "__dict__", {}).items()]:
        object.__setattr__(value, name, plain(given))
    for name, allowed in _choices(kind):
        if (given := getattr(value, name)) not in allowed:
            known = [each for each in allowed if isinstance(each, str)]
            raise UserError(f"{kind.__name__} has no {name}={given!r}: {closest(str(given), known)}")


def plain(value: Any) -> Any:
    """Returns a number of NumPy's, also in a tuple, as what it shows: np.float32(0.001) as 0.001, where
    `float` of it has digits that nobody wrote. Anything else is returned as it is."""
    numpy = sys.modules.get("numpy")  # whoever has such a number has imported it, which takes long
    if numpy is not None and isinstance(value, numpy.generic):
        return float(str(value)) if isinstance(value, numpy.floating) else value.item()
    return tuple(map(plain, value)) if type(value) is tuple else value


@cache
def _choices(kind: type) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Returns names and values of the fields of a class with few values; none where it names types it lacks."""
    fields = getattr(kind, "__dataclass_fields__", {})
    try:
        hints = get_type_hints(kind)
    except (NameError, AttributeError, TypeError):  # such as a type that is imported for checkers alone
        return ()
    found = ((name, _values(hints[name])) for name in fields if name in hints)
    return tuple((name, values) for name, values in found if values)


def _values(hint: Any) -> tuple[Any, ...]:
    """Returns the values that a hint allows; () where it is none of `Literal`, alone or with None."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        parts = [(None,) if part is type(None) else _values(part) for part in get_args(hint)]
        return sum(parts, ()) if all(parts) and any(part != (None,) for part in parts) else ()
    return ()
