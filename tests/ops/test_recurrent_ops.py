"""What recurrent layers are made of, against torch's own operations or the recurrence itself, and at block borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Generator, Tensor

from levelfield.ops.conv import short
from levelfield.ops.layers import gated_norm
from levelfield.ops.ssm import selective


def _leaves(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    draw = Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_() for shape in shapes]


def _results(function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor]) -> list[Tensor]:
    """What comes out, and the gradients of all that went in."""
    out = function(*inputs)
    pulls = [pull.detach() for pull in _leaves(*(tuple(y.shape) for y in out), seed=7)]
    return [*out, *torch.autograd.grad(out, list(inputs), pulls)]


def _same(one: Sequence[Tensor], other: Sequence[Tensor]) -> None:
    for found, expected in zip(one, other, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("length, taps", [(17, 4), (1, 4), (2, 4), (5, 1), (9, 2), (130, 3)])
def test_short_convolutions_are_torchs(length: int, taps: int) -> None:
    inputs = _leaves((2, length, 6), (6, 1, taps), (6,), (2, taps - 1, 6))
    _same(_results(short.short_conv, inputs), _results(short.naive_short_conv, inputs))
    torch.testing.assert_close(
        short.short_conv(inputs[0], inputs[1], None)[0], short.naive_short_conv(inputs[0], inputs[1], None)[0]
    )


@pytest.mark.parametrize("block", [1 << 16, 30])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("weight", [(3, 4), (4,)])
def test_gated_norms_are_torchs(
    first: bool, weight: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gated_norm, "CPU_BLOCK_ELEMENTS", block)
    inputs = _leaves((2, 7, 3, 4), (2, 7, 3, 4), weight)
    ours = _results(lambda y, gate, by: (gated_norm.gated_norm(y, gate, by, first),), inputs)
    _same(ours, _results(lambda y, gate, by: (gated_norm.naive_gated_norm(y, gate, by, first),), inputs))


@pytest.mark.parametrize("block", [1 << 17, 60, 12])
@pytest.mark.parametrize("length", [1, 37])
def test_selective_scans_are_the_recurrence(length: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rows and steps of a block are few."""
    monkeypatch.setattr(selective, "CPU_BLOCK_ELEMENTS", block)
    x, dt, a, b, c, state = _leaves((3, length, 4), (3, length, 4), (4, 3), (3, length, 3), (3, length, 3), (3, 4, 3))
    inputs = [x, dt.detach().square().requires_grad_(), (-a.detach().exp()).requires_grad_(), b, c, state]
    _same(_results(selective.selective_scan, inputs), _results(selective.naive_selective_scan, inputs))


def test_selective_scans_keep_single_precision_at_any_decay() -> None:
    x, dt, a, b, c = (part.detach().float() for part in _leaves((2, 90, 4), (2, 90, 4), (4, 3), (2, 90, 3), (2, 90, 3)))
    inputs = [x, 100 * dt.pow(4), -a.exp(), b, c]
    y, state = selective.selective_scan(*inputs)
    exact, last = selective.naive_selective_scan(*(part.double() for part in inputs))
    assert y.dtype == torch.float32
    assert (y - exact).abs().max() < 1e-6 * exact.abs().max()
    assert (state - last).abs().max() < 1e-6 * last.abs().max()


def test_first_steps_are_log_uniform() -> None:
    draw = torch.nn.functional.softplus(selective.step_bias(20000, 1e-3, 1e-1, Generator().manual_seed(0)))
    assert draw.min() >= 1e-3 * (1 - 1e-4) and draw.max() <= 1e-1 * (1 + 1e-4)
    for share in (0.25, 0.5, 0.75):
        assert (draw < 10 ** (-3 + 2 * share)).float().mean().item() == pytest.approx(share, abs=0.02)
