"""Defines the console of rich that commands print tables and progress on.

Console().print(table)      # raises BrokenPipeError where whoever reads standard output has had enough
redraws(Console())          # whether progress stays in place, or is a line from time to time
"""

from __future__ import annotations

import sys
from typing import NoReturn

from rich import console


class Console(console.Console):
    """Rich's console, except where a pipe is read no more: there rich would end the process with 1, and a 1 says here
    that runs failed."""

    def on_broken_pipe(self) -> NoReturn:
        """Raises the BrokenPipeError that rich is handling."""
        error = sys.exception()
        assert error is not None
        raise error


def redraws(shown: console.Console) -> bool:
    """Tells whether what is shown can be drawn anew in its place: not in a file or pipe, nor where TERM is dumb."""
    return shown.is_terminal and not shown.is_dumb_terminal
