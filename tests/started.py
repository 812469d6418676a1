"""Waits for a server of another package, which runs in a process of its own, and says why it does not come up."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any

TOLD = 2_000  # characters of what a server printed last


def wait_until_it_listens(process: subprocess.Popen[Any], port: int, printed: Path, seconds: float) -> None:
    """Waits until a port of this machine is open. printed: the file that takes what the process prints.

    Raises AssertionError, with the end of what it printed, as soon as it has ended, and after so many seconds.
    """
    until = time.monotonic() + seconds
    while True:
        ended = process.poll()
        with socket.socket() as probe:
            if ended is None and probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if ended is not None or time.monotonic() > until:
            what = f"does not listen after {seconds:g} s" if ended is None else f"has ended with code {ended}"
            said = printed.read_text(errors="replace").strip()[-TOLD:] or "nothing"
            raise AssertionError(f"The server {what}. It printed:\n{said}")
        time.sleep(0.1)
