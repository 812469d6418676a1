"""What tests of served models share: a server that answers rightly, and connections that are closed."""

from __future__ import annotations

from collections.abc import Iterator

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
