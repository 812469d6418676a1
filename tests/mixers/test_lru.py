"""The linear recurrent unit against orvieto2023's equations and initial values."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F

from levelfield.mixers.lru import LRU, LRULayer
from levelfield.spec import UserError


def _layer(config: LRU, width: int = 4, causal: bool = True) -> LRULayer:
    layer = config.build(width, causal=causal, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, LRULayer)
    return layer


def _equations(layer: LRULayer, x: Tensor) -> Tensor:
    a = torch.exp(torch.complex(-torch.exp(layer.log_decay), torch.exp(layer.log_phase)))
    drive = torch.exp(layer.log_gain)[:, None] * torch.view_as_complex(layer.drive)
    y = x * layer.skip
    for direction, readout in enumerate(torch.view_as_complex(layer.readout)):
        seen, state, outputs = x.flip(1) if direction else x, torch.zeros(len(x), len(a), dtype=a.dtype), []
        for t in range(x.shape[1]):
            state = a * state + seen[:, t].to(a.dtype) @ drive.T
            outputs.append((state @ readout.T).real)
        y = y + torch.stack(outputs[::-1] if direction else outputs, 1)
    value, gate = layer.output(F.gelu(y)).chunk(2, -1)
    return value * torch.sigmoid(gate)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 37])
def test_the_layer_is_the_papers_equations(causal: bool, length: int) -> None:
    layer = _layer(LRU(state=6), causal=causal).double()
    x = torch.randn(2, length, 4, dtype=torch.float64, generator=Generator().manual_seed(1))
    twins.unpadded(layer, partial(_equations, layer), x)


def test_padding_counts_as_zero_in_both_directions() -> None:
    layer = _layer(LRU(state=6), causal=False).double()
    x = torch.randn(2, 20, 4, dtype=torch.float64, generator=Generator().manual_seed(1))
    mask = torch.arange(20) < torch.tensor([[20], [13]])
    torch.testing.assert_close(layer(x, mask)[1:, :13], _equations(layer, x[1:, :13]), rtol=1e-9, atol=1e-10)


def test_it_starts_uniformly_on_the_ring() -> None:
    """Uniform in area: |lambda|^2 and the phase are uniform. B and C as in appendix A: 1 / (2 D) and 1 / N per part."""
    layer = _layer(LRU(state=4000, radius_min=0.4, radius_max=0.9, max_phase=1.0), width=16)
    square, phase = torch.exp(-2 * layer.log_decay.exp()), layer.log_phase.exp()
    for values, least, most in ((square, 0.16, 0.81), (phase, 0.0, 1.0)):
        assert least - 1e-6 <= values.min() and values.max() <= most + 1e-6
        even = torch.linspace(least, most, 4000)
        assert (values.sort().values - even).abs().max() < 1.95 * (most - least) / math.sqrt(4000)  # Kolmogorov, 0.1 %
    torch.testing.assert_close(layer.log_gain.exp(), torch.sqrt(1 - square), rtol=1e-4, atol=1e-5)
    assert layer.drive.square().mean().item() == pytest.approx(1 / 32, rel=0.03)
    assert layer.readout.square().mean().item() == pytest.approx(1 / 4000, rel=0.03)


def test_white_input_makes_states_of_one_size() -> None:
    """What gamma is for: the stationary variance is 1, however slow the state."""
    layer = _layer(LRU(state=64, radius_min=0.5, radius_max=0.98), width=64)
    with torch.no_grad():
        _, last = layer.states_and_output(torch.randn(128, 400, 64, generator=Generator().manual_seed(2)), None)
    size = last.abs().square().mean(0)
    assert size.mean().item() == pytest.approx(1, rel=0.05)
    assert size.min() > 0.4 and size.max() < 2


def test_the_whole_disc_has_finite_logarithms() -> None:
    layer = _layer(LRU(state=20000), width=2)
    assert all(torch.isfinite(p).all() for p in layer.parameters())


def test_own_rates_are_those_of_the_published_experiments() -> None:
    rules = LRU(lr=2e-4).param_rules()
    assert set(rules) == {"log_decay", "log_phase", "log_gain", "drive"}
    assert all(rule.weight_decay == 0 and rule.lr == 2e-4 for rule in rules.values())


@pytest.mark.parametrize(
    "bad", [LRU(state=0), LRU(radius_min=0.9, radius_max=0.9), LRU(radius_max=1.1), LRU(max_phase=7.0)]
)
def test_bad_settings(bad: LRU) -> None:
    with pytest.raises(UserError, match="LRU"):
        _layer(bad)


def test_long_sequences_and_mixed_precision() -> None:
    layer = _layer(LRU(state=8, radius_min=0.999, radius_max=0.9999), width=8)
    x = torch.randn(1, 65536, 8, generator=Generator().manual_seed(0))
    assert torch.isfinite(layer(x)).all()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(layer(x[:, :100])).all()
