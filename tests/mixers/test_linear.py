"""Linear attention against sums over pairs, and what the contract suite cannot see."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor

from levelfield.mixers.linear import EPS, Linear, LinearLayer
from levelfield.spec import UserError


def _layer(config: Linear, width: int, causal: bool) -> LinearLayer:
    layer = config.build(width, causal=causal, layer=0, generator=Generator().manual_seed(1))
    assert isinstance(layer, LinearLayer)
    return layer


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(2), dtype=torch.float64)


def _phi(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def naive(layer: LinearLayer, x: Tensor) -> Tensor:
    """One query and one head at a time. x: (T, D)."""
    dim = x.shape[-1] // layer.heads
    q, k, v = layer.qkv(x).unflatten(-1, (3, layer.heads, dim)).unbind(1)
    steps = []
    for i in range(len(x)):
        seen, heads = i + 1 if layer.causal else len(x), []
        for h in range(layer.heads):
            weights = _phi(k[:seen, h]) @ _phi(q[i, h])
            heads.append(weights @ v[:seen, h] / (weights.sum() + EPS))
        steps.append(torch.cat(heads))
    return layer.out(torch.stack(steps))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 69])
def test_equals_sums_over_pairs_in_value_and_gradient(bias: bool, causal: bool, length: int) -> None:
    layer = _layer(Linear(heads=2, bias=bias), 6, causal).double()
    twins.equal(layer, partial(naive, layer), (length, max(1, length // 2)), width=6, value=1e-10)


def test_an_average_where_all_keys_are_alike() -> None:
    layer = _layer(Linear(heads=1, bias=False), 4, True).double()
    with torch.no_grad():
        layer.qkv.weight[4:8] = 0
        layer.qkv.weight[8:] = torch.eye(4)
        layer.out.weight.copy_(torch.eye(4))
    x = _x(1, 90, 4)
    means = x.cumsum(1) / torch.arange(1, 91)[:, None]
    torch.testing.assert_close(layer(x), means, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_half_precision_stays_close(causal: bool) -> None:
    layer, x = _layer(Linear(heads=2), 8, causal), _x(1, 1000, 8).float()
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x)
    torch.testing.assert_close(half.float(), layer(x), rtol=0.05, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
def test_long_sequences_stay_exact(causal: bool) -> None:
    layer, x = _layer(Linear(heads=2), 8, causal), _x(1, 65536, 8).float().requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    exact = layer.double()(x.detach().double())
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-4)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(UserError, match="width 16 into 3 heads"):
        _layer(Linear(heads=3), 16, True)
