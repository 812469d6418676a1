"""DeltaProduct against products of Householder matrices written out, its special cases, and groups that it follows."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.deltanet import DeltaNet
from levelfield.mixers.deltaproduct import DeltaProduct, DeltaProductLayer
from levelfield.mixers.gated_deltanet import GatedDeltaNet
from levelfield.ops.linear_attention.delta import delta_rule
from levelfield.spec import MixerConfig, UserError

CONFIGS = (
    DeltaProduct(heads=2),
    DeltaProduct(heads=1, householder=3, gated=True, expand_k=0.5, expand_v=2.0, conv=2),
    DeltaProduct(heads=2, householder=2, negative=False, gated=True, conv=1),
)


def _build(config: MixerConfig, width: int = WIDTH, seed: int = 0) -> torch.nn.Module:
    return config.build(width, causal=True, layer=0, generator=Generator().manual_seed(seed))


def _convolved(x: Tensor, weight: Tensor) -> Tensor:
    """x: (T, C), weight: (C, 1, W)."""
    rows = F.pad(x, (0, 0, weight.shape[2] - 1, 0)).unfold(0, weight.shape[2], 1)
    return F.silu((rows * weight[:, 0]).sum(-1))


def _by_hand(layer: DeltaProductLayer, x: Tensor) -> Tensor:
    """Each step's transition, a product of matrices, and what it writes: sum_j (factors after j) beta_j k_j v_j^T."""
    n, heads, negative = layer.config.householder, layer.config.heads, layer.config.negative
    q = _convolved(x @ layer.q_proj.weight.T, layer.q_conv1d.weight).unflatten(-1, (heads, -1))
    k = _convolved(x @ layer.k_proj.weight.T, layer.k_conv1d.weight).unflatten(-1, (n, heads, -1))
    v = _convolved(x @ layer.v_proj.weight.T, layer.v_conv1d.weight).unflatten(-1, (n, heads, -1))
    q, k = (z / (z.square().sum(-1, keepdim=True) + 1e-6).sqrt() for z in (q, k))
    beta = torch.sigmoid(x @ layer.b_proj.weight.T).unflatten(-1, (n, heads)) * (2 if negative else 1)
    rows, eye = [], torch.eye(k.shape[-1]).to(x)
    for h in range(heads):
        memory, out = x.new_zeros(k.shape[-1], v.shape[-1]), []
        for t in range(len(x)):
            householder = [eye - beta[t, j, h] * torch.outer(k[t, j, h], k[t, j, h]) for j in range(n)]
            transition, written = eye, torch.zeros_like(memory)
            for j in range(n):
                after = eye
                for later in householder[j + 1 :]:
                    after = later @ after
                written = written + after @ (beta[t, j, h] * torch.outer(k[t, j, h], v[t, j, h]))
                transition = householder[j] @ transition
            if layer.config.gated:
                step = torch.log1p(torch.exp(x[t] @ layer.a_proj.weight[h] + layer.dt_bias[h]))
                transition = transition * torch.exp(-layer.A_log[h].exp() * step)
            memory = transition @ memory + written
            o = q[t, h] @ memory / q.shape[-1] ** 0.5
            out.append(o / (o.square().mean() + 1e-5).sqrt() * layer.o_norm.weight)
        rows.append(torch.stack(out))
    y = torch.cat(rows, 1)
    return (y * F.silu(x @ layer.g_proj.weight.T) if layer.config.gated else y) @ layer.o_proj.weight.T


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_layer_is_the_papers_equations(config: DeltaProduct) -> None:
    layer = twins.stirred(_build(config))
    assert isinstance(layer, DeltaProductLayer)
    twins.equal(layer, partial(_by_hand, layer), (13, 4))


@pytest.mark.parametrize("gated", [False, True])
def test_one_factor_is_the_delta_net(gated: bool) -> None:
    same = {"expand_k": 0.5, "expand_v": 1.5, "conv": 3}
    peer = GatedDeltaNet(2, **same, negative=True) if gated else DeltaNet(2, **same, negative=True)
    layer, other = _build(DeltaProduct(2, householder=1, gated=gated, **same), 16), _build(peer, 16, seed=1)
    layer.load_state_dict(other.state_dict())
    x = twins.normal(2, 20, 16)
    assert torch.equal(layer(x, None), other(x, None))


def test_two_reflections_count_modulo_five() -> None:
    """Mirrors at half the angle turn a plane: a digit d turns it by d fifths, over 1,000 digits, in float64."""
    digits = torch.randint(5, (1000,), generator=Generator().manual_seed(0))
    turn = math.pi * digits.double() / 5
    still = torch.stack([torch.ones(1000), torch.zeros(1000)], -1).double()
    keys = torch.stack([still, torch.stack([turn.cos(), turn.sin()], -1)], 1).flatten(0, 1)[None, None]
    start = torch.tensor([[1.0], [0.0]], dtype=torch.float64)[None, None]
    nothing = torch.zeros(1, 1, 2000, 1, dtype=torch.float64)
    asked = [
        delta_rule(axis.to(keys).expand_as(keys), keys, nothing, torch.full((1, 1, 2000), 2.0).to(keys), state=start)[0]
        for axis in (torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    ]
    angle = torch.atan2(asked[1], asked[0])[0, 0, 1::2, 0]
    assert torch.equal((angle * 5 / (2 * math.pi)).round().long() % 5, digits.cumsum(0) % 5)


def test_a_reflection_is_parity_and_no_positive_eigenvalue_is() -> None:
    """beta = 2 changes the sign of what a key recalls; with beta <= 1 it only fades, for whatever bits come."""
    bits = torch.randint(2, (5000,), generator=Generator().manual_seed(0)).double()
    keys, start = torch.ones(1, 1, 5000, 1, dtype=torch.float64), torch.ones(1, 1, 1, 1, dtype=torch.float64)
    y = delta_rule(keys, keys, torch.zeros_like(keys), 2 * bits[None, None], state=start)[0].flatten()
    assert torch.equal(y, 1 - 2 * (bits.cumsum(0) % 2))
    faded = delta_rule(keys, keys, torch.zeros_like(keys), 0.999 * bits[None, None], state=start)[0].flatten()
    assert faded.min() > -1e-12  # but for rounding


@pytest.mark.parametrize("config", CONFIGS[:2], ids=str)
def test_finite_in_half_precision(config: DeltaProduct) -> None:
    twins.half(_build(config), 0.1)


@pytest.mark.parametrize(
    "config, sentence",
    [
        (DeltaProduct(heads=3), "into 3 heads"),
        (DeltaProduct(conv=0), "at least one tap"),
        (DeltaProduct(householder=0), "at least one Householder factor"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: DeltaProduct, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
