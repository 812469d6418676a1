"""What these tests share: a server that answers rightly, connections that are closed, and Inspect."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fixtures_model_server import ModelServer, serving_model
from toy_reader import knows
from toy_served import close_clients


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_clients()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving_model(knows) as found:
        yield found


@pytest.fixture
def inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Sequence[str]], Any]:
    """Has Inspect ask a task, named from `tmp_path`, of a model whose answers are given beforehand; returns its log."""
    if importlib.util.find_spec("inspect_ai") is None:
        pytest.skip("Inspect is not installed: pip install inspect_ai")
    from inspect_ai import eval as evaluate
    from inspect_ai.model import ModelOutput, get_model

    monkeypatch.chdir(tmp_path)
    letters = SimpleNamespace(encode=lambda text, **_: list(text.encode()))  # its tokens, without a download
    monkeypatch.setattr("tiktoken.get_encoding", lambda name: letters)

    def asked(task: str, answers: Sequence[str]) -> Any:
        outputs = [ModelOutput.from_content("mockllm/model", text) for text in answers]
        (log,) = evaluate(task, model=get_model("mockllm/model", custom_outputs=outputs), display="none", max_samples=1)
        assert log.status == "success" and log.results, log.error
        return log

    return asked
