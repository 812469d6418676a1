"""Drives a Chromium or Chrome that is installed, for the few tests that look at a page as a reader would.

    with Browser(tmp_path / "profile") as browser:
        browser.size(390, 844)
        browser.open(page.as_uri())
        browser.key("Tab")
        browser.js("document.activeElement.textContent")

It speaks the browser's own protocol (DevTools) over two pipes, so no other package and no open port is needed.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}
PATIENCE = 90.0  # seconds for an answer, on a machine that has much else to do


def program() -> str:
    """Returns the browser; skips the test where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium or Chrome found: install one to see pages opened")
    return found


class Browser:
    """One page of a browser of its own, whose profile lies in `folder`."""

    def __init__(self, folder: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        given = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]  # above 3 and 4, which it reads
        words = [program(), *FLAGS, f"--user-data-dir={folder}"]

        def placed() -> None:
            os.dup2(given[0], 3)
            os.dup2(given[1], 4)

        self._process = subprocess.Popen(words, pass_fds=(3, 4), preexec_fn=placed, stderr=subprocess.DEVNULL)
        for fd in (theirs_in, theirs_out, *given):
            os.close(fd)
        self._numbers, self._rest, self._session = itertools.count(1), b"", ""
        self.errors: list[str] = []  # what the page's scripts complained of
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.ask("Runtime.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._in)
        os.close(self._out)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result. Raises AssertionError for an error or no answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                self.errors.append(json.dumps(answer["params"]))
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._in], [], [], PATIENCE)[0], "the browser does not answer"
            self._rest += os.read(self._in, 1 << 20)
        first, _, self._rest = self._rest.partition(b"\0")
        return json.loads(first)

    def open(self, address: str) -> None:
        """Opens a page, and waits until it is loaded."""
        self.ask("Page.navigate", url=address)
        end = time.monotonic() + PATIENCE
        while self.js("document.readyState + ' ' + (location.href !== 'about:blank')") != "complete true":
            assert time.monotonic() < end, f"{address} is not loaded"
            time.sleep(0.05)

    def js(self, expression: str) -> Any:
        """Returns the value of an expression, as JSON would hold it."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def key(self, name: str) -> None:
        """Presses a key and lets it go."""
        code, text = KEYS[name]
        key = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": code}
        self.ask(
            "Input.dispatchKeyEvent",
            type="keyDown" if text else "rawKeyDown",
            **key,
            **({"text": text} if text else {}),
        )
        self.ask("Input.dispatchKeyEvent", type="keyUp", **key)

    def size(self, width: int, height: int) -> None:
        """Sets the size of the window, in CSS pixels, whatever the least size of a window is."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **screen)

    def media(self, kind: str = "", *, dark: bool = False) -> None:
        """Shows the page as on paper ("print"), or to a reader who likes it dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def picture(self, to: Path) -> Path:
        """Writes what is on the screen as a PNG."""
        to.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))
        return to
