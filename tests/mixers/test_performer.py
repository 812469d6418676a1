"""Performer against its equation over pairs, and its features against the softmax kernel that they estimate."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor

from levelfield.mixers.performer import Performer, PerformerLayer, orthogonal_rows
from levelfield.spec import UserError


def _layer(config: Performer, width: int, causal: bool) -> PerformerLayer:
    layer = config.build(width, causal=causal, layer=0, generator=Generator().manual_seed(1))
    assert isinstance(layer, PerformerLayer)
    return layer


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(2), dtype=torch.float64)


def naive(layer: PerformerLayer, x: Tensor) -> Tensor:
    """One query and one head at a time, in plain exponentials. x: (T, D)."""
    dim = x.shape[-1] // layer.heads
    q, k, v = layer.qkv(x).unflatten(-1, (3, layer.heads, dim)).unbind(1)

    def phi(z: Tensor) -> Tensor:
        z = z / dim**0.25
        return torch.exp(z @ layer.random.T - z.pow(2).sum(-1, keepdim=True) / 2) / math.sqrt(len(layer.random))

    q, k, steps = phi(q), phi(k), []
    for i in range(len(x)):
        seen, heads = i + 1 if layer.causal else len(x), []
        for h in range(layer.heads):
            weights = k[:seen, h] @ q[i, h]
            heads.append(weights @ v[:seen, h] / weights.sum())
        steps.append(torch.cat(heads))
    return layer.out(torch.stack(steps))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 69])
def test_equals_sums_over_pairs_in_value_and_gradient(bias: bool, causal: bool, length: int) -> None:
    layer, lengths = (
        _layer(Performer(heads=2, features=5, bias=bias), 6, causal).double(),
        (length, max(1, length // 2)),
    )
    twins.equal(layer, partial(naive, layer), lengths, width=6, size=3.0, gradient=(1e-8, 1e-8))


def test_rows_are_orthogonal_within_blocks_and_normal_by_themselves() -> None:
    rows = orthogonal_rows(20_003, 8, Generator().manual_seed(0)).double()
    assert rows.shape == (20_003, 8)
    blocks = rows[:20_000].unflatten(0, (-1, 8))
    products = blocks @ blocks.mT
    assert (products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))).abs().max() < 1e-4
    # Means of a standard normal have an error of 0.007 here, variances one of 0.01, the fourth moment (3) one of 0.07.
    assert rows.mean(0).abs().max() < 0.03
    assert (rows.var(0) - 1).abs().max() < 0.05
    assert (rows.pow(4).mean(0) - 3).abs().max() < 0.3


def test_many_features_give_softmax_attention() -> None:
    layer = _layer(Performer(heads=1, features=60_000), 4, False).double()
    x = _x(1, 9, 4)
    q, k, v = layer.qkv(x).chunk(3, -1)
    exact = layer.out(torch.nn.functional.scaled_dot_product_attention(q, k, v))
    torch.testing.assert_close(layer(x), exact, rtol=0.02, atol=0.01)


def test_features_are_saved_and_not_trained() -> None:
    layer = _layer(Performer(heads=2, features=5), 6, True)
    assert "random" in layer.state_dict() and "random" not in dict(layer.named_parameters())
    before = layer.random.clone()
    layer.train()(_x(1, 5, 6).float())
    assert torch.equal(layer.random, before)


@pytest.mark.parametrize("causal", [True, False])
def test_large_keys_and_half_precision_stay_finite(causal: bool) -> None:
    """Plain exponentials of such keys are all zero in float32, which would leave 0 / 0."""
    layer = _layer(Performer(heads=2, features=16), 16, causal)
    x = 60 * _x(2, 150, 16).float()
    x[:, 70] *= 3
    x.requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    assert x.grad is not None and torch.isfinite(y).all() and torch.isfinite(x.grad).all()
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x[:, :, :] / 60)
    torch.testing.assert_close(half.float(), layer(x / 60), rtol=0.1, atol=0.05)


def in_logarithms(layer: PerformerLayer, x: Tensor) -> Tensor:
    """As `naive`, where no weight can overflow or vanish: shares of keys are a softmax of logarithms. x: (T, D)."""
    dim = x.shape[-1] // layer.heads
    q, k, v = layer.qkv(x).unflatten(-1, (3, layer.heads, dim)).transpose(0, 2).unbind(1)  # (H, T, d) each
    q, k = ((z @ layer.random.T - z.square().sum(-1, keepdim=True) / 2) for z in (q / dim**0.25, k / dim**0.25))
    weights = torch.logsumexp(q[:, :, None] + k[:, None], -1)
    if layer.causal:
        weights = weights.masked_fill(torch.ones_like(weights[0], dtype=torch.bool).triu(1), -math.inf)
    return layer.out((weights.softmax(-1) @ v).transpose(0, 1).flatten(1))


@pytest.mark.parametrize(
    ("spread", "causal"), [(0.5, True), (5, True), (7, True), (0.5, False), (8, False), (40, False)]
)
def test_queries_whose_largest_features_are_small_ones_of_all_keys_are_right(spread: float, causal: bool) -> None:
    """Their denominators are far below the product of the largest features of a query and of all keys."""
    layer = _layer(Performer(heads=2, features=64), 32, causal)
    with torch.no_grad():
        spreads = layer.qkv(_x(200, 32).float())[:, :64].std()
        layer.qkv.weight[:64] *= spread / spreads
    x = _x(2, 200, 32).float().requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    exact_x = x.detach().double().requires_grad_()
    exact = torch.stack([in_logarithms(layer.double(), row) for row in exact_x])
    exact.square().sum().backward()
    torch.testing.assert_close(y.double(), exact, rtol=1e-3, atol=1e-3)
    assert x.grad is not None and exact_x.grad is not None
    assert (x.grad - exact_x.grad).norm() < 0.01 * exact_x.grad.norm()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [1.0, 60.0, 1e4])
def test_gradients_are_finite_for_a_row_that_is_all_padding_and_for_huge_inputs(causal: bool, size: float) -> None:
    """A loss that is scaled by 2^16 for half precision is among them."""
    layer = _layer(Performer(heads=2, features=16), 16, causal)
    x = (size * _x(3, 150, 16).float()).requires_grad_()
    mask = torch.ones(3, 150, dtype=torch.bool)
    mask[0], mask[1, 40:] = False, False
    y = layer(x, mask)
    (2**16 * y.square().sum()).backward()
    assert x.grad is not None and torch.isfinite(y).all() and torch.isfinite(x.grad).all()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
def test_long_sequences_stay_exact(causal: bool) -> None:
    layer, x = _layer(Performer(heads=2, features=8), 8, causal), _x(1, 65536, 8).float().requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    exact = layer.double()(x.detach().double())
    torch.testing.assert_close(y.double(), exact, rtol=1e-3, atol=1e-3)


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(UserError, match="width 16 into 3 heads"):
        _layer(Performer(heads=3), 16, True)
    with pytest.raises(UserError, match="features=0"):
        _layer(Performer(features=0), 16, True)
