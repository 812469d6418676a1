"""Mamba and Mamba-2 against their papers' equations, step by step, and their authors' names, shapes and starts."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.mamba import Mamba, MambaLayer
from levelfield.mixers.mamba2 import Mamba2, Mamba2Layer
from levelfield.spec import MixerConfig, UserError

CONFIGS = (
    Mamba2(state=4, head=8),
    Mamba2(state=3, expand=1, head=2, groups=2, conv=2),
    Mamba(state=3),
    Mamba(state=2, expand=1, conv=2, rank=3),
)


def _build(config: MixerConfig, width: int = WIDTH) -> nn.Module:
    return config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))


def _convolved(u: Tensor, conv: nn.Conv1d) -> Tensor:
    """(T, C) -> (T, C): each channel's last taps, then SiLU, from the definition."""
    taps, out = conv.weight.shape[2], []
    assert conv.bias is not None
    for t in range(len(u)):
        total = conv.bias
        for j in range(taps):
            if t - j >= 0:
                total = total + conv.weight[:, 0, taps - 1 - j] * u[t - j]
        out.append(total / (1 + torch.exp(-total)))
    return torch.stack(out)


def _mamba2(layer: Mamba2Layer, u: Tensor) -> Tensor:
    """dao2024, equations 1 and 6 and figure 6, head by head. u: (T, D)."""
    c, inner = layer.config, layer.sizes[0]
    z, mixed, raw = (u @ layer.in_proj.weight.T).split(layer.sizes, dim=-1)
    x, b, c_ = _convolved(mixed, layer.conv1d).split((inner, c.groups * c.state, c.groups * c.state), dim=-1)
    heads, per_group = layer.heads, layer.heads // c.groups
    out = torch.zeros_like(x)
    for h in range(heads):
        channels = slice(h * c.head, (h + 1) * c.head)
        states = slice(h // per_group * c.state, (h // per_group + 1) * c.state)
        memory = x.new_zeros(c.state, c.head)
        for t in range(len(u)):
            dt = torch.log1p(torch.exp(raw[t, h] + layer.dt_bias[h]))
            memory = torch.exp(-dt * layer.A_log[h].exp()) * memory + dt * torch.outer(b[t, states], x[t, channels])
            out[t, channels] = c_[t, states] @ memory + layer.D[h] * x[t, channels]
    gated = (out * F.silu(z)).unflatten(-1, (c.groups, -1))
    normed = (gated / (gated.square().mean(-1, keepdim=True) + 1e-5).sqrt()).flatten(-2)
    return (normed * layer.norm.weight) @ layer.out_proj.weight.T


def _mamba(layer: MambaLayer, u: Tensor) -> Tensor:
    """gu2023, algorithm 2 and figure 3, channel by channel. u: (T, D)."""
    x, z = (u @ layer.in_proj.weight.T).chunk(2, dim=-1)
    x = _convolved(x, layer.conv1d)
    low, b, c = (x @ layer.x_proj.weight.T).split(layer.sizes, dim=-1)
    dt = torch.log1p(torch.exp(low @ layer.dt_proj.weight.T + layer.dt_proj.bias))
    out = torch.zeros_like(x)
    for e in range(x.shape[1]):
        h = x.new_zeros(b.shape[1])
        for t in range(len(u)):
            h = torch.exp(-dt[t, e] * layer.A_log[e].exp()) * h + dt[t, e] * x[t, e] * b[t]
            out[t, e] = torch.dot(h, c[t]) + layer.D[e] * x[t, e]
    return (out * F.silu(z)) @ layer.out_proj.weight.T


def _by_hand(layer: nn.Module, u: Tensor) -> Tensor:
    if isinstance(layer, Mamba2Layer):
        return _mamba2(layer, u)
    assert isinstance(layer, MambaLayer)
    return _mamba(layer, u)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_layers_are_their_papers_equations(config: MixerConfig) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (13, 6))


@pytest.mark.parametrize("config", [Mamba2(state=4, head=8), Mamba(state=3)], ids=str)
def test_long_sequences_are_chunks_of_the_same(config: MixerConfig) -> None:
    """Beyond one chunk: a step far out, reached in one call or state by state."""
    layer = twins.stirred(_build(config))
    assert isinstance(layer, Mamba2Layer | MambaLayer)
    x = torch.randn(1, 301, WIDTH, generator=Generator().manual_seed(4), dtype=torch.float64)
    y, state = layer(x), None
    for t in range(301):
        step, state = layer.step(x[:, t : t + 1], state)
        if t > 295:
            torch.testing.assert_close(step[:, 0], y[:, t], rtol=1e-9, atol=1e-9)


def test_weights_have_the_authors_names_and_shapes() -> None:
    """As in state-spaces/mamba2-2.7b (width 2560: in_proj 10576 = 2 x 5120 + 2 x 128 + 80 rows), and mamba-130m."""
    shapes = {name: tuple(value.shape) for name, value in _build(Mamba2(), 64).state_dict().items()}
    assert shapes == {
        "in_proj.weight": (2 * 128 + 2 * 128 + 2, 64),
        "conv1d.weight": (128 + 2 * 128, 1, 4),
        "conv1d.bias": (128 + 2 * 128,),
        "dt_bias": (2,),
        "A_log": (2,),
        "D": (2,),
        "norm.weight": (128,),
        "out_proj.weight": (64, 128),
    }
    shapes = {name: tuple(value.shape) for name, value in _build(Mamba(), 64).state_dict().items()}
    assert shapes == {
        "in_proj.weight": (256, 64),
        "conv1d.weight": (128, 1, 4),
        "conv1d.bias": (128,),
        "x_proj.weight": (4 + 2 * 16, 128),
        "dt_proj.weight": (128, 4),
        "dt_proj.bias": (128,),
        "A_log": (128, 16),
        "D": (128,),
        "out_proj.weight": (64, 128),
    }


def test_initial_values_are_the_authors() -> None:
    second = _build(Mamba2(head=1, expand=8), 512)
    assert isinstance(second, Mamba2Layer)
    dt, rates = F.softplus(second.dt_bias).detach(), second.A_log.detach().exp()
    assert (
        dt.min() >= 1e-3 * 0.999
        and dt.max() <= 0.1001
        and dt.log().mean().item() == pytest.approx(math.log(1e-2), abs=0.1)
    )
    assert rates.min() >= 1 and rates.max() <= 16 and rates.mean().item() == pytest.approx(8.5, abs=0.3)
    assert torch.equal(second.D, torch.ones(4096)) and torch.equal(second.norm.weight, torch.ones(4096))
    assert second.in_proj.weight.std().item() == pytest.approx((3 * 512) ** -0.5, rel=0.01)
    assert second.conv1d.weight.abs().max().item() == pytest.approx(0.5, rel=0.01)  # torch's, at four taps

    first = _build(Mamba(), 512)
    assert isinstance(first, MambaLayer)
    dt = F.softplus(first.dt_proj.bias)
    assert dt.min() >= 1e-3 * 0.999 and dt.max() <= 0.1001
    torch.testing.assert_close(first.A_log.exp(), torch.arange(1.0, 17).repeat(1024, 1))
    assert torch.equal(first.D, torch.ones(1024))
    assert first.dt_proj.weight.abs().max().item() == pytest.approx(32**-0.5, rel=0.01)  # rank 512 / 16


def test_what_sets_the_decays_does_not_decay() -> None:
    for config, names in ((Mamba2(), {"A_log", "D", "dt_bias"}), (Mamba(), {"A_log", "D", "dt_proj.bias"})):
        rules = config.param_rules()
        assert set(rules) == names and all(rule.weight_decay == 0 and rule.lr is None for rule in rules.values())


@pytest.mark.parametrize("config", [Mamba2(state=4, head=8), Mamba(state=3)], ids=str)
def test_finite_in_half_precision(config: MixerConfig) -> None:
    twins.half(_build(config), 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("config", [Mamba2(state=16, head=8), Mamba(state=4)], ids=str)
def test_finite_over_64_thousand_steps(config: MixerConfig) -> None:
    twins.far(_build(config))


@pytest.mark.parametrize(
    "config, sentence",
    [
        (Mamba2(head=5), "heads of 5"),
        (Mamba2(head=8, groups=3), "into 3 groups"),
        (Mamba2(state=0), "at least 1"),
        (Mamba2(head=8, dt_min=0.0), "0 < dt_min"),
        (Mamba(rank=0), "at least 1"),
        (Mamba(dt_min=1.0), "0 < dt_min <= dt_max"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: MixerConfig, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
