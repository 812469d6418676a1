"""Runs the command line, as `levelfield` and as `python -m levelfield`.

It imports nothing that takes time before it can say, in one line, that it was stopped with Ctrl-C or SIGTERM.
"""

import atexit
import gc
import sys

YOUNG = 10_000  # objects that are made before garbage is looked for, where Python's own number is 700


def main() -> None:
    """Runs the command that the words of this process name. Ctrl-C ends the process with 130, SIGTERM with 143.

    Importing torch makes half a million objects, nearly all of which stay: Python's search for garbage among them, once
    more at the end of the process for each of its parts, would take a quarter of the time of a short command.
    """
    gc.set_threshold(YOUNG)
    atexit.register(_spare)
    try:
        if sys.argv[1:] in ([], ["--help"], ["-h"]):  # answered at once, without what reads other words
            from levelfield.cli.overview import text

            if _print(text()):
                return
        from levelfield.cli.app import main as command

        command()
    except KeyboardInterrupt as stop:
        from levelfield.cli.interrupts import end_stopped

        end_stopped(stop)


def _spare() -> None:
    """Ends the process without a search for garbage, unless duckdb is loaded, which warns of what it still has."""
    if "_duckdb" not in sys.modules:
        gc.freeze()


def _print(text: str) -> bool:
    """Prints a text, and tells whether it could; where not, the command says why, as it guards its streams."""
    try:
        print(text, flush=True)
    except (OSError, ValueError):
        return False
    return sys.stdout is not None


if __name__ == "__main__":
    main()
