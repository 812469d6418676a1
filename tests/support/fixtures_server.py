"""Runs a local HTTP server that sends files in all the ways in which servers succeed and fail.

with serving() as server:
    server.files["/a.tar.gz"] = Served(content, manner="dies")
    download.fetch((Archive("a.tar.gz", (server.url + "/a.tar.gz",)),), folder)
    server.asked            # [("/a.tar.gz", None), ("/a.tar.gz", "bytes=1000-")]
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Literal

from listening import listening

Manner = Literal[
    "good",  # Range, ETag, length
    "no range",  # always the whole
    "no etag",  # Range and length, and nothing to know a version by
    "no length",  # the end is where the connection ends
    "chunked",  # no length, and an end that is told
    "dies",  # the connection ends half-way through what is left, until that is little
    "dies at once",  # the connection ends before any answer
    "dies without length",
    "dies chunked",
    "silent",  # the first half, then nothing
    "page",  # a web page that says it is one
    "hidden page",  # a web page that says it is a file
    "missing",
    "busy once",  # 503, then good
    "moved",  # a redirection to the file with "/real" before its path
    "wrong range",  # a partial answer from another place than was asked for
    "refuses range",  # 416
]
PAGE = b"<!DOCTYPE html><html><body>Sign in to continue</body></html>"


@dataclass
class Served:
    content: bytes
    manner: Manner = "good"
    etag: str = '"1"'
    pause: float = 0.0  # seconds between blocks of 4 KiB
    times: int = 0  # asked for


@dataclass
class Server:
    url: str
    files: dict[str, Served] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Server]:
    """Runs the server on a free port, and closes it at the end."""
    with listening(Handler) as port:
        Handler.servers[port] = Server(f"http://127.0.0.1:{port}")
        yield Handler.servers[port]


class Handler(BaseHTTPRequestHandler):
    servers: dict[int, Server] = {}
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        server = self.servers[self.connection.getsockname()[1]]
        server.asked.append((self.path, self.headers.get("Range")))
        self.close_connection = True
        file = server.files.get(self.path)
        if file is None or file.manner == "missing":
            self.send_error(404)
            return
        file.times += 1
        with suppress(OSError):  # the other side may leave at any moment
            self._give(file)

    def _give(self, file: Served) -> None:
        manner = file.manner
        if manner == "dies at once":
            return
        if manner == "busy once" and file.times == 1:
            self.send_error(503)
        elif manner == "moved":
            self.send_response(302)
            self.send_header("Location", f"/real{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif manner in ("page", "hidden page"):
            self._head(200, PAGE, "text/html; charset=utf-8" if manner == "page" else "application/gzip")
            self.wfile.write(PAGE)
        elif manner == "refuses range" and self.headers.get("Range"):
            self.send_error(416)
        else:
            self._send(file)

    def _head(self, status: int, body: bytes, kind: str = "application/gzip") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()

    def _send(self, file: Served) -> None:
        first, manner = self._first(file), file.manner
        body = file.content[first:]
        self.send_response(206 if first else 200)
        self.send_header("Content-Type", "application/gzip")
        if manner != "no etag":
            self.send_header("ETag", file.etag)
        if "length" not in manner and "chunked" not in manner:
            self.send_header("Content-Length", str(len(body)))
        if "chunked" in manner:
            self.send_header("Transfer-Encoding", "chunked")
        if first:
            told = first + 1 if manner == "wrong range" else first
            self.send_header("Content-Range", f"bytes {told}-{len(file.content) - 1}/{len(file.content)}")
        self.end_headers()
        cut = len(body) // 2 if manner.startswith("dies") and len(body) > 20_000 else len(body)
        cut = max(0, len(file.content) // 2 - first) if manner == "silent" else cut
        for at in range(0, cut, 4096):
            block = body[at : min(at + 4096, cut)]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if "chunked" in manner else block)
            time.sleep(file.pause)
        if "chunked" in manner and cut == len(body):
            self.wfile.write(b"0\r\n\r\n")
        if manner == "silent":
            self.wfile.flush()
            time.sleep(2)

    def _first(self, file: Served) -> int:
        asked = self.headers.get("Range")
        condition = self.headers.get("If-Range")
        if asked is None or file.manner == "no range" or (condition is not None and condition != file.etag):
            return 0
        return int(asked.removeprefix("bytes=").removesuffix("-"))
