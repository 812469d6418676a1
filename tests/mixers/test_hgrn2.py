"""HGRN2 against its paper's equations, and the lower bounds of its forget gates."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.hgrn2 import HGRN2, HGRN2Layer
from levelfield.spec import UserError


def _build(config: HGRN2, layer: int = 0, width: int = WIDTH) -> HGRN2Layer:
    built = config.build(width, causal=True, layer=layer, generator=Generator().manual_seed(0))
    assert isinstance(built, HGRN2Layer)
    return built


def _by_hand(layer: HGRN2Layer, x: Tensor) -> Tensor:
    """Section 3: HGRN's gates with a lower bound, its input gate tied to them, and the outer product. x: (T, D)."""
    heads, width = layer.config.heads, x.shape[1]
    q, v = F.silu(x @ layer.q_proj.weight.T), x @ layer.i_proj.weight.T
    bound = torch.zeros(width).to(x) if layer.bound is None else torch.sigmoid(layer.bound)
    forget = bound + (1 - bound) * torch.sigmoid(x @ layer.f_proj.weight.T)
    size, rows = width // heads, []
    for h in range(heads):
        some, memory, out = slice(h * size, (h + 1) * size), x.new_zeros(size, size), []
        for t in range(len(x)):
            f = forget[t, some]
            memory = torch.diag(f) @ memory + torch.outer(1 - f, v[t, some])
            out.append(q[t, some] @ memory)
        rows.append(torch.stack(out))
    y = torch.cat(rows, 1)
    y = y / (y.square().mean(1, keepdim=True) + 1e-5).sqrt() * layer.norm_weight
    return y @ layer.o_proj.weight.T


@pytest.mark.parametrize(("config", "layer"), [(HGRN2(heads=2), 0), (HGRN2(heads=1, layers=3), 2), (HGRN2(heads=8), 5)])
def test_the_layer_is_its_papers_equations(config: HGRN2, layer: int) -> None:
    """With as many heads as channels it is HGRN, whose state is one number for each."""
    built = twins.stirred(_build(config, layer))
    twins.equal(built, partial(_by_hand, built), (21, 6))


def test_lower_bounds_rise_from_none_to_those_of_the_last_layer() -> None:
    starts = [_build(HGRN2(layers=4), layer).bound for layer in range(6)]
    assert starts[0] is None and _build(HGRN2(layers=1), 3).bound is None
    bounds = [torch.sigmoid(start).tolist() for start in starts[1:] if start is not None]
    assert bounds == [pytest.approx([value] * WIDTH) for value in (0.25, 0.5, 0.75, 0.75, 0.75)]


@pytest.mark.parametrize("layer", [1, 3])
def test_shut_gates_forget_no_faster_than_the_bound(layer: int) -> None:
    """What one step wrote is there t steps later times bound^t; nothing is written where gates stay open."""
    built = _build(HGRN2(heads=1, layers=4), layer).double()
    key, log_forget = built._gates(torch.full((WIDTH,), -1e6, dtype=torch.float64))
    torch.testing.assert_close(log_forget.exp(), torch.full_like(log_forget, layer / 4))
    torch.testing.assert_close(key, 1 - log_forget.exp())
    key, log_forget = built._gates(torch.full((WIDTH,), 40.0, dtype=torch.float64))
    assert (key > 0).all() and (key < 1e-16).all() and (log_forget <= 0).all()


def test_sizes_and_state_are_the_papers() -> None:
    layer = _build(HGRN2(), 1, 64)
    assert sum(value.numel() for value in layer.parameters()) == 4 * 64**2 + 2 * 64
    assert HGRN2().state_size(64, 100) == 64 * 16


@pytest.mark.parametrize("layer", [0, 11])
def test_finite_in_half_precision(layer: int) -> None:
    twins.half(_build(HGRN2(heads=2), layer), 0.05)


def test_bad_sizes_are_one_sentence() -> None:
    with pytest.raises(UserError, match="into 3 heads"):
        _build(HGRN2(heads=3))
    with pytest.raises(UserError, match="at least one layer"):
        _build(HGRN2(layers=0))
