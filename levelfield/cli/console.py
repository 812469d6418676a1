"""Defines the console of rich that commands print tables and progress on.

Console().print(table)      # raises BrokenPipeError where whoever reads standard output has had enough
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
