"""Repeats Ctrl-C until it has ended the command, since imports and compiled code may lose it; SIGTERM does the same.

    with repeated_interrupts():
        import numba                    # a KeyboardInterrupt that is caught and dropped in here comes again

An exception that is raised while a module of another package is imported, or while one of its callbacks runs, can be
caught there and dropped: the command would go on as if nobody had asked it to stop.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STOPPED = "stopped; run the same command again to continue"
EVERY_S = 0.5
USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}  # who handles them by default


def end_stopped(stop: KeyboardInterrupt) -> NoReturn:
    """Says how to go on, and ends the process with 130, or with 143 where the signal was SIGTERM."""
    print(f"\n{STOPPED}", file=sys.stderr)
    exec("")  # Python remembers an interrupt in the text of an `exec`, as of a dataclass, and would end by the signal
    raise SystemExit(128 + (signal.SIGTERM if stop.args == (signal.SIGTERM,) else signal.SIGINT)) from None


@contextmanager
def repeated_interrupts() -> Iterator[None]:
    """Raises KeyboardInterrupt at Ctrl-C and SIGTERM, and again every EVERY_S seconds until that has left the block or
    is being handled. Changes nothing outside of the main thread, or for a signal that somebody else handles."""
    main = threading.current_thread() is threading.main_thread()
    ours = [number for number, usual in USUAL.items() if main and signal.getsignal(number) is usual]
    if not ours:
        yield
        return
    repeater, hook = _Repeater(), sys.unraisablehook
    for number in ours:
        signal.signal(number, repeater.interrupt)
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, KeyboardInterrupt) else hook(lost)
    try:
        yield
    finally:
        repeater.end()
        for number in ours:
            signal.signal(number, USUAL[number])
        sys.unraisablehook = hook


class _Repeater:
    """Handles the signal, and sends it again from a thread of its own."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None
        self.ours = False  # whether the next signal is a repetition
        self.first: int = signal.SIGINT  # the signal that came first

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raises KeyboardInterrupt, unless this is a repetition and the first one is on its way."""
        ours, self.ours = self.ours, False
        if ours and (self.ended.is_set() or _being_handled()):
            return
        if self.thread is None:
            self.first = number
            self.thread = threading.Thread(target=self._repeat, daemon=True)
            self.thread.start()
        raise KeyboardInterrupt(self.first)

    def end(self) -> None:
        """Sends no more; a signal that is on its way is dropped."""
        self.ended.set()
        if self.thread is not None:
            self.thread.join()

    def _repeat(self) -> None:
        while not self.ended.wait(EVERY_S):
            self.ours = True
            if sys.platform == "win32":
                signal.raise_signal(self.first)  # os.kill would end the process there
            else:
                os.kill(os.getpid(), self.first)


def _being_handled() -> bool:
    """Tells whether a KeyboardInterrupt is clearing up behind itself, in a `finally` or at the end of a `with`."""
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
