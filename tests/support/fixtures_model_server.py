"""Runs a local server with OpenAI's endpoints that answers by a function and fails in all the ways in which servers do.

with serving_model(says=knows) as server:
    server.faults = ["drop", "429", "cut", "good"]       # one for each request, again and again
    ...
    server.asked             # what each request asked, in the order in which they came
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from listening import listening

Fault = Literal[
    "good",
    "drop",  # the connection ends before any answer
    "cut",  # the connection ends half-way through the answer
    "cut chunks",  # the same where no length was told
    "half",  # an answer of the told length that ends in the middle of its JSON
    "empty",  # a whole answer without choices
    "no text",
    "given up",  # the beginning of an answer, with the word for it
    "429",
    "500",
    "503",
    "page",  # of a gateway, with the status of success
    "late",  # only once the client has asked again
    "held",  # only once the test lets it go
    "slow",  # a little later than others
    "trickle",  # a byte at a time, and never whole
    "endless",
    "wrong counts",
    "no counts",
]
MANNERS: tuple[Fault, ...] = (
    "drop",
    "cut",
    "cut chunks",
    "half",
    "empty",
    "no text",
    "given up",
    "429",
    "500",
    "503",
    "slow",
)
TRICKLE_S = 0.02


class Raw(NamedTuple):
    """A reply as it is sent."""

    data: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


@dataclass
class ModelServer:
    """What the server was asked, and how it answers.

    says: the content of the answer to a prompt, as text or whatever else a server sends. ends: its finish_reason.
    refuses: which prompts its filter refuses. lacks: why it refuses a request for its fields; "" where it does not.
    tokenize: the ids of the text in the field `word`, after `bos` where special tokens are asked for. loading: how many
    requests for ids it still answers by 503. context: letters of a prompt that it takes. repeats: whether a chat's
    answer begins with the last message. key: required of requests. storm: seconds from the first request on in which it
    answers nothing but 429. listing, reply: what it sends instead of its models and of an answer.
    """

    says: Callable[[str], Any]
    url: str = ""
    faults: Sequence[Fault] = ("good",)
    chat: bool = True
    ids: bool = True
    models: Any = None
    listing: Raw | None = None
    reply: Raw | None = None
    tokenize: Callable[[str], list[int]] | None = None
    word: str = "prompt"
    loading: int = 0
    context: int = 1 << 30
    bos: tuple[int, ...] = ()
    repeats: bool = False
    key: str = ""
    storm: float = 0.0
    reasoning: str = ""
    refuses: Callable[[str], bool] = lambda prompt: False
    lacks: Callable[[Mapping[str, Any]], str] = lambda body: ""
    ends: Callable[[str], str] = lambda prompt: "stop"
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    began: float = 0.0
    number: Iterator[int] = field(default_factory=count)
    lock: threading.Lock = field(default_factory=threading.Lock)
    let_go: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving_model(says: Callable[[str], str], **more: Any) -> Iterator[ModelServer]:
    """Runs the server on a free port, and closes it at the end."""
    server = ModelServer(says, **more)
    handler = type("Answering", (Handler,), {"server_state": server})
    with listening(handler) as port:
        server.url = f"http://127.0.0.1:{port}/v1"
        yield server


def prompt_of(body: dict[str, Any]) -> str:
    """What a request asks, as one text."""
    if "messages" in body:
        return "".join(message["content"] for message in body["messages"])
    prompt = body["prompt"]
    return prompt if isinstance(prompt, str) else bytes(prompt).decode()


class Handler(BaseHTTPRequestHandler):
    server_state: ModelServer
    disable_nagle_algorithm = True  # or the two writes of an answer take 40 ms
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if raw := self.server_state.listing:
            self._send_raw(raw)
            return
        models = self.server_state.models
        self._send({"data": models} if models is not None else {"error": "no list"}, 200 if models is not None else 500)

    def do_POST(self) -> None:
        server = self.server_state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("completions"):
            try:
                self._tokenized(body)
            except ConnectionError:
                self.close_connection = True
            return
        with server.lock:
            server.began = server.began or time.monotonic()
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            fault = server.faults[next(server.number) % len(server.faults)]
            server.asked.append(body)
            server.headers.append(dict(self.headers))
        try:
            with suppress(ConnectionError):
                self._answer(fault, body)
        finally:
            with server.lock:
                server.at_once -= 1

    def _tokenized(self, body: dict[str, Any]) -> None:
        server = self.server_state
        if server.loading:
            server.loading -= 1
            self._send({"error": {"message": "Loading model"}}, 503)
        elif server.tokenize is None or self.path != "/tokenize" or server.word not in body:
            self._send({"detail": "Not Found"}, 404)
        else:
            special = body.get("add_special_tokens") or body.get("add_special")
            self._send({"tokens": [*(server.bos if special else ()), *server.tokenize(body[server.word])]})

    def _answer(self, fault: Fault, body: dict[str, Any]) -> None:
        server = self.server_state
        if refused := self._refusal(body):
            self._send(*refused)
            return
        if server.reply:
            self._send_raw(server.reply)
            return
        if server.storm and time.monotonic() - server.began < server.storm:
            self._send({"error": {"message": "slow down"}}, 429, {"Retry-After-Ms": "20"})
            return
        if fault in ("429", "500", "503"):
            told = " for " + self.headers["Authorization"] if fault == "503" and server.key else ""
            self._send(
                {"error": {"message": f"not now{told}"}}, int(fault), {"Retry-After-Ms": "5"} if fault == "429" else {}
            )
            return
        if fault == "page":
            self._send_raw(Raw(b"<html>gateway</html>"))
            return
        while fault == "late" and server.asked.count(body) < 2:
            time.sleep(0.01)
        if fault == "slow":
            time.sleep(0.02)
        if fault == "held":
            server.let_go.wait()
        self._send_whole(fault, self._reply(fault, body), prompt_of(body))

    def _refusal(self, body: dict[str, Any]) -> tuple[dict[str, Any], int] | None:
        server = self.server_state
        if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
            return {"error": {"message": "Incorrect API key provided"}}, 401
        if "messages" in body and not server.chat:
            return {"detail": "Not Found"}, 404
        if not isinstance(body.get("prompt", ""), str) and not server.ids:
            return {"error": {"message": "prompt must be a string"}}, 422
        if lacks := server.lacks(body):
            return {"error": {"message": lacks}}, 400
        if len(prompt_of(body)) > server.context:
            said = "the request exceeds the available context size"
            return {"error": {"code": 500, "message": said, "type": "server_error"}}, 500
        if server.refuses(prompt_of(body)):
            return {"error": {"message": "filtered", "code": "content_filter"}}, 400
        return None

    def _reply(self, fault: Fault, body: dict[str, Any]) -> dict[str, Any]:
        server = self.server_state
        prompt = prompt_of(body)
        text = server.says(prompt)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "abort" if fault == "given up" else server.ends(prompt)}
        text = text[:3] if fault == "given up" else text
        if "messages" in body:
            before = body["messages"][-1]["content"] if server.repeats else ""
            choice["message"] = {"role": "assistant", "content": before + text if before else text}
            if server.reasoning:
                choice["message"]["reasoning_content"] = server.reasoning
        else:
            choice["text"] = text
        if fault == "no text":
            choice = {"index": 0, "text": None, "finish_reason": "stop"}
        usage: dict[str, Any] = {"prompt_tokens": len(prompt), "completion_tokens": len(text or "")}
        if fault == "wrong counts":
            usage = {"prompt_tokens": -5, "completion_tokens": "many"}
        found: dict[str, Any] = {"choices": [] if fault == "empty" else [choice], "usage": usage}
        return {"choices": found["choices"]} if fault == "no counts" else found

    def _send_whole(self, fault: Fault, reply: dict[str, Any], prompt: str) -> None:
        data = json.dumps(reply).encode()
        if fault == "drop":
            self.close_connection = True
            return
        if fault == "half":
            data = data[: len(data) // 2]
        self.send_response(200)
        if fault == "endless":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while True:  # until the client has enough of it
                self.wfile.write(b"40000\r\n" + b" " * 0x40000 + b"\r\n")
        if fault == "cut chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data[: len(data) // 2])
            self.close_connection = True
            return
        self.send_header("Content-Length", str(1 << 30 if fault == "trickle" else len(data)))
        self.end_headers()
        while fault == "trickle":  # until the client has enough of it
            self.wfile.write(b" ")
            time.sleep(TRICKLE_S)
        self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
        if fault == "cut":
            self.close_connection = True
        elif fault not in ("half", "empty", "no text", "given up", "late"):
            with self.server_state.lock:
                self.server_state.answered.append(prompt)

    def _send(self, reply: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send_raw(Raw(json.dumps(reply).encode(), status, headers or {}))

    def _send_raw(self, raw: Raw) -> None:
        self.send_response(raw.status)
        for name, value in raw.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw.data)))
        self.end_headers()
        self.wfile.write(raw.data)


@contextmanager
def serving_here(
    says: Callable[[str], str], folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> Iterator[ModelServer]:
    """Runs the server for commands that are given in a folder, without a key in the environment."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving_model(says, **more) as server:
        yield server
