"""Hymba against its paper's equations, pair by pair and state by state, and against Mamba, which half of it can be."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.hymba import Hymba, HymbaLayer
from levelfield.spec import UserError


def _build(config: Hymba, width: int = WIDTH) -> HymbaLayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, HymbaLayer)
    return layer


def _normed(part: Tensor, weight: Tensor) -> Tensor:
    return part / (part.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def _weights(modules: torch.nn.ModuleList) -> list[Tensor]:
    return [dict(module.named_parameters())["weight"] for module in modules]


def _turned(part: Tensor) -> Tensor:
    """Queries or keys of a head, (T, d), as complex pairs of channels that turn with the step."""
    pairs = torch.view_as_complex(part.unflatten(-1, (-1, 2)).contiguous())
    rates = 10000.0 ** (-torch.arange(pairs.shape[1], dtype=torch.float64) / pairs.shape[1])
    angles = torch.arange(len(part), dtype=torch.float64)[:, None] * rates
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def _read(config: Hymba, parts: tuple[Tensor, ...]) -> Tensor:
    """Attention's half, pair by pair. parts: queries (T, E), keys and values (T, G d)."""
    size, out = parts[0].shape[1] // config.heads, []
    for h in range(config.heads):
        g = h * (config.kv_heads or config.heads) // config.heads
        query, key = (_turned(x[:, i * size : (i + 1) * size]) for x, i in zip(parts, (h, g), strict=False))
        value, rows = parts[2][:, g * size : (g + 1) * size], []
        for i in range(len(query)):
            first = 0 if config.window is None else max(0, i - config.window + 1)
            scores = torch.softmax(key[first : i + 1] @ query[i] / math.sqrt(size), 0)
            rows.append(scores @ value[first : i + 1])
        out.append(torch.stack(rows))
    return torch.cat(out, 1)


def _summed(layer: HymbaLayer, u: Tensor, z: Tensor) -> Tensor:
    """The states' half, step by step. u, z: (T, E)."""
    weight, states = layer.conv1d.weight, layer.config.state
    rows = F.pad(u, (0, 0, weight.shape[2] - 1, 0)).unfold(0, weight.shape[2], 1)
    assert layer.conv1d.bias is not None
    u = F.silu((rows * weight[:, 0]).sum(-1) + layer.conv1d.bias)
    parts = (u @ layer.x_proj.weight.T).split([layer.dt_proj.in_features, states, states], 1)
    low, b, c = (_normed(part, norm) for part, norm in zip(parts, _weights(layer.x_norms), strict=True))
    dt = torch.log1p(torch.exp(low @ layer.dt_proj.weight.T + layer.dt_proj.bias))
    held, out = u.new_zeros(u.shape[1], states), []
    for t in range(len(u)):
        held = torch.exp(-dt[t, :, None] * layer.A_log.exp()) * held + (dt[t] * u[t])[:, None] * b[t]
        out.append(held @ c[t] + layer.D * u[t])
    return torch.stack(out) * z * torch.sigmoid(z)


def _by_hand(layer: HymbaLayer, x: Tensor) -> Tensor:
    """dong2024, section 2.1. x: (T, D)."""
    *qkv, u, z = (x @ layer.in_proj.weight.T + layer.in_proj.bias).split(layer.sizes, 1)
    first, second = _weights(layer.norms)
    y = (_normed(_read(layer.config, tuple(qkv)), first) + _normed(_summed(layer, u, z), second)) / 2
    return y @ layer.out_proj.weight.T + layer.out_proj.bias


@pytest.mark.parametrize(
    "config",
    [Hymba(heads=2, state=3), Hymba(heads=4, kv_heads=2, window=5, expand=1, state=2, conv=2, rank=3)],
    ids=str,
)
def test_the_layer_is_its_papers_equations(config: Hymba) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (13, 4))


def test_sizes_are_the_published_codes() -> None:
    layer = _build(Hymba(heads=12, kv_heads=4), 768)
    assert layer.in_proj.weight.shape == (1536 * 3 + 2 * 512, 768)
    shapes = {name: tuple(value.shape) for name, value in layer.named_parameters()}
    assert shapes["conv1d.weight"] == (1536, 1, 3) and shapes["out_proj.bias"] == (768,)
    assert shapes["x_proj.weight"] == (48 + 32, 1536) and shapes["A_log"] == (1536, 16)
    assert Hymba(window=8).state_size(64, 100) == 2 * 128 * 7 + 128 * (2 + 16)


def test_finite_in_half_precision() -> None:
    twins.half(_build(Hymba(heads=2, state=3)), 0.1)


@pytest.mark.parametrize(
    "config, sentence",
    [
        (Hymba(heads=3), "into 3 heads"),
        (Hymba(heads=4, kv_heads=3), "share 3 heads"),
        (Hymba(heads=16), "pairs of channels"),
        (Hymba(heads=2, window=-1), "at least 1"),
        (Hymba(heads=2, conv=0), "at least one tap"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: Hymba, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
