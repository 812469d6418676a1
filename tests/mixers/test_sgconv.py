"""The multi-scale kernel against its formula tap by tap, the layer against explicit sums, and its bound."""

from __future__ import annotations

import math

import pytest
import torch
import twins
from torch import Tensor
from torch.nn import functional as F

from levelfield.mixers.sgconv import SGConv, SGConvLayer
from levelfield.ops.conv.fft import conv_last, naive_conv
from levelfield.ops.conv.upsample import upsample
from levelfield.spec import UserError

WIDTH = 5
CONFIGS = (SGConv(4, bound=32), SGConv(3, bound=19, decay_min=1.0, decay_max=3.0), SGConv(64, bound=20))


def _layer(config: SGConv, causal: bool) -> SGConvLayer:
    layer = config.build(WIDTH, causal=causal, layer=0, generator=torch.Generator().manual_seed(0)).double()
    assert isinstance(layer, SGConvLayer)
    return layer


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def naive_tap(values: Tensor, decay: float, tap: int) -> Tensor:
    """Equation 1 of li2022 at one tap, before it is normalised. values: (S, P) of one feature."""
    points = values.shape[1]
    scale = 0 if tap < points else 1 + int(math.log2(tap // points))
    times = 1 << max(0, scale - 1)
    inside = tap - (0 if scale == 0 else points << (scale - 1))
    place = min(max((inside + 0.5) / times - 0.5, 0), points - 1)  # in units of the samples' centres
    low = min(int(place), max(0, points - 2))
    high = min(low + 1, points - 1)
    return ((1 - (place - low)) * values[scale, low] + (place - low) * values[scale, high]) / decay**scale


def naive_kernel(layer: SGConvLayer, length: int) -> Tensor:
    """(1 or 2, D, length)."""
    ways, _, _, width = layer.samples.shape
    rows = [
        torch.stack([naive_tap(layer.samples[w, :, :, c], float(layer.decay[c]), t) for t in range(length)])
        for w in range(ways)
        for c in range(width)
    ]
    return torch.stack(rows).view(ways, width, length) / layer.norm[:, 0, 0, :, None]


def sgconv_naive(layer: SGConvLayer, x: Tensor) -> Tensor:
    """A sum for each step: (T, D) -> (T, D)."""
    kernel, length = naive_kernel(layer, len(x)), len(x)
    steps = []
    for t in range(length):
        y = layer.skip * x[t]
        for s in range(length if len(kernel) == 2 else t + 1):
            y = y + (kernel[0, :, t - s] if s <= t else kernel[1, :, s - t - 1]) * x[s]
        steps.append(F.gelu(y))
    return F.glu(layer.output(torch.stack(steps)), dim=-1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 7, 17])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_value_and_gradient_equal_the_sums(config: SGConv, length: int, causal: bool) -> None:
    layer = _layer(config, causal)
    twins.unpadded(layer, lambda z: sgconv_naive(layer, z[0])[None], _normal(1, length, WIDTH))


@pytest.mark.parametrize("times", [1, 2, 4, 16])
@pytest.mark.parametrize("points", [1, 2, 7])
def test_upsampling_is_torchs_interpolation(points: int, times: int) -> None:
    samples = _normal(points, 3)
    whole = F.interpolate(samples.T[None], scale_factor=times, mode="linear")[0].T
    for length in (1, points * times // 2 + 1, points * times, 1000):
        torch.testing.assert_close(upsample(samples, times, length), whole[:length])


@pytest.mark.parametrize("steps", [1, 2, 9])
@pytest.mark.parametrize("taps", [3, 9, 20])
def test_the_last_steps_of_a_convolution(steps: int, taps: int) -> None:
    u, kernel = _normal(2, 6, 9), _normal(3, taps)
    torch.testing.assert_close(conv_last(u, kernel, steps), naive_conv(u, kernel)[..., -steps:])


def test_every_kernel_starts_with_norm_one_and_shorter_ones_are_its_beginning() -> None:
    layer = _layer(SGConv(8, bound=100, decay_min=1.5, decay_max=2.5), False)
    whole = layer.kernel(layer.reach)
    assert layer.reach == 128
    torch.testing.assert_close(whole.norm(dim=-1), torch.ones(2, WIDTH).double(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(layer.kernel(37), whole[..., :37])


def test_later_scales_fade_by_the_decay() -> None:
    """Root mean squares of whole scales fall by 2, and more where values lie between samples and average them."""
    layer = SGConv(64, bound=1024).build(256, causal=True, layer=0, generator=torch.Generator().manual_seed(1))
    assert isinstance(layer, SGConvLayer)
    kernel = layer.kernel(1024)[0]
    sizes = [kernel[:, 64 << s : 128 << s].square().mean().sqrt().item() for s in range(4)]
    first = kernel[:, :64].square().mean().sqrt().item()
    assert first / sizes[0] == pytest.approx(2, rel=0.05)
    for near, far, smooth in zip(sizes, sizes[1:], (0.625, 0.65625 / 0.625, 1.0), strict=False):
        assert near / far == pytest.approx(2 / smooth**0.5, rel=0.08)


def test_padding_counts_as_nothing() -> None:
    layer, x = _layer(CONFIGS[0], False), _normal(1, 9, WIDTH)
    torch.testing.assert_close(layer(x, torch.arange(9)[None] < 6)[:, :6], layer(x[:, :6]))


def test_the_norm_is_saved_with_the_weights() -> None:
    layer, other = _layer(CONFIGS[0], True), _layer(CONFIGS[0], True)
    with torch.no_grad():
        layer.samples.mul_(3)  # as if trained: the norm stays that of the start
        other.norm.fill_(7)
    other.load_state_dict(layer.state_dict())
    x = _normal(1, 9, WIDTH)
    torch.testing.assert_close(other(x), layer(x))


def test_rates_are_the_sources() -> None:
    """The published code gives the kernel's values a rate of 0.001 and no weight decay of their own."""
    (rule,) = SGConv().param_rules().values()
    assert (rule.lr, rule.weight_decay) == (1e-3, None)


def test_beyond_the_bound_it_fails_with_the_remedy() -> None:
    config = SGConv(4, bound=9)
    layer = _layer(config, True)
    _, state = layer.step(_normal(1, 9, WIDTH), None)
    for call in (lambda: layer(_normal(1, 10, WIDTH)), lambda: layer.step(_normal(1, 1, WIDTH), state)):
        with pytest.raises(UserError, match=r"at most 9 steps, not 10: raise SGConv\(bound"):
            call()
    kernel = config.learned_kernel(layer, 30)
    assert kernel.shape == (WIDTH, 30) and kernel[:, 16:].eq(0).all() and kernel[:, 15].ne(0).all()


@pytest.mark.parametrize("config", [SGConv(0), SGConv(4, bound=0), SGConv(decay_min=0.0)], ids=str)
def test_impossible_sizes_are_refused(config: SGConv) -> None:
    with pytest.raises(UserError):
        _layer(config, False)


@pytest.mark.slow
def test_long_sequences_and_mixed_precision_stay_finite() -> None:
    layer = SGConv(32, bound=65536).build(8, causal=False, layer=0, generator=torch.Generator().manual_seed(0))
    x = torch.randn(1, 65536, 8, generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    y.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
