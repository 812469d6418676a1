"""Runs a local HTTP server that speaks as much of the Hugging Face hub as downloading a dataset asks for.

with serving({"someone/reviews": {"data/train.csv": b"..."}}) as hub:
    subprocess.run(["levelfield", ...], env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": folder})
    hub.asked            # ["/api/datasets/someone/reviews/revision/main", ...]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

from listening import listening

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GATED, HIDDEN = "someone/gated", "someone/hidden"


@dataclass
class Hub:
    """The server: its address, its datasets as name -> path -> content, and the paths that were asked for."""

    url: str
    datasets: Mapping[str, Mapping[str, bytes]]
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(datasets: Mapping[str, Mapping[str, bytes]]) -> Iterator[Hub]:
    """Runs the server on a free port, and closes it at the end. All datasets have one commit, the branch main."""
    with listening(Handler) as port:
        Handler.hubs[port] = Hub(f"http://127.0.0.1:{port}", datasets)
        yield Handler.hubs[port]


class Handler(BaseHTTPRequestHandler):
    hubs: dict[int, Hub] = {}
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.hubs[self.connection.getsockname()[1]]
        path = unquote(self.path.partition("?")[0])
        hub.asked.append(path)
        api = path.startswith("/api/")
        words = path.removeprefix("/api").removeprefix("/datasets/").split("/")
        owner, name, kind, revision, *inside = [*words, "", "", ""]
        dataset = f"{owner}/{name}"
        files = hub.datasets.get(dataset)
        if dataset == GATED:
            self._send(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
        elif files is None and dataset == HIDDEN:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})  # as to whoever is logged in
        elif files is None:
            self._send(401, b"", {"X-Error-Message": "Invalid username or password."})  # as to whoever is not logged in
        elif revision not in ("main", COMMIT):
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif api and kind == "revision":
            listed = [{"rfilename": each} for each in files]
            self._json({"_id": "1", "id": dataset, "sha": COMMIT, "siblings": listed, "private": False})
        elif api and kind == "tree":
            self._json([{"type": "file", "path": p, "size": len(c), "oid": _hash(c)} for p, c in files.items()])
        else:
            content = files["/".join(inside).strip("/")]
            self._send(200, content, {"ETag": f'"{_hash(content)}"', "X-Repo-Commit": COMMIT})

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _hash(content: bytes) -> str:
    """Returns the name that git has for a file, as the hub has it too."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
