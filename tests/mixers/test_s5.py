"""S5 against smith2023's equations written out with full matrices, and against the published code's initial values."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F

from levelfield.mixers.s5 import S5, S5Layer
from levelfield.ops.ssm.hippo import legs_matrices
from levelfield.spec import UserError

FORMS = (
    S5(state=6),
    S5(state=8, blocks=2, activation="half_glu2", readout_init="complex_normal"),
    S5(state=4, activation="full_glu", readout_init="trunc_standard_normal"),
    S5(state=4, activation="gelu", clip=True),
)


def _layer(config: S5, width: int = 4, causal: bool = True) -> S5Layer:
    layer = config.build(width, causal=causal, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, S5Layer)
    return layer


def _equations(layer: S5Layer, x: Tensor) -> Tensor:
    """Both members of every conjugate pair, step by step: no halves, no real matrices, no scan."""
    poles = torch.complex(layer.decay, layer.frequency)
    poles = torch.cat([poles, poles.conj()])
    drive = torch.view_as_complex(layer.drive)
    drive = torch.cat([drive, drive.conj()])
    dt = layer.log_dt.exp().repeat(2)
    a, b = torch.exp(dt * poles), ((torch.exp(dt * poles) - 1) / poles)[:, None] * drive
    y = x * layer.skip
    for direction, half in enumerate(torch.view_as_complex(layer.readout)):
        readout = torch.cat([half, half.conj()], 1)
        seen, state, outputs = x.flip(1) if direction else x, torch.zeros(len(x), len(a), dtype=a.dtype), []
        for t in range(x.shape[1]):
            state = a * state + seen[:, t].to(a.dtype) @ b.T
            outputs.append(state @ readout.T)
        total = torch.stack(outputs[::-1] if direction else outputs, 1)
        assert total.imag.abs().max() < 1e-9  # the pairs cancel
        y = y + total.real
    return _activation(layer, y)


def _activation(layer: S5Layer, y: Tensor) -> Tensor:
    g = F.gelu(y)
    if layer.config.activation == "gelu":
        return g
    gate = layer.gate(g)
    if layer.config.activation == "full_glu":
        return gate[..., :4] * torch.sigmoid(gate[..., 4:])
    return (g if layer.config.activation == "half_glu1" else y) * torch.sigmoid(gate)


@pytest.mark.parametrize("config", FORMS, ids=str)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 37])
def test_the_layer_is_the_papers_equations(config: S5, causal: bool, length: int) -> None:
    layer = _layer(config, causal=causal).double()
    x = torch.randn(2, length, 4, dtype=torch.float64, generator=Generator().manual_seed(1))
    twins.unpadded(layer, partial(_equations, layer), x)


def test_padding_counts_as_zero_in_both_directions() -> None:
    layer = _layer(S5(state=6), causal=False).double()
    x = torch.randn(2, 20, 4, dtype=torch.float64, generator=Generator().manual_seed(1))
    mask = torch.arange(20) < torch.tensor([[20], [13]])
    expected = _equations(layer, x[1:, :13])
    torch.testing.assert_close(layer(x, mask)[1:, :13], expected, rtol=1e-9, atol=1e-10)


def test_poles_are_those_of_hippos_normal_part_in_blocks() -> None:
    layer = _layer(S5(state=24, blocks=3))
    a, _ = legs_matrices(8)
    p = torch.sqrt(torch.arange(8, dtype=torch.float64) + 0.5)
    expected = torch.linalg.eigvals(a + torch.outer(p, p))
    upper = expected[expected.imag > 0].imag.sort().values.float()
    for block in layer.frequency.detach().split(4):
        torch.testing.assert_close(block.sort().values, upper, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer.decay, torch.full((12,), -0.5))


@pytest.mark.parametrize(
    "name, spread", [("lecun_normal", 1 / 256**0.5), ("trunc_standard_normal", 1.0), ("complex_normal", None)]
)
def test_initial_sizes_are_those_of_the_published_code(name: str, spread: float | None) -> None:
    """V is unitary over both members of a pair, so B keeps half of its 128 x 256 / 128, and so on. Measured on the
    published code with P = 128, D = 256, two blocks: B 0.0626, C 0.00553, 0.0880 and 0.706 per real number."""
    layer = _layer(S5(state=128, blocks=2, readout_init=name), width=256)  # pyright: ignore[reportArgumentType]
    assert layer.drive.square().sum().item() == pytest.approx(128, rel=0.03)
    each = 0.5 if spread is None else spread**2 / 128
    assert layer.readout.square().mean().item() == pytest.approx(each, rel=0.03)
    steps = layer.log_dt.detach().exp()
    assert 1e-3 <= steps.min() < 2e-3 and 5e-2 < steps.max() <= 1e-1
    assert layer.log_dt.mean().item() == pytest.approx((math.log(1e-3) + math.log(1e-1)) / 2, abs=0.5)


def test_clipped_poles_stay_left_of_the_axis() -> None:
    layer = _layer(S5(state=4, clip=True))
    with torch.no_grad():
        layer.decay.fill_(3.0)
    assert (layer.stepped()[0].abs() < 1).all()
    assert torch.isfinite(layer(torch.randn(1, 4000, 4, generator=Generator().manual_seed(0)))).all()


def test_own_rates_are_those_of_the_published_optimiser() -> None:
    """ "standard" keeps B with lambda and dt; "BfastandCdecay" moves it to the others. C and d are always with them."""
    assert set(S5().param_rules()) == {"decay", "frequency", "log_dt", "drive"}
    assert set(S5(drive_follows=True).param_rules()) == {"decay", "frequency", "log_dt"}
    assert all(rule.weight_decay == 0 and rule.lr == 1e-3 for rule in S5().param_rules().values())


@pytest.mark.parametrize("bad", [S5(state=7), S5(state=8, blocks=3), S5(state=0), S5(blocks=0), S5(dt_min=0.2)])
def test_bad_sizes(bad: S5) -> None:
    with pytest.raises(UserError, match="S5"):
        _layer(bad)


def test_long_sequences_and_mixed_precision() -> None:
    layer = _layer(S5(state=8), width=8)
    x = torch.randn(1, 65536, 8, generator=Generator().manual_seed(0))
    assert torch.isfinite(layer(x)).all()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(layer(x[:, :100])).all()
