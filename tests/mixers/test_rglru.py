"""The real-gated linear recurrent unit against de2024's equations, and against transformers."""

from __future__ import annotations

from functools import partial

import kept
import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F

from levelfield.mixers.rglru import RGLRU, RGLRULayer
from levelfield.spec import UserError


def _layer(config: RGLRU, width: int = 8) -> RGLRULayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, RGLRULayer)
    return layer


def _stirred(config: RGLRU, width: int = 8) -> RGLRULayer:
    layer = _layer(config, width).double()
    with torch.no_grad():
        for value in layer.parameters():
            value += 0.3 * torch.randn(value.shape, dtype=value.dtype, generator=Generator().manual_seed(1))
    return layer


def _equations(layer: RGLRULayer, x: Tensor) -> Tensor:
    """One step and one head at a time."""
    cells, u, state, outputs = layer.rg_lru, layer.linear_x(x), None, []
    taps, shift = layer.conv_1d.weight[:, 0], layer.conv_1d.bias
    assert shift is not None
    for t in range(x.shape[1]):
        v = shift + sum(taps[:, -1 - lag] * u[:, t - lag] for lag in range(min(t + 1, taps.shape[1])))
        parts = v.chunk(len(cells.input_gate_weight), -1)
        i, r = (
            torch.sigmoid(torch.cat([p @ w + b for p, w, b in zip(parts, *gate, strict=True)], -1))
            for gate in (
                (cells.input_gate_weight, cells.input_gate_bias),
                (cells.recurrent_gate_weight, cells.recurrent_gate_bias),
            )
        )
        a = torch.sigmoid(-cells.recurrent_param) ** (8 * r)
        state = i * v if state is None else a * state + torch.sqrt(1 - a**2) * (i * v)
        outputs.append(state)
    return layer.linear_out(F.gelu(layer.linear_y(x), approximate="tanh") * torch.stack(outputs, 1))


@pytest.mark.parametrize("config", [RGLRU(), RGLRU(heads=3, hidden=12, kernel=2), RGLRU(heads=1, kernel=1)], ids=str)
@pytest.mark.parametrize("length", [1, 2, 33])
def test_the_layer_is_the_papers_equations(config: RGLRU, length: int) -> None:
    layer = _stirred(config)
    x = torch.randn(2, length, 8, dtype=torch.float64, generator=Generator().manual_seed(2))
    twins.unpadded(layer, partial(_equations, layer), x)


@kept.modes
def test_weights_of_recurrentgemma_load_by_name_and_compute_the_same(mode: kept.Mode) -> None:
    theirs = kept.case("recurrentgemma_block", mode)
    ours = _layer(RGLRU(heads=4, hidden=24), width=16)
    ours.load_state_dict(theirs.weights)
    torch.testing.assert_close(ours(theirs["x"], None), theirs["y"], rtol=1e-4, atol=1e-4)


def test_decays_start_evenly_between_their_bounds() -> None:
    layer = _layer(RGLRU(heads=4, decay_min=0.9, decay_max=0.999), width=4000)
    decay = torch.sigmoid(-layer.rg_lru.recurrent_param.double()) ** 8  # a^c with Lambda's sign as in the released code
    assert decay.min() >= 0.9 - 1e-5 and decay.max() <= 0.999 + 1e-5
    even = torch.linspace(0.9, 0.999, 4000, dtype=torch.float64)
    assert (decay.sort().values - even).abs().max() < 1.95 * 0.099 / 4000**0.5  # Kolmogorov, 0.1 %


def test_initial_variances_are_the_released_codes() -> None:
    layer = _layer(RGLRU(heads=4, hidden=128, out_scale=0.5), width=64)
    for weight, variance in (
        (layer.linear_x.weight, 1 / 64),
        (layer.linear_y.weight, 1 / 64),
        (layer.linear_out.weight, 0.5 / 128),
        (layer.conv_1d.weight, 0.01 / 4),
        (layer.rg_lru.input_gate_weight, 1 / 32),
        (layer.rg_lru.recurrent_gate_weight, 1 / 32),
    ):
        assert weight.square().mean().item() == pytest.approx(variance, rel=0.2 if weight.numel() < 1000 else 0.06)
    assert all(not value.any() for name, value in layer.named_parameters() if "bias" in name)


@pytest.mark.parametrize(
    "bad", [RGLRU(heads=3), RGLRU(heads=0), RGLRU(kernel=0), RGLRU(decay_min=0.9, decay_max=0.9), RGLRU(decay_max=1.0)]
)
def test_bad_settings(bad: RGLRU) -> None:
    with pytest.raises(UserError, match="RGLRU"):
        _layer(bad)


def test_long_sequences_and_mixed_precision() -> None:
    layer = _layer(RGLRU())
    x = torch.randn(1, 65536, 8, generator=Generator().manual_seed(0)).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        layer(x[:, :100]).sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    assert torch.isfinite(layer(x)).all()
