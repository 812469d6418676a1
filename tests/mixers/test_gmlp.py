"""The gated free convolution against an explicit Toeplitz matrix, and its bound."""

from __future__ import annotations

import pytest
import torch
import twins
from torch import Tensor
from torch.nn import functional as F

from levelfield.mixers.gmlp import GMLP, GMLPLayer
from levelfield.spec import UserError

WIDTH = 6


def _layer(config: GMLP, causal: bool, stir: bool = True) -> GMLPLayer:
    generator = torch.Generator().manual_seed(0)
    layer = config.build(WIDTH, causal=causal, layer=0, generator=generator).double()
    assert isinstance(layer, GMLPLayer)
    if stir:
        # Kernels of 1e-5 would hide a wrong tap behind the bias.
        with torch.no_grad():
            layer.kernel.copy_(torch.randn(layer.kernel.shape, generator=generator))
            layer.bias.copy_(torch.randn(layer.bias.shape, generator=generator))
    return layer


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def gmlp_naive(layer: GMLPLayer, x: Tensor, causal: bool) -> Tensor:
    """One (T, T) matrix per hidden channel, its entries read from the kernel by distance. (T, D) -> (T, D)."""
    length, channels = len(x), len(layer.kernel)
    gate, value = F.gelu(layer.gate(x)), F.gelu(layer.value(x))
    columns = []
    for h in range(value.shape[1]):
        kernel = layer.kernel[h % channels]
        matrix = torch.zeros(length, length, dtype=x.dtype)
        for t in range(length):
            for s in range(t + 1 if causal else length):
                matrix[t, s] = kernel[t - s if causal else layer.bound + t - s]
        columns.append(matrix @ value[:, h] + layer.bias[h % channels])
    return layer.out(gate * layer.norm(torch.stack(columns, 1)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 7, 11])
@pytest.mark.parametrize("config", [GMLP(8, 2, bound=11), GMLP(6, 6, bound=16), GMLP(5, 1, bound=12)], ids=str)
def test_value_and_gradient_equal_the_toeplitz_matrix(config: GMLP, length: int, causal: bool) -> None:
    layer = _layer(config, causal)
    twins.unpadded(layer, lambda z: gmlp_naive(layer, z[0], causal)[None], _normal(1, length, WIDTH))


def test_padding_counts_as_nothing() -> None:
    layer, x = _layer(GMLP(8, 2, bound=20), False), _normal(1, 9, WIDTH)
    torch.testing.assert_close(layer(x, torch.arange(9)[None] < 6)[:, :6], layer(x[:, :6]))


def test_the_gate_starts_nearly_closed() -> None:
    """Kernel N(0, 1e-10) and bias 1 leave the norm little to see, so a fresh layer is close to its output bias."""
    layer = _layer(GMLP(256, 2, bound=1024), False, stir=False)
    assert layer.kernel.std().item() == pytest.approx(1e-5, rel=0.05)
    assert layer.bias.eq(1).all()
    y = layer(_normal(2, 300, WIDTH))
    assert (y - layer.out.bias).abs().max() < 0.1


def test_beyond_the_bound_it_fails_with_the_remedy() -> None:
    config = GMLP(8, 2, bound=16)
    layer = _layer(config, False)
    assert config.max_length == 16
    assert layer(_normal(1, 16, WIDTH)).shape == (1, 16, WIDTH)
    with pytest.raises(UserError, match=r"at most 16 steps, not 17: raise GMLP\(bound"):
        layer(_normal(1, 17, WIDTH))


@pytest.mark.parametrize("config", [GMLP(8, 3), GMLP(8, 0), GMLP(8, 2, bound=0)], ids=str)
def test_impossible_sizes_are_refused(config: GMLP) -> None:
    with pytest.raises(UserError):
        _layer(config, False)


@pytest.mark.parametrize(
    "depth, channels, bound, classes, symbols, printed",
    [(10, 2, 1024, 10, 259, 1_072_562), (6, 4, 2000, 10, 17, 697_786)],
    ids=["gray CIFAR-10", "ListOps"],
)
def test_parameters_match_the_count_of_the_published_sizes(
    depth: int, channels: int, bound: int, classes: int, symbols: int, printed: int
) -> None:
    """Embedding, `depth` layers with their norm, one linear classifier (reference code of miralles2025)."""
    layer = GMLP(256, channels, bound).build(128, causal=False, layer=0, generator=torch.Generator())
    inside = sum(p.numel() for p in layer.parameters()) + 2 * 128
    assert symbols * 128 + depth * inside + 129 * classes == printed


def test_steps_beyond_the_bound_are_refused_from_a_state_on_too() -> None:
    layer, x = _layer(GMLP(8, 2, bound=5), True), _normal(1, 4, WIDTH)
    _, state = layer.step(x, None)
    _, state = layer.step(x[:, :1], state)
    with pytest.raises(UserError, match="at most 5 steps, not 6"):
        layer.step(x[:, :1], state)
