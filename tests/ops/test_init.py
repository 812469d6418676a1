"""Initial values come from the generator alone, and are torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Generator, nn

from levelfield.ops.layers import init

PAIRS: dict[str, tuple[Callable[[Generator], nn.Module], Callable[[], nn.Module]]] = {
    "linear": (lambda g: init.linear(7, 5, g), lambda: nn.Linear(7, 5)),
    "linear without bias": (lambda g: init.linear(7, 5, g, bias=False), lambda: nn.Linear(7, 5, bias=False)),
    "conv1d": (lambda g: init.conv1d(6, 4, 3, g, groups=2), lambda: nn.Conv1d(6, 4, 3, groups=2)),
    "embedding": (lambda g: init.embedding(9, 4, g), lambda: nn.Embedding(9, 4)),
}


@pytest.mark.parametrize("ours, theirs", PAIRS.values(), ids=PAIRS.keys())
def test_the_same_numbers_as_torch_at_the_same_seed(
    ours: Callable[[Generator], nn.Module], theirs: Callable[[], nn.Module]
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        expected = theirs().state_dict()
    before = torch.get_rng_state()
    got = ours(torch.Generator().manual_seed(3)).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert got.keys() == expected.keys()
    for name in expected:
        assert torch.equal(got[name], expected[name]), name
