"""The contract, and what every mixer owes a fair comparison, over all mixers in the list and both directions."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch
from torch import Generator, Tensor

from levelfield.contract import check
from levelfield.mixers import MIXERS, find
from levelfield.spec import MixerConfig, UserError, digest

WIDTH = 16
EXAMPLES: list[MixerConfig] = [
    example for config in MIXERS for example in getattr(sys.modules[config.__module__], "EXAMPLES", (config(),))
]
CASES = [
    pytest.param(config, direction == "causal", id=f"{config}-{direction}")
    for config in EXAMPLES
    for direction in sorted(config.directions)
]


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed))


def _net(config: MixerConfig, causal: bool, seed: int = 0) -> torch.nn.Module:
    return config.build(WIDTH, causal=causal, layer=0, generator=Generator().manual_seed(seed)).eval()


@pytest.mark.parametrize("config, causal", CASES)
def test_the_contract(config: MixerConfig, causal: bool) -> None:
    check(config, WIDTH, causal)


@pytest.mark.parametrize("config, causal", CASES)
def test_initial_values_come_from_the_generator_alone(config: MixerConfig, causal: bool) -> None:
    torch.rand(3)  # wherever the process-wide generator stands, it stays there and does not matter
    before = torch.get_rng_state()
    first, again, other = _net(config, causal), _net(config, causal), _net(config, causal, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    ours, same, others = first.state_dict(), again.state_dict(), other.state_dict()
    assert ours.keys() == same.keys() == others.keys()
    assert all(torch.equal(ours[key], same[key]) for key in ours)
    assert any(not torch.equal(ours[key], others[key]) for key in ours)


@pytest.mark.parametrize("config, causal", CASES)
def test_weights_survive_saving_and_a_copy_computes_the_same(config: MixerConfig, causal: bool) -> None:
    net, copy = _net(config, causal), _net(config, causal, seed=1)
    x = _normal(2, 20, WIDTH)
    before = copy(x, None)
    copy.load_state_dict(net.state_dict())
    assert torch.equal(copy(x, None), net(x, None))
    assert not torch.equal(before, net(x, None))


@pytest.mark.parametrize("config", [c for c in EXAMPLES if "causal" in c.directions], ids=str)
def test_the_state_is_no_smaller_than_what_is_carried(config: MixerConfig) -> None:
    """The past reaches the future only through the state, so the rank of that map cannot exceed the declared size."""
    length, cut, width = 40, 24, 8
    net = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0)).double()
    future = _normal(1, length - cut, width, seed=1).double()

    def later(past: Tensor) -> Tensor:
        return net(torch.cat([past, future], 1), None)[:, cut:]

    past = _normal(1, cut, width).double()
    jacobian = torch.autograd.functional.jacobian(later, past)
    assert isinstance(jacobian, Tensor)
    rank = int(torch.linalg.matrix_rank(jacobian.reshape((length - cut) * width, cut * width), rtol=1e-9))
    declared = config.state_size(width, cut)
    assert declared is not None and rank <= declared


@pytest.mark.parametrize("config, causal", CASES)
def test_a_padded_batch_equals_its_sequences_one_by_one(config: MixerConfig, causal: bool) -> None:
    net, x = _net(config, causal), _normal(4, 31, WIDTH)
    lengths = [31, 17, 2, 1]
    mask = torch.arange(31) < torch.tensor(lengths)[:, None]
    together = net(x, mask)
    for row, length in enumerate(lengths):
        alone = net(x[row : row + 1, :length], None)
        torch.testing.assert_close(together[row : row + 1, :length], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", EXAMPLES, ids=str)
def test_the_config_is_a_value_with_a_citation(config: MixerConfig) -> None:
    assert dataclasses.replace(config) == config and hash(config) == hash(dataclasses.replace(config))
    assert digest(config) == digest(dataclasses.replace(config))
    assert config.label and config.paper
    rules = config.param_rules()
    names = [name for name, _ in _net(config, True).named_parameters()]
    assert all(any(name == suffix or name.endswith(f".{suffix}") for name in names) for suffix in rules)


def test_examples_differ_in_every_setting_that_counts() -> None:
    """Two settings that hash alike would be one run."""
    assert len({digest(e) for e in EXAMPLES}) == len(EXAMPLES)


def test_names_are_unique_and_found() -> None:
    labels = [config.label for config in MIXERS]
    assert len(set(labels)) == len(labels)
    assert [find(label) for label in labels] == list(MIXERS)
    with pytest.raises(UserError, match="did you mean 'attention'"):
        find("atention")
