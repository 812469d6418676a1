"""Asks the local server of `fixtures_model_server` patiently but quickly, for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fixtures_model_server import ModelServer
from toy_reader import SINGLE

from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import LeftOut
from levelfield.longcontext.served import asking
from levelfield.longcontext.served.asking import Served
from levelfield.longcontext.served.client import Address, Client, Patience
from levelfield.longcontext.served.way import Way
from levelfield.ruler import Bytes
from levelfield.tokenizer import Tokenizer

EVALUATION = Evaluation((SINGLE,), (700, 1000), count=12)
QUICK = Patience(tries=12, timeout=5.0, first=0.002, longest=0.02)
TEXT = Way("text")
CLIENTS: list[Client] = []


def served(server: ModelServer, way: Way = TEXT, tokenizer: Tokenizer | None = None, **patience: Any) -> Served:
    CLIENTS.append(Client(Address.of(server.url), None, replace(QUICK, **patience), 8))
    return Served(CLIENTS[-1], "toy", way, tokenizer or Bytes())


def close_clients() -> None:
    while CLIENTS:
        CLIENTS.pop().inner.close()


def ask(this: Served, folder: Path, evaluation: Evaluation = EVALUATION, at_once: int = 4) -> list[LeftOut]:
    folder.mkdir(exist_ok=True)
    return asking.evaluate(this, [this.put(evaluation)], folder, at_once)
