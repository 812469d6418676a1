"""The contract, and what every mixer owes a fair comparison, over all mixers in the list and both directions."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

import pytest
import torch
from examples import CASES, EXAMPLES
from torch import Generator, Tensor
from traffic import growth

from levelfield.contract import check
from levelfield.contract.bf16 import agrees_in_bf16
from levelfield.mixers import classes, find
from levelfield.model import Network
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, Model, Tokens, UserError, describe, digest

WIDTH = 16


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
    with torch.no_grad():
        for value in net.parameters():  # where a last map starts at zero, all copies are alike
            value += 0.05 * torch.randn(value.shape, generator=Generator().manual_seed(2), dtype=value.dtype)
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

    past = _normal(1, cut, width).double()
    later = net(torch.cat([past, future], 1), None)[:, cut:]
    each = torch.eye(later.numel(), dtype=torch.float64).unflatten(-1, later.shape[1:])
    copies = past.repeat(len(each), 1, 1).requires_grad_()  # one of a batch for each number of the output
    outputs = net(torch.cat([copies, future.expand(len(each), -1, -1)], 1), None)[:, cut:]
    torch.testing.assert_close(outputs, later.expand_as(outputs), rtol=1e-9, atol=1e-9)
    (jacobian,) = torch.autograd.grad(outputs, copies, each)
    rank = int(torch.linalg.matrix_rank(jacobian.flatten(1), rtol=1e-9))
    declared = config.state_size(width, cut)
    assert declared is not None and rank <= declared


CARRIED = [
    config
    for config in EXAMPLES
    if "causal" in config.directions
    and isinstance(config.build(WIDTH, causal=True, layer=0, generator=Generator()), RecurrentLayer)
]


@pytest.mark.parametrize("config", CARRIED, ids=str)
@pytest.mark.parametrize("pieces", [(1, 1, 1, 2, 3, 1), (13, 1, 1), (1, 31), (5, 9, 8, 1), (40,)], ids=str)
def test_advancing_in_pieces_is_forward_at_once(config: MixerConfig, pieces: tuple[int, ...]) -> None:
    layer = _stirred(config)
    x = _normal(3, sum(pieces), WIDTH, seed=3).double()
    state, parts, done = None, [], 0
    for n in pieces:
        y, state = layer.step(x[:, done : done + n], state)
        done += n
        parts.append(y)
        assert sum(part[0].numel() * (2 if part.is_complex() else 1) for part in state.values()) == config.state_size(
            WIDTH, done
        )
    torch.testing.assert_close(torch.cat(parts, 1), layer(x, None), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", CARRIED, ids=str)
def test_states_of_a_batch_are_separate_and_stay_as_they_were(config: MixerConfig) -> None:
    layer, x = _stirred(config), _normal(3, 14, WIDTH, seed=4).double()
    _, state = layer.step(x[:, :9], None)
    before = {name: part.clone() for name, part in state.items()}
    together, _ = layer.step(x[:, 9:], state)
    assert state.keys() == before.keys() and all(torch.equal(state[name], before[name]) for name in before)
    for row in range(3):
        one = {name: part[row : row + 1] for name, part in state.items()}
        alone, _ = layer.step(x[row : row + 1, 9:], one)
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", CARRIED, ids=str)
def test_gradients_pass_through_the_state(config: MixerConfig) -> None:
    layer, x = _stirred(config), _normal(2, 11, WIDTH, seed=5).double().requires_grad_()
    first, state = layer.step(x[:, :6], None)
    second, _ = layer.step(x[:, 6:], state)
    (pieces,) = torch.autograd.grad(torch.cat([first, second], 1).sin().sum(), x)
    (whole,) = torch.autograd.grad(layer(x, None).sin().sum(), x)
    torch.testing.assert_close(pieces, whole, rtol=1e-8, atol=1e-9)


def _stirred(config: MixerConfig) -> RecurrentLayer:
    """A layer in float64 whose parameters are away from their initial values, so that none hides a fault."""
    layer = _net(config, True).double()
    assert isinstance(layer, RecurrentLayer)
    generator = Generator().manual_seed(2)
    with torch.no_grad():
        for value in layer.parameters():
            value += 0.05 * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    return layer


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
    names = [name for name, _ in _net(config, "causal" in config.directions).named_parameters()]
    assert all(any(name == suffix or name.endswith(f".{suffix}") for name in names) for suffix in rules)


@pytest.mark.parametrize("config", classes(), ids=lambda c: c.label)
def test_complexity_is_told_in_steps_width_and_settings(config: type[MixerConfig]) -> None:
    """As in T^2 D; with window T D window: the words are T, D, log, and names of fields."""
    words = set(re.findall(r"[A-Za-z_]+", config.complexity))
    assert "T" in words and words <= {"T", "D", "log", "with"} | {field.name for field in dataclasses.fields(config)}


FIRST = [next(example for example in EXAMPLES if type(example) is config) for config in classes()]
WAYS = [
    pytest.param(config, direction == "causal", id=f"{config.label}-{direction}")
    for config in FIRST
    for direction in sorted(config.directions)
]


def _linear() -> Iterator[MixerConfig]:
    """An example of every mixer that is linear in the length (but for a logarithm), or is so "with" some setting."""
    for config in FIRST:
        plain, _, settings = config.complexity.partition("with ")
        if "T^2" not in plain:
            yield config
        elif settings:
            name = settings.split()[0]
            yield next(e for e in EXAMPLES if type(e) is type(config) and describe(e)[name] is not None)


LINEAR = [pytest.param(config, id=config.label) for config in _linear()]


def _long(config: MixerConfig, length: int) -> torch.nn.Module:
    """A layer of width 8, causal where it can be, whose bound is the length."""
    config = config if config.max_length is None else dataclasses.replace(config, bound=length)
    causal = "causal" in config.directions
    return config.build(8, causal=causal, layer=0, generator=Generator().manual_seed(0))


@pytest.mark.slow
@pytest.mark.parametrize("config", LINEAR)
def test_65536_steps_forward_and_backward_are_finite(config: MixerConfig) -> None:
    layer, x = _long(config, 65536), _normal(1, 65536, 8).requires_grad_()
    y = layer(x, None)
    assert y.shape == x.shape and torch.isfinite(y).all()
    y.square().mean().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("config", LINEAR)
def test_twice_the_steps_write_about_twice_the_numbers(config: MixerConfig) -> None:
    """Forward and backward, so what is kept for the backward pass is linear in the length too."""
    assert growth(_long(config, 16384), 8192) < 1.15


@pytest.mark.parametrize("config, causal", CASES)
def test_under_autocast_outputs_have_its_type_and_gradients_are_those_of_float32(
    config: MixerConfig, causal: bool
) -> None:
    """Outputs as those of a linear map. Gradients weight by weight, but for those that are nothing but rounding, beside
    the layer's own in float32: 16 bits cost some percent, and all of a part that vanishes in rounding."""
    net, x = _net(config, causal), _normal(2, 24, WIDTH)
    leaves = [value for value in net.parameters() if value.requires_grad]
    grads = []
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            y = net(x)
            assert y.dtype == (torch.bfloat16 if half else torch.float32)
            if half and isinstance(net, RecurrentLayer) and causal:
                assert net.step(x[:, :3], None)[0].dtype == torch.bfloat16
        grads.append(torch.autograd.grad(y.float().sin().sum(), leaves, allow_unused=True, materialize_grads=True))
    least = 1e-5 * max(exact.norm() for exact in grads[0])
    for exact, rounded in zip(*grads, strict=True):
        assert exact.norm() < least or (exact - rounded).norm() < 0.25 * exact.norm()


@pytest.mark.slow
@pytest.mark.parametrize("config, causal", WAYS)
def test_200_steps_of_training_in_bfloat16_stay_finite(config: MixerConfig, causal: bool) -> None:
    """The layer in a residual block learns one map of its input, from ragged batches, under autocast."""
    layer, generator = _net(config, causal).train(), Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=3e-3)
    wanted, losses = torch.randn(WIDTH, WIDTH, generator=generator) / 4, []
    for _ in range(200):
        x = torch.randn(4, 33, WIDTH, generator=generator)
        real = torch.arange(33) < torch.randint(1, 34, (4, 1), generator=generator)
        with torch.autocast("cpu", torch.bfloat16):
            y = x + layer(x, real)
        loss = (y.float() - x @ wanted)[real].square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert all(math.isfinite(loss) for loss in losses) and sum(losses[-20:]) < sum(losses[:20])
    assert all(torch.isfinite(value).all() for value in layer.parameters())


@pytest.mark.parametrize("config", [config for config in FIRST if len(config.directions) == 1], ids=str)
def test_a_direction_that_a_mixer_lacks_is_refused_wherever_layers_are_built(config: MixerConfig) -> None:
    causal = "causal" not in config.directions
    asked, other = ("causal", "bidirectional") if causal else ("bidirectional", "causal")
    model = Model((config,), depth=1, width=WIDTH, causal=causal)
    for build in (
        lambda: check(config, WIDTH, causal),
        lambda: agrees_in_bf16(config, WIDTH, causal, 8),
        lambda: Network(model, Tokens(2), (), mask_flag=False, seed=0),
        lambda: config.build(WIDTH, causal=causal, layer=0, generator=Generator()),
    ):
        with pytest.raises(UserError, match=f"^{type(config).__name__} cannot be {asked}: it is {other}.$"):
            build()


@pytest.mark.parametrize("config", FIRST, ids=str)
def test_a_layer_without_features_is_refused(config: MixerConfig) -> None:
    with pytest.raises(UserError, match=f"^{type(config).__name__} cannot have a width of 0: give 1 or more.$"):
        config.build(0, causal="causal" in config.directions, layer=0, generator=Generator())


def test_examples_differ_in_every_setting_that_counts() -> None:
    """Two settings that hash alike would be one run."""
    assert len({digest(e) for e in EXAMPLES}) == len(EXAMPLES)


def test_names_are_unique_and_found() -> None:
    labels = [config.label for config in classes()]
    assert len(set(labels)) == len(labels)
    assert [find(label) for label in labels] == [each() for each in classes()]
    with pytest.raises(UserError, match="did you mean 'attention'"):
        find("atention")
