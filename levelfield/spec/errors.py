"""Defines the error that a user can mend, and how errors are put into words."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class UserError(Exception):
    """Something the user can mend. The message is one sentence that says how; the command line exits with 2."""


READABLE = 80  # names that an error still lists whole
SOME = 10
LINE = 200  # letters of an exception whose message has several lines
FEW = 12  # names that it lists although a command lists them, too


def closest(name: str, names: Sequence[str], command: str = "") -> str:
    """Returns the end of a sentence about an unknown name: a near one, or the whole list where none is near.

    Those that differ by case only are nearest, and all of them are named.

    command: what lists the names. With it, only the three that are most alike stand for a long list.
    """
    if same := [each for each in names if each.casefold() == name.casefold()]:
        return f"did you mean {' or '.join(map(repr, same))}?"
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.55)
    if near:
        return f"did you mean '{near[0]}'?"
    if command and len(names) > FEW:
        alike = difflib.get_close_matches(name, names, n=3, cutoff=0.3)
        also = f"the names most like it are {', '.join(alike)}; " if len(alike) > 1 else ""
        return f"{also}`{command}` shows all {len(names)}."
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
