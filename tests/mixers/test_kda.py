"""Kimi Delta Attention: its chunks against the recurrence, its layer against the paper's equations, and the scores of
pairs of steps between which every channel decays at its own rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.gated_deltanet import GatedDeltaNet
from levelfield.mixers.kda import KDA, KDALayer
from levelfield.ops.linear_attention.decayed_scores import decayed_scores, naive_decayed_scores
from levelfield.ops.linear_attention.delta import delta_rule
from levelfield.ops.linear_attention.delta_decayed import decayed_delta_rule, naive_decayed_delta_rule
from levelfield.spec import UserError


def _inputs(length: int, strength: float, batch: int = 2) -> list[Tensor]:
    """q, k, v, beta, log_decay, state in float64; decays are spread over channels, few as strong as `strength`."""
    draw, heads, keys, values = Generator().manual_seed(0), 3, 5, 4

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=draw, dtype=torch.float64)

    q, k = normal(batch, length, heads, keys), F.normalize(normal(batch, length, heads, keys), dim=-1)
    beta, log_decay = 2 * uniform(batch, length, heads), -strength * uniform(batch, length, heads, keys) ** 3
    return [q, k, normal(batch, length, heads, values), beta, log_decay, normal(batch, heads, keys, values)]


def _results(work: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor]) -> list[Tensor]:
    """What the work returns, and the gradients of everything that goes in."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out, draw = work(*leaves), Generator().manual_seed(9)
    pulls = [torch.randn(x.shape, generator=draw, dtype=torch.float64).to(x.dtype) for x in out]
    return [*out, *torch.autograd.grad(out, leaves, pulls)]


@pytest.mark.parametrize(("length", "chunk"), [(1, 64), (6, 64), (37, 16), (32, 16)])
@pytest.mark.parametrize("strength", [0.0, 0.5, 300.0])
def test_chunks_are_the_recurrence(length: int, chunk: int, strength: float) -> None:
    inputs = _inputs(length, strength)
    found, expected = (
        _results(partial(decayed_delta_rule, chunk=chunk), inputs),
        _results(naive_decayed_delta_rule, inputs),
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("strength", [1e-3, 1.0, 1e4])
def test_single_precision_keeps_its_digits(strength: float) -> None:
    """In values and all gradients, also after decays by e^-1000 and over chunks of keys that overlap."""
    inputs = [x.float() for x in _inputs(70, strength, batch=1)]
    exact = _results(naive_decayed_delta_rule, [x.double() for x in inputs])
    for found, expected in zip(_results(decayed_delta_rule, inputs), exact, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).abs().max() <= 2e-5 * expected.abs().max() + 1e-20


@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("strength", [0.3, 300.0])
def test_scores_of_pairs_are_their_formula(size: int, strength: float) -> None:
    draw = Generator().manual_seed(1)
    q, k, decay = (torch.randn(3, size, 5, generator=draw, dtype=torch.float64) for _ in range(3))
    inputs = (q, k, -strength * decay.abs() ** 3)
    pairs = (_results(lambda *x, by=by: (by(*x),), inputs) for by in (decayed_scores, naive_decayed_scores))
    for found, expected in zip(*pairs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_equal_decays_in_all_channels_are_the_gated_delta_rule() -> None:
    q, k, v, beta, log_decay, state = _inputs(70, 1.0)
    y, last = decayed_delta_rule(q, k, v, beta, log_decay[..., :1].expand_as(q), state)
    rows = (x.transpose(1, 2) for x in (q, k, v, beta, log_decay[..., 0]))
    expected, end = delta_rule(*rows, state=state)
    torch.testing.assert_close(y, expected.transpose(1, 2), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(last, end, rtol=1e-10, atol=1e-10)


def _build(config: KDA, width: int = WIDTH) -> KDALayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, KDALayer)
    return layer


def _convolved(x: Tensor, weight: Tensor) -> Tensor:
    """x: (T, C), weight: (C, 1, W)."""
    rows = F.pad(x, (0, 0, weight.shape[2] - 1, 0)).unfold(0, weight.shape[2], 1)
    return F.silu((rows * weight[:, 0]).sum(-1))


def _through(net: torch.nn.Sequential, x: Tensor) -> Tensor:
    """Two linear maps after each other."""
    (first, second) = (dict(module.named_parameters()) for module in net)
    return x @ first["weight"].T @ second["weight"].T + second.get("bias", 0)


def _by_hand(layer: KDALayer, x: Tensor) -> Tensor:
    """kimi2025, equation 1 and section 4. x: (T, D)."""
    heads, scale = layer.config.heads, 2 if layer.config.negative else 1
    q = _convolved(x @ layer.q_proj.weight.T, layer.q_conv1d.weight)
    k = _convolved(x @ layer.k_proj.weight.T, layer.k_conv1d.weight)
    v = _convolved(x @ layer.v_proj.weight.T, layer.v_conv1d.weight)
    beta = scale * torch.sigmoid(x @ layer.b_proj.weight.T)
    pace = torch.log1p(torch.exp(_through(layer.f_proj, x) + layer.dt_bias))
    gate = torch.sigmoid(_through(layer.g_proj, x))
    keys, values, rows = q.shape[1] // heads, v.shape[1] // heads, []
    eye = torch.eye(keys).to(x)
    for h in range(heads):
        ks, vs = slice(h * keys, (h + 1) * keys), slice(h * values, (h + 1) * values)
        memory, out = x.new_zeros(keys, values), []
        for t in range(len(x)):
            kt, qt = (z / (z.square().sum() + 1e-6).sqrt() for z in (k[t, ks], q[t, ks]))
            alpha = torch.exp(-layer.A_log[h].exp() * pace[t, ks])
            memory = (eye - beta[t, h] * torch.outer(kt, kt)) @ torch.diag(alpha) @ memory
            memory = memory + beta[t, h] * torch.outer(kt, v[t, vs])
            o = qt @ memory / keys**0.5
            out.append(o / (o.square().mean() + 1e-5).sqrt() * layer.o_norm.weight * gate[t, vs])
        rows.append(torch.stack(out))
    return torch.cat(rows, 1) @ layer.o_proj.weight.T


@pytest.mark.parametrize(
    "config", [KDA(heads=2), KDA(heads=1, expand_k=0.5, expand_v=2.0, conv=1, rank=3, negative=True)], ids=str
)
def test_the_layer_is_its_papers_equations(config: KDA) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (21, 6))


def test_sizes_and_first_values_are_the_published_codes() -> None:
    layer = _build(KDA(heads=256), 1024)
    a, step = layer.A_log.detach().exp(), F.softplus(layer.dt_bias.detach())
    assert a.min() >= 1 and 15 < a.max() <= 16 and a.mean().item() == pytest.approx(8.5, abs=1)
    assert step.min() > 1e-3 * 0.999 and step.max() < 1e-1 * 1.001 and step.shape == (1024,)
    shapes = {name: tuple(value.shape) for name, value in layer.state_dict().items()}
    assert shapes["f_proj.0.weight"] == shapes["g_proj.0.weight"] == (4, 1024)
    assert shapes["f_proj.1.weight"] == shapes["g_proj.1.weight"] == (1024, 4)
    assert shapes["g_proj.1.bias"] == (1024,) and shapes["o_norm.weight"] == (4,)
    like = GatedDeltaNet(heads=4, expand_k=1.0, expand_v=1.0)
    assert KDA().state_size(64, 9) == like.state_size(64, 9) and KDA().param_rules() == like.param_rules()


def test_finite_in_half_precision() -> None:
    twins.half(_build(KDA(heads=2)), 0.1)


@pytest.mark.parametrize(
    "config, sentence",
    [
        (KDA(heads=3), "into 3 heads"),
        (KDA(heads=2, conv=0), "at least one tap"),
        (KDA(heads=2, rank=0), "at least one ch"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: KDA, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
