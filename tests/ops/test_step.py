"""Recurrences from a state on, against running them step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor

from levelfield.mixers.dlr import DLR
from levelfield.mixers.s4 import S4
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.ssm.dplr import bilinear, naive_dplr_kernel
from levelfield.ops.ssm.step import dense, step_dense, step_diagonal
from levelfield.spec import MixerConfig

LENGTHS = [1, 2, 63, 64, 65, 200]
CHANNELS, STATES = 3, 4


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def _complex(*shape: int, seed: int = 0) -> Tensor:
    return torch.view_as_complex(_normal(*shape, 2, seed=seed))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
def test_diagonal_is_its_recurrence(length: int, shared: bool, fresh: bool) -> None:
    shape = (STATES,) if shared else (CHANNELS, STATES)
    log_a = torch.complex(-0.1 * _normal(*shape).abs(), 3 * _normal(*shape, seed=1))
    weight, u = _complex(CHANNELS, STATES, seed=2), _normal(2, CHANNELS, length, seed=3)
    state = torch.zeros_like(_complex(2, CHANNELS, STATES)) if fresh else _complex(2, CHANNELS, STATES, seed=4)
    y, after = step_diagonal(log_a, weight, u, None if fresh else torch.view_as_real(state))
    for t in range(length):
        state = torch.exp(log_a) * state + u[:, :, t, None]
        torch.testing.assert_close(y[:, :, t], (weight * state).sum(-1).real, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(after, torch.view_as_real(state), rtol=1e-10, atol=1e-10)


def _system() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    poles = torch.complex(-_normal(CHANNELS, STATES).abs() - 0.1, 5 * _normal(CHANNELS, STATES, seed=1))
    low_rank, drive = _complex(CHANNELS, STATES, seed=2), _complex(CHANNELS, STATES, seed=3)
    return poles, low_rank, drive, torch.full((CHANNELS, 1), 0.1, dtype=torch.float64)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("fresh", [False, True])
def test_dense_is_its_recurrence(length: int, fresh: bool) -> None:
    *parts, start = bilinear(*_system())
    a, ends, u = dense(*parts), _normal(CHANNELS, 2 * STATES, seed=4), _normal(2, CHANNELS, length, seed=5)
    state = _normal(2, CHANNELS, 2 * STATES, seed=6) * (not fresh)
    y, after = step_dense(a, start, ends, u, None if fresh else state)
    for t in range(length):
        state = torch.einsum("hmn,bhn->bhm", a, state) + start * u[:, :, t, None]
        torch.testing.assert_close(y[:, :, t], (ends * state).sum(-1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(after, state, rtol=1e-10, atol=1e-10)


def test_dense_matrices_are_those_of_the_complex_pairs() -> None:
    poles, low_rank, drive, dt = _system()
    *parts, start = bilinear(poles, low_rank, drive, dt)
    readout = _complex(CHANNELS, STATES, seed=7)
    expected = naive_dplr_kernel(poles, low_rank, drive, readout, dt, 9)
    impulse = torch.zeros(1, CHANNELS, 9, dtype=torch.float64)
    impulse[..., 0] = 1
    y, _ = step_dense(dense(*parts), start, torch.cat([readout.real, -readout.imag], -1), impulse, None)
    torch.testing.assert_close(y[0], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("config", [S4(state=16), S4(state=16, form="diagonal", init="lin"), DLR(state=16)], ids=str)
def test_float32_stays_close_over_thousands_of_steps(config: MixerConfig) -> None:
    layer = config.build(4, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, RecurrentLayer)
    x = _normal(1, 4000, 4).float()
    with torch.no_grad():
        whole, state, parts = layer(x), None, []
        for piece in x.split(777, dim=1):
            y, state = layer.step(piece, state)
            parts.append(y)
    assert (torch.cat(parts, 1) - whole).abs().max() < 1e-4 * whole.abs().max()
