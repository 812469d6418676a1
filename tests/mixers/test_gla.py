"""Gated linear attention against yang2024's equations step by step, and against decays that are known in advance."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.gla import GLA, GLALayer
from levelfield.spec import UserError

CONFIGS = (GLA(heads=2), GLA(heads=1, expand_k=1.0, expand_v=2.0, gate_rank=3, gate_divisor=1.0))


def _build(config: GLA, width: int = WIDTH) -> GLALayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, GLALayer)
    return layer


def _by_hand(layer: GLALayer, x: Tensor) -> Tensor:
    """Section 4.4: equations 3 (recurrence) and 4 (gate), then each head normed and gated. x: (T, D)."""
    heads = layer.config.heads
    q, k, v, gate = (x @ p.weight.T for p in (layer.q_proj, layer.k_proj, layer.v_proj, layer.g_proj))
    low, high = layer.gk_proj
    assert isinstance(low, nn.Linear) and isinstance(high, nn.Linear)
    alpha = torch.sigmoid(x @ low.weight.T @ high.weight.T + high.bias) ** (1 / layer.config.gate_divisor)
    keys, values, rows = q.shape[1] // heads, v.shape[1] // heads, []
    for h in range(heads):
        ks, vs = slice(h * keys, (h + 1) * keys), slice(h * values, (h + 1) * values)
        memory, out = x.new_zeros(keys, values), []
        for t in range(len(x)):
            memory = alpha[t, ks, None] * memory + torch.outer(k[t, ks], v[t, vs])
            o = q[t, ks] @ memory / keys**0.5
            out.append(o / (o.square().mean() + 1e-5).sqrt() * layer.norm_weight * F.silu(gate[t, vs]))
        rows.append(torch.stack(out))
    return torch.cat(rows, 1) @ layer.o_proj.weight.T


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_layer_is_its_papers_equations(config: GLA) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (21, 6))


def test_open_gates_make_it_plain_linear_attention() -> None:
    """With alpha = 1, o_t = sum_{s <= t} (q_t . k_s) v_s / sqrt(K): a masked product without any recurrence."""
    layer = _build(GLA(heads=1)).double()
    with torch.no_grad():
        dict(layer.named_parameters())["gk_proj.1.bias"].fill_(1e9)
    x = torch.randn(1, 150, WIDTH, generator=Generator().manual_seed(1), dtype=torch.float64)
    q, k, v = layer.q_proj(x), layer.k_proj(x), layer.v_proj(x)
    o = (q @ k.mT / 2).tril() @ v  # K = 4
    expected = layer.o_proj(F.rms_norm(o, o.shape[-1:], None, 1e-5) * F.silu(layer.g_proj(x)))
    torch.testing.assert_close(layer(x), expected, rtol=1e-9, atol=1e-9)


def test_shut_gates_leave_the_present() -> None:
    layer = _build(GLA(heads=2)).double()
    with torch.no_grad():
        dict(layer.named_parameters())["gk_proj.1.bias"].fill_(-1e6)
    x = torch.randn(2, 70, WIDTH, generator=Generator().manual_seed(1), dtype=torch.float64)
    alone = layer(x.flatten(0, 1).unsqueeze(1)).view_as(x)
    torch.testing.assert_close(layer(x), alone, rtol=1e-9, atol=1e-9)


def test_sizes_and_first_decays_are_the_papers() -> None:
    """Keys of half the width, a gate through 16 channels: 4 D^2 and a little; decays start near sigmoid(0)^(1/16)."""
    layer = _build(GLA(), 64)
    shapes = {name: tuple(value.shape) for name, value in layer.state_dict().items() if name.endswith("weight")}
    assert shapes["q_proj.weight"] == shapes["k_proj.weight"] == (32, 64)
    assert shapes["v_proj.weight"] == shapes["g_proj.weight"] == shapes["o_proj.weight"] == (64, 64)
    assert shapes["gk_proj.0.weight"] == (16, 64) and shapes["gk_proj.1.weight"] == (32, 16)
    assert torch.equal(layer.norm_weight, torch.ones(16))
    x = torch.randn(1, 500, 64, generator=Generator().manual_seed(1))
    alpha = torch.sigmoid(layer.gk_proj(x)) ** (1 / 16)
    assert alpha.mean().item() == pytest.approx(0.5 ** (1 / 16), abs=0.01)
    assert GLA().param_rules() == {}


def test_finite_in_half_precision() -> None:
    twins.half(_build(GLA(heads=2)), 0.05)


@pytest.mark.parametrize(
    "config, sentence",
    [(GLA(heads=3), "into 3 heads"), (GLA(expand_k=0.1), "choose a divisor"), (GLA(gate_rank=0), "gate_rank")],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: GLA, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
