"""A language model that answers by a function of the prompt, and the command that evaluates it, for tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from levelfield.cli import app, ruler_command
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.runner import evaluate
from levelfield.pretrained import LanguageModel
from levelfield.ruler import Bytes, Needle

SINGLE = Needle(haystack="noise")
Says = Callable[[str], str]


class Saying(LanguageModel):
    """Answers a prompt, as text, by a function; its state is what its rows have read, and where the prompt ended."""

    name, vocabulary, device, max_length = "saying", 256, torch.device("cpu"), 20_000

    supports_mixed_lengths = False  # it must know where prompts end

    def __init__(self, says: Says, logit: float = 1.0) -> None:
        self.says, self.logit, self.prompts = says, logit, 0

    def step(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, Any]:
        assert last
        read, ends = state or ([[] for _ in ids], [0] * len(ids))
        read = [[*old, *new] for old, new in zip(read, ids.tolist(), strict=True)]
        out = torch.zeros(len(ids), 256)
        for row, (seen, end) in enumerate(zip(read, ends, strict=True)):
            end = end or len(seen)
            said = self.says(bytes(seen[:end]).decode()).encode() + b"\n" * 1000
            out[row, said[len(seen) - end]] = self.logit
        return out, (read, ends)

    def rows(self, state: Any, index: Tensor) -> Any:
        return [state[0][i] for i in index.tolist()], [state[1][i] for i in index.tolist()]

    def join(self, states: Sequence[Any]) -> Any:
        return [row for s in states for row in s[0]], [end for s in states for end in s[1]]

    def prompted(self, state: Any) -> Any:
        self.prompts += len(state[0])
        return state[0], [len(row) for row in state[0]]


def knows(prompt: str) -> str:
    """The value of the key that is asked for, wherever it stands."""
    asked = re.findall(r"magic number for ([\w-]+) mentioned", prompt)  # none in a part of a prompt
    return " " + re.findall(rf"for {asked[-1]} is: (\d+)", prompt)[0] if asked else ""


def near(prompt: str) -> str:
    """The same where the needle stands in the last half."""
    half = prompt[len(prompt) // 2 :]
    asked = re.findall(r"magic number for ([\w-]+) mentioned", prompt)
    return " " + (re.findall(rf"for {asked[-1]} is: (\d+)", half) or ["0"])[0] if asked else ""


EVALUATION = Evaluation((SINGLE,), (700, 1000), count=8)


def asked(says: Says, folder: Path, evaluation: Evaluation = EVALUATION, **more: Any) -> Saying:
    folder.mkdir(exist_ok=True)
    model = Saying(says, **more)
    evaluate(model, Bytes(), [evaluation], folder)
    return model


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str, says: Says = knows, logit: float = 1.0) -> None:
    monkeypatch.setattr(ruler_command, "load", lambda *_: ruler_command.Loaded(Saying(says, logit), Bytes(), "mark"))
    monkeypatch.setattr(ruler_command, "max_length", lambda choice, out: None)
    app.main(
        ["ruler", "some/model", "--runs-dir", str(folder / "runs"), "--report-dir", str(folder / "report"), *words]
    )
