"""Guards standard input, output and error, which may be closed, full, or of few characters.

with guarded():
    say("5 – 7")            # in an ASCII terminal: 5 \\u2013 7
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

from levelfield.cli.interrupts import repeated_interrupts
from levelfield.files import refusal
from levelfield.spec import UserError
from levelfield.spec.interrupt import raise_interrupt
from levelfield.spec.memory import is_shortage, reason

OUT = "standard output"
FEWER = "take fewer or shorter sequences, or a smaller model"
SOON_S, EVERY_S = 5.0, 10.0  # after which it is said what takes long, for the first time and then again
Say = Callable[[str], None]


def say(text: str) -> None:
    """Prints a line at once, so that whoever reads a pipe sees it."""
    print(text, flush=True)


def say_all(lines: Iterable[str], say: Say) -> None:
    """Says one line after another."""
    for line in lines:
        say(line)


@contextmanager
def patiently(doing: str) -> Iterator[None]:
    """Says on standard error, while the block takes long, what it is doing and for how long it has.

    doing: as in "Checking mine.py:Mine".
    """
    began, over = time.monotonic(), threading.Event()

    def tell() -> None:
        pause = SOON_S
        while not over.wait(pause):
            print(f"{doing}: {time.monotonic() - began:.0f} s so far.", file=sys.stderr, flush=True)
            pause = EVERY_S

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def several(number: int, thing: str) -> str:
    """Returns how many there are: several(1, "file") is "1 file", and several(2, "file") is "2 files"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def ended(well: bool) -> None:
    """Ends the process with code 1 where something failed that other things did not wait for."""
    if not well:
        raise SystemExit(1)


@contextmanager
def guarded() -> Iterator[None]:
    """Turns failures of the streams, of files and of memory into one sentence.

    Raises UserError where standard output is closed or takes no more, where the system refuses a file, and where memory
    ends; BrokenPipeError where whoever reads standard output has had enough.
    """
    _reopen()
    try:
        try:
            with repeated_interrupts(), _plain_warnings():
                yield
        finally:
            sys.stdout.flush()
    except SystemError as error:
        raise_interrupt(error)
        raise
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        raise UserError(reason(error, FEWER)) from error
    except OSError as error:
        if error.filename == OUT:
            _discard()
        if isinstance(error, BrokenPipeError):
            raise
        raise refusal(error) from error


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Shows warnings as sentences, without the line of ours that they come from."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *_: f"levelfield: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _reopen() -> None:
    """Replaces streams that are closed: else the next file that is opened would get their number, and their text."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # it stays open as long as the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise UserError("Standard output is closed: send it somewhere, such as to a file or to /dev/null.")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.flush()
        raw = _Out(sys.stdout.fileno(), "w", closefd=False)
        now = sys.stdout.isatty()
        sys.stdout = TextIOWrapper(BufferedWriter(raw), sys.stdout.encoding, "backslashreplace", line_buffering=now)


class _Out(FileIO):
    """Standard output, which says so when it fails: other files fail without a name, too."""

    def write(self, data: Any) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]  # bytes or a view of them
        try:
            return super().write(data) or 0
        except OSError as error:
            error.filename = OUT
            raise


def _discard() -> None:
    """Drops what standard output still holds, or Python would try to write it once more when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    with suppress(OSError):
        sys.stdout.flush()
