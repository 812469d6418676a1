"""The operator against its recurrence written as sums, its kernels against their formula, and its bound."""

from __future__ import annotations

import math

import pytest
import torch
import twins
from torch import Tensor

from levelfield.mixers.hyena import Hyena, HyenaLayer, time_features
from levelfield.spec import UserError

WIDTH = 4
CONFIGS = (
    Hyena(bound=20, hidden=6, features=5),
    Hyena(order=3, bound=23, hidden=5, features=3, layers=1, frequency=2.0, short=4, shift=0.1),
    Hyena(order=2, bound=17, hidden=3, features=7, layers=0, short=1, positions_lr=0.0),
)


def _layer(config: Hyena) -> HyenaLayer:
    layer = config.build(WIDTH, causal=True, layer=0, generator=torch.Generator().manual_seed(0)).double()
    assert isinstance(layer, HyenaLayer)
    return layer


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def naive_kernel(config: Hyena, layer: HyenaLayer, step: int) -> Tensor:
    """poli2023, equation 7, at one step: (N - 1, D)."""
    h = layer.positions[step]
    for part in layer.maps:
        h = torch.sin(layer.sines * part(h))
    outputs, time = layer.last(h), step / (config.bound - 1)
    faded = [
        out * (math.exp(-time * float(rate)) + config.shift) for out, rate in zip(outputs, layer.rates, strict=True)
    ]
    return torch.stack(faded).view(config.order - 1, WIDTH)


def hyena_naive(config: Hyena, layer: HyenaLayer, x: Tensor) -> Tensor:
    """Definition 3.1 of poli2023, a sum for each step and each convolution: (T, D) -> (T, D)."""
    projected, steps, taps = layer.project(x), range(len(x)), layer.short.weight[:, 0]
    short = []
    for t in steps:
        total = layer.short.bias
        for lag in range(min(config.short, t + 1)):
            total = total + taps[:, config.short - 1 - lag] * projected[t - lag]
        short.append(total)
    *gates, v = torch.stack(short).split(WIDTH, 1)
    kernels = torch.stack([naive_kernel(config, layer, t) for t in steps])
    for n in range(config.order - 1):
        u = v * gates[config.order - 1 - n]
        rows = [sum((kernels[t - s, n] * u[s] for s in range(t + 1)), layer.bias[n] * u[t]) for t in steps]
        v = torch.stack(rows)
    return layer.out(v * gates[0])


@pytest.mark.parametrize("length", [1, 2, 7, 13])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_value_and_gradient_equal_the_sums(config: Hyena, length: int) -> None:
    layer = _layer(config)
    twins.unpadded(layer, lambda z: hyena_naive(config, layer, z[0])[None], _normal(1, length, WIDTH))


def test_features_are_a_ramp_and_waves() -> None:
    table = time_features(9, 5).double()
    steps = torch.arange(9).double()
    assert table.shape == (9, 5)
    torch.testing.assert_close(table[:, 0], steps / 8)
    for band, turns in enumerate((1e-4, 1.0)):  # the source begins at 1e-4 rather than 0
        angle = 2 * math.pi * turns * steps / 9
        torch.testing.assert_close(table[:, 1 + band], angle.cos(), atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(table[:, 3 + band], -angle.sin(), atol=1e-6, rtol=1e-6)


def test_channels_fade_to_a_hundredth_between_fast_and_slow() -> None:
    """With a network that gives 1 everywhere, the kernels are the decays alone."""
    layer = Hyena(bound=1001).build(8, causal=True, layer=0, generator=torch.Generator().manual_seed(0))
    assert isinstance(layer, HyenaLayer)
    with torch.no_grad():
        for name, part in layer.maps.named_parameters():
            part.fill_(0 if name.endswith("weight") else math.pi / 2 / 14)
        layer.last.weight.fill_(1 / 64)
    kernel = layer.kernel(1001)[0]
    assert kernel[:, 0].tolist() == pytest.approx([1] * 8, abs=1e-5)
    assert kernel[-1, 300].item() == pytest.approx(0.01, rel=1e-3)
    assert kernel[0, 1000].item() == pytest.approx(0.01 ** (1 / 1.5), rel=1e-3)


def test_a_shorter_sequence_sees_the_beginning_of_the_kernel() -> None:
    layer = _layer(CONFIGS[0])
    torch.testing.assert_close(layer.kernel(7), layer.kernel(20)[..., :7])


def test_rules_are_the_sources() -> None:
    """Network and features have their own rates and never decay; projections, taps and biases follow the recipe."""
    config = Hyena(lr=2e-3, positions_lr=1e-5)
    rules = config.param_rules()
    layer = config.build(8, causal=True, layer=0, generator=torch.Generator().manual_seed(0))
    found = {name: [rule for key, rule in rules.items() if name.endswith(key)] for name, _ in layer.named_parameters()}
    free = {name for name, matches in found.items() if not matches}
    assert free == {"project.weight", "project.bias", "short.weight", "short.bias", "bias", "out.weight", "out.bias"}
    assert all(
        len(matches) == 1 and matches[0].weight_decay == 0 for name, matches in found.items() if name not in free
    )
    assert {matches[0].lr for name, matches in found.items() if matches} == {2e-3, 1e-5}
    assert found["positions"][0].lr == 1e-5


def test_starting_values() -> None:
    layer = Hyena().build(64, causal=True, layer=0, generator=torch.Generator().manual_seed(0))
    assert isinstance(layer, HyenaLayer)
    assert layer.sines.eq(14).all() and layer.bias.std().item() == pytest.approx(1, rel=0.3)
    inner = layer.maps.get_parameter("1.weight")
    assert inner.abs().max().item() == pytest.approx(1 / 8, rel=0.01)
    assert layer.short.weight.abs().max().item() == pytest.approx(3**-0.5, rel=0.02)


def test_beyond_the_bound_it_fails_with_the_remedy() -> None:
    config = Hyena(bound=9, hidden=4, features=3)
    layer = _layer(config)
    _, state = layer.step(_normal(1, 9, WIDTH), None)
    for call in (lambda: layer(_normal(1, 10, WIDTH)), lambda: layer.step(_normal(1, 1, WIDTH), state)):
        with pytest.raises(UserError, match=r"at most 9 steps, not 10: raise Hyena\(bound"):
            call()
    kernel = config.learned_kernel(layer, 30)
    assert kernel.shape == (WIDTH, 30) and kernel[:, 9:].eq(0).all() and kernel[:, 8].ne(0).all()


@pytest.mark.parametrize(
    "config", [Hyena(order=1), Hyena(features=4), Hyena(features=1), Hyena(fast=2.0), Hyena(bound=0)], ids=str
)
def test_impossible_sizes_are_refused(config: Hyena) -> None:
    with pytest.raises(UserError):
        _layer(config)


@pytest.mark.slow
def test_long_sequences_and_mixed_precision_stay_finite() -> None:
    layer = Hyena(bound=65536).build(8, causal=True, layer=0, generator=torch.Generator().manual_seed(0))
    x = torch.randn(1, 65536, 8, generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    y.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
