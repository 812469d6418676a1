"""Waiting for a server: what is said where it does not come up."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from started import wait_until_it_listens

LISTENING = "import socket; s = socket.socket(); s.bind(('127.0.0.1', {})); s.listen(); print(1, flush=True); input()"


def started(code: str, printed: Path) -> subprocess.Popen[bytes]:
    with printed.open("wb") as file:
        words = [sys.executable, "-c", code]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_server_that_has_ended_fails_at_once_with_what_it_printed(tmp_path: Path) -> None:
    process = started("raise SystemExit('no such model')", tmp_path / "printed")
    with pytest.raises(AssertionError, match=r"has ended with code 1\. It printed:\nno such model"):
        wait_until_it_listens(process, free_port(), tmp_path / "printed", float("inf"))
    process.communicate()


def test_a_server_that_never_listens_fails_in_the_end_and_one_that_does_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    process = started(LISTENING.format(port), tmp_path / "printed")
    try:
        wait_until_it_listens(process, port, tmp_path / "printed", 60)
        with pytest.raises(AssertionError, match=r"does not listen after 0\.2 s\. It printed:\n1"):
            wait_until_it_listens(process, free_port(), tmp_path / "printed", 0.2)
    finally:
        process.communicate(b"\n")
