"""A server of a toy model for the tests of commands, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_model_server import ModelServer, serving_here
from toy_reader import knows


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModelServer]:
    with serving_here(knows, tmp_path, monkeypatch) as found:
        yield found
