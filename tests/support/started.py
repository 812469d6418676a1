"""Runs a server of another package in a process of its own, and says why it does not come up."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOLD = 2_000  # characters of what a server printed last


@contextmanager
def serving(command: Sequence[str], printed: Path, seconds: float, **env: str) -> Iterator[str]:
    """Runs a server on a free port, and yields its address, with /v1, once it listens; ends it at the end.

    command: takes --host and --port. printed: the file that takes what it prints. env: more of its environment.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*command, "--host", "127.0.0.1", "--port", str(port)]
    with printed.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **env})
    try:
        wait_until_it_listens(process, port, printed, seconds)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


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
