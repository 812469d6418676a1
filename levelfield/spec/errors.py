"""Errors that a user can mend, and the words they are told in."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class UserError(Exception):
    """Something the user can mend. The message is one sentence that says how; the command line exits with 2."""


def closest(name: str, names: Sequence[str]) -> str:
    """The end of a sentence about an unknown name: did you mean ...? or, when nothing is near, the whole list."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"choose one of: {', '.join(names)}."


def format_error(error: BaseException) -> str:
    """An exception in one line: its kind and the first line of what it says."""
    return (
        f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error).strip() else type(error).__name__
    )
