"""The delta rule, plain and gated: its chunks against the recurrence, its layers against the papers' equations, and
memories whose content is known in advance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import kept
import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.deltanet import DeltaNet, DeltaNetLayer
from levelfield.mixers.gated_deltanet import GatedDeltaNet, GatedDeltaNetLayer
from levelfield.ops.linear_attention import chunks
from levelfield.ops.linear_attention.delta import delta_rule, naive_delta_rule
from levelfield.spec import UserError

Config = DeltaNet | GatedDeltaNet
Layer = DeltaNetLayer | GatedDeltaNetLayer
CONFIGS: tuple[Config, ...] = (
    DeltaNet(heads=2),
    DeltaNet(heads=1, expand_k=0.5, expand_v=2.0, conv=2, negative=True),
    GatedDeltaNet(heads=2),
    GatedDeltaNet(heads=1, expand_k=0.5, expand_v=0.5, conv=1, negative=True),
)


def _inputs(length: int, strength: float | None, batch: int = 2, seed: int = 0) -> list[Tensor | None]:
    """q, k, v, beta, log_decay, state in float64; decays are spread, few as strong as `strength`, or None."""
    draw, heads, keys, values = Generator().manual_seed(seed), 3, 5, 4

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    def uniform() -> Tensor:
        return torch.rand(batch, heads, length, generator=draw, dtype=torch.float64)

    q, k = normal(batch, heads, length, keys), F.normalize(normal(batch, heads, length, keys), dim=-1)
    log_decay = None if strength is None else -strength * uniform() ** 3
    return [q, k, normal(batch, heads, length, values), 2 * uniform(), log_decay, normal(batch, heads, keys, values)]


def _results(inputs: Sequence[Tensor | None], chunk: int | None) -> list[Tensor]:
    """y, the last state and the gradients of everything that goes in; chunk None: by the equation."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
    q, k, v, beta, log_decay, state = leaves
    assert q is not None and k is not None and v is not None and beta is not None
    if chunk is None:
        out = naive_delta_rule(q, k, v, beta, log_decay, state)
    else:
        out = delta_rule(q, k, v, beta, log_decay, state, chunk)
    draw = Generator().manual_seed(9)
    pulls = [torch.randn(x.shape, generator=draw, dtype=torch.float64).to(x.dtype) for x in out]
    return [*out, *torch.autograd.grad(out, [x for x in leaves if x is not None], pulls)]


@pytest.mark.parametrize("length, chunk", [(1, 64), (6, 64), (37, 16), (32, 16)])
@pytest.mark.parametrize("strength", [None, 0.5, 300.0])
def test_chunks_are_the_recurrence(length: int, chunk: int, strength: float | None) -> None:
    inputs = _inputs(length, strength)
    for found, expected in zip(_results(inputs, chunk), _results(inputs, None), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("strength", [None, 1.0])
def test_blocking_for_caches_changes_nothing(strength: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows one by one and chunks two by two, as wide layers are computed."""
    inputs = _inputs(70, strength, batch=3)
    whole = _results(inputs, 16)
    monkeypatch.setattr(chunks, "CPU_BLOCK_ELEMENTS", 2 * 16 * 3 * 5)
    for found, expected in zip(_results(inputs, 16), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("strength", [None, 1.0, 1e4])
def test_single_precision_keeps_its_digits(strength: float | None) -> None:
    """Also after a decay by e^-1000, and over chunks of keys that overlap."""
    inputs = [x if x is None else x.float() for x in _inputs(150, strength, batch=1)]
    exact = _results([None if x is None else x.double() for x in inputs], None)
    for found, expected in zip(_results(inputs, 64), exact, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).abs().max() <= 2e-5 * expected.abs().max() + 1e-20


def test_a_key_recalls_what_was_stored_last() -> None:
    """beta = 1: writing under a key replaces its value, and leaves what lies under orthogonal keys."""
    keys, draw = torch.eye(4, dtype=torch.float64), Generator().manual_seed(0)
    order = torch.randint(4, (1, 1, 90), generator=draw)
    values, k = torch.randn(1, 1, 90, 3, generator=draw, dtype=torch.float64), keys[order]
    asked = torch.randint(4, (1, 1, 90), generator=draw)
    y, _ = delta_rule(keys[asked], k, values, torch.ones(1, 1, 90, dtype=torch.float64))
    for t in range(90):
        past = [s for s in range(t + 1) if order[0, 0, s] == asked[0, 0, t]]
        expected = values[0, 0, past[-1]] if past else torch.zeros(3, dtype=torch.float64)
        torch.testing.assert_close(y[0, 0, t], expected, rtol=1e-12, atol=1e-12)


def _build(config: Config, width: int = WIDTH) -> Layer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, (DeltaNetLayer, GatedDeltaNetLayer))
    return layer


def _convolved(x: Tensor, weight: Tensor) -> Tensor:
    """x: (T, C), weight: (C, 1, W)."""
    rows = F.pad(x, (0, 0, weight.shape[2] - 1, 0)).unfold(0, weight.shape[2], 1)
    return F.silu((rows * weight[:, 0]).sum(-1))


def _by_hand(layer: Layer, x: Tensor) -> Tensor:
    """yang2024delta, equation 5 and figure 2; yang2025, equation 10 and figure 1. x: (T, D)."""
    heads, scale = layer.config.heads, 2 if layer.config.negative else 1
    q = _convolved(x @ layer.q_proj.weight.T, layer.q_conv1d.weight)
    k = _convolved(x @ layer.k_proj.weight.T, layer.k_conv1d.weight)
    v = _convolved(x @ layer.v_proj.weight.T, layer.v_conv1d.weight)
    beta = scale * torch.sigmoid(x @ layer.b_proj.weight.T)
    alpha, gate = torch.ones_like(beta), torch.ones_like(v)
    if isinstance(layer, GatedDeltaNetLayer):
        step = torch.log1p(torch.exp(x @ layer.a_proj.weight.T + layer.dt_bias))
        alpha, gate = torch.exp(-layer.A_log.exp() * step), F.silu(x @ layer.g_proj.weight.T)
    keys, values, eye, rows = q.shape[1] // heads, v.shape[1] // heads, torch.eye(q.shape[1] // heads).to(x), []
    for h in range(heads):
        ks, vs = slice(h * keys, (h + 1) * keys), slice(h * values, (h + 1) * values)
        memory, out = x.new_zeros(values, keys), []  # the papers' S, values by keys
        for t in range(len(x)):
            kt, qt = (z / (z.square().sum() + 1e-6).sqrt() for z in (k[t, ks], q[t, ks]))
            memory = alpha[t, h] * memory @ (eye - beta[t, h] * torch.outer(kt, kt))
            memory = memory + beta[t, h] * torch.outer(v[t, vs], kt)
            o = memory @ qt / keys**0.5
            out.append(o / (o.square().mean() + 1e-5).sqrt() * layer.o_norm.weight * gate[t, vs])
        rows.append(torch.stack(out))
    return torch.cat(rows, 1) @ layer.o_proj.weight.T


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_layers_are_their_papers_equations(config: Config) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (21, 6))


def test_first_values_are_the_published_codes() -> None:
    layer = _build(GatedDeltaNet(heads=256), 1024)
    assert isinstance(layer, GatedDeltaNetLayer)
    a, step = layer.A_log.detach().exp(), F.softplus(layer.dt_bias.detach())
    assert a.min() > 0 and 14 < a.max() <= 16 and a.mean().item() == pytest.approx(8, abs=1)
    assert step.min() > 1e-3 * 0.999 and step.max() < 1e-1 * 1.001
    assert step.log10().mean().item() == pytest.approx(-2, abs=0.12)
    shapes = {name: tuple(value.shape) for name, value in layer.state_dict().items()}
    assert shapes["q_proj.weight"] == shapes["k_proj.weight"] == (768, 1024)
    assert shapes["v_proj.weight"] == shapes["g_proj.weight"] == (1536, 1024)
    assert shapes["q_conv1d.weight"] == (768, 1, 4) and shapes["o_norm.weight"] == (6,)
    rules = GatedDeltaNet().param_rules()
    assert set(rules) == {"A_log", "dt_bias"} and all(rule.weight_decay == 0 for rule in rules.values())
    plain = _build(DeltaNet(), 64)
    assert sum(value.numel() for value in plain.parameters()) == 4 * 64**2 + 4 * 64 + 3 * 64 * 4 + 16
    assert plain.q_proj.weight.abs().max() <= 1 / 8 and torch.equal(plain.o_norm.weight, torch.ones(16))


@pytest.mark.parametrize("config", CONFIGS[::2], ids=str)
def test_finite_in_half_precision(config: Config) -> None:
    twins.half(_build(config), 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS[1::2], ids=str)
def test_finite_over_64_thousand_steps(config: Config) -> None:
    """The other two are in the test of all mixers."""
    twins.far(_build(config))


@kept.modes
@pytest.mark.parametrize("way", ["chunk", "recurrent"])
def test_gated_rule_is_that_of_transformers(way: str, mode: kept.Mode) -> None:
    """Qwen3-Next's, by chunks and step by step, from a state, in float32 as it computes."""
    theirs = kept.case("qwen3_next", mode, way)
    q, k, v, beta, log_decay, state = (theirs[name] for name in ("q", "k", "v", "beta", "log_decay", "state"))
    y, last = delta_rule(q * q.shape[-1] ** -0.5, k, v, beta, log_decay, state)
    torch.testing.assert_close(y, theirs["y"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(last, theirs["last"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "config, sentence",
    [
        (DeltaNet(heads=3), "into 3 heads"),
        (DeltaNet(conv=0), "at least one tap"),
        (GatedDeltaNet(expand_k=0.1), "choose a divisor"),
        (GatedDeltaNet(heads=2, conv=0), "at least one tap"),
        (GatedDeltaNet(heads=2, dt_min=0), "0 < dt_min"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: Config, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
