"""Forgetting attention against its paper's equations, and against attention and ALiBi, which it is at some gates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.alibi import slopes
from levelfield.mixers.attention import Attention, AttentionLayer
from levelfield.mixers.fox import FoX, FoXLayer
from levelfield.ops.attention.forgetting import BLOCK, attend_forgetting, naive_attend_forgetting
from levelfield.ops.attention.softmax import attend_alibi
from levelfield.spec import UserError

LONG = 2 * BLOCK + 37


def _inputs(queries: int, keys: int, strength: float) -> list[Tensor]:
    """q, k, v and log_forget in float64; gates are spread, few as closed as exp(-strength)."""
    draw, heads, dim = Generator().manual_seed(0), 2, 3
    shapes = ((2, heads, queries, dim), (2, heads, keys, dim), (2, heads, keys, dim))
    parts = [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]
    return [*parts, -strength * torch.rand(2, heads, keys, generator=draw, dtype=torch.float64) ** 3]


def _results(attend: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """y, and the gradients of everything that goes in."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = attend(*leaves)
    pull = torch.randn(y.shape, generator=Generator().manual_seed(9), dtype=torch.float64).to(y.dtype)
    return [y, *torch.autograd.grad(y, leaves, pull)]


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (7, 7), (LONG, LONG), (1, 40), (BLOCK + 5, LONG)])
@pytest.mark.parametrize("strength", [0.1, 300.0])
def test_blocks_of_queries_are_the_matrix_of_all_pairs(queries: int, keys: int, strength: float) -> None:
    inputs = _inputs(queries, keys, strength)
    pairs = zip(_results(attend_forgetting, inputs), _results(naive_attend_forgetting, inputs), strict=True)
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("strength", [1e-3, 1.0, 1e4])
def test_single_precision_keeps_its_digits(strength: float) -> None:
    """Running sums reach a million here, where a float32 counts in sixteenths."""
    inputs = [x.float() for x in _inputs(LONG, LONG, strength)]
    exact = _results(naive_attend_forgetting, [x.double() for x in inputs])
    for found, expected in zip(_results(attend_forgetting, inputs), exact, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).abs().max() <= 1e-5 * expected.abs().max() + 1e-20


def test_constant_gates_are_alibi() -> None:
    q, k, v, _ = _inputs(LONG, LONG, 0.0)
    gates = -slopes(2).double()
    y = attend_forgetting(q, k, v, gates[:, None].expand(2, 2, LONG))
    torch.testing.assert_close(y, attend_alibi(q, k, v, None, True, slopes=-gates), rtol=1e-10, atol=1e-10)


def _build(config: FoX, width: int = WIDTH) -> FoXLayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, FoXLayer)
    return layer


@pytest.mark.parametrize("rotary", ["none", "per_head"])
def test_open_gates_are_attention_and_shut_ones_leave_the_present(rotary: str) -> None:
    layer = _build(FoX(heads=2, rotary="per_head" if rotary == "per_head" else "none")).double()
    plain = Attention(heads=2, rotary=layer.config.rotary, bias=False)
    twin = plain.build(WIDTH, causal=True, layer=0, generator=Generator()).double()
    assert isinstance(twin, AttentionLayer)
    x = torch.randn(2, 30, WIDTH, generator=Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        twin.qkv.weight.copy_(layer.qkv.weight)
        twin.out.weight.copy_(layer.out.weight)
        layer.forget.bias.fill_(1e9)
        torch.testing.assert_close(layer(x), twin(x), rtol=1e-10, atol=1e-10)
        layer.forget.bias.fill_(-1e6)
        torch.testing.assert_close(layer(x), layer.out(layer.qkv(x).chunk(3, -1)[2]), rtol=1e-10, atol=1e-10)


def _by_hand(layer: FoXLayer, x: Tensor) -> Tensor:
    """Section 3 pair by pair: a product of gates beside each weight before it is normalised. x: (T, D)."""
    heads, width = layer.config.heads, x.shape[1]
    q, k, v = (x @ w.T + (0 if layer.qkv.bias is None else b) for w, b in _thirds(layer))
    gates = torch.sigmoid(x @ layer.forget.weight.T + layer.forget.bias)
    dim, steps = width // heads, []
    for i in range(len(x)):
        out = []
        for h in range(heads):
            some = slice(h * dim, (h + 1) * dim)
            turned = (_turned(layer, part[:, some]) for part in (q, k))
            query, keys = turned
            weights = torch.stack(
                [gates[j + 1 : i + 1, h].prod() * (query[i] @ keys[j] / math.sqrt(dim)).exp() for j in range(i + 1)]
            )
            out.append(weights @ v[: i + 1, some] / weights.sum())
        steps.append(torch.cat(out))
    return F.linear(torch.stack(steps), layer.out.weight, layer.out.bias)


def _thirds(layer: FoXLayer) -> list[tuple[Tensor, Tensor]]:
    """Weights and biases of queries, keys and values; zeros for biases where there are none."""
    weights = layer.qkv.weight.chunk(3)
    biases = weights[0].new_zeros(3 * len(weights[0])) if layer.qkv.bias is None else layer.qkv.bias
    return list(zip(weights, biases.chunk(3), strict=True))


def _turned(layer: FoXLayer, part: Tensor) -> Tensor:
    """Queries or keys of a head, (T, d), as complex pairs of channels that turn with the step, if they do."""
    if layer.config.rotary == "none":
        return part
    pairs = torch.view_as_complex(part.unflatten(-1, (-1, 2)).contiguous())
    rates = 10000.0 ** (-torch.arange(pairs.shape[1], dtype=torch.float64) / pairs.shape[1])
    angles = torch.arange(len(part), dtype=torch.float64)[:, None] * rates
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


@pytest.mark.parametrize("config", [FoX(heads=2), FoX(heads=1, rotary="per_head", bias=True)], ids=str)
def test_the_layer_is_its_papers_equations(config: FoX) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (13, 4))


def test_sizes_are_those_of_attention_and_a_gate_for_each_head() -> None:
    layer = _build(FoX(), 64)
    assert sum(value.numel() for value in layer.parameters()) == 4 * 64**2 + 4 * 64 + 4


def test_finite_in_half_precision() -> None:
    twins.half(_build(FoX(heads=2)), 0.05)


def test_bad_sizes_are_one_sentence() -> None:
    with pytest.raises(UserError, match="into 3 heads"):
        _build(FoX(heads=3))
    with pytest.raises(UserError, match="pairs of channels"):
        _build(FoX(heads=8, rotary="per_head"))
