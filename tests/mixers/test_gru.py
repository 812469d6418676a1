"""The GRU and the sLSTM against their equations, step by step; and that automata can be written into them."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor, nn
from twins import WIDTH

from levelfield.mixers.gru import GRU, GRULayer
from levelfield.mixers.slstm import SLSTM, SLSTMLayer
from levelfield.ops.layers.slstm import State, slstm
from levelfield.spec import MixerConfig, UserError


def _build(config: MixerConfig, width: int = WIDTH) -> nn.Module:
    return config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))


def _gru(layer: GRULayer, x: Tensor) -> Tensor:
    """x: (T, D)."""
    w, u, b, c = layer.gru.parameters()
    h, out = x.new_zeros(u.shape[1]), []
    for step in x:
        (xr, xu, xn), (hr, hu, hn) = (step @ w.T + b).chunk(3), (h @ u.T + c).chunk(3)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xu + hu)
        h = (1 - z) * torch.tanh(xn + r * hn) + z * h
        out.append(h)
    return torch.stack(out) @ layer.out.weight.T + layer.out.bias


@pytest.mark.parametrize("config", [GRU(), GRU(hidden=5)], ids=str)
def test_the_gru_is_its_equations(config: GRU) -> None:
    layer = twins.stirred(_build(config))
    assert isinstance(layer, GRULayer)
    twins.equal(layer, partial(_gru, layer), (17, 5))


def test_first_values_are_torchs() -> None:
    layer = _build(GRU(hidden=6))
    assert isinstance(layer, GRULayer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = nn.GRU(WIDTH, 6, batch_first=True)
    assert all(torch.equal(a, b) for a, b in zip(layer.gru.parameters(), theirs.parameters(), strict=True))


def _slstm(layer: SLSTMLayer, x: Tensor) -> Tensor:
    """Equations 8 to 14 without the stabiliser, one head after another. x: (T, D)."""
    heads, size = layer.heads, x.shape[1] // layer.heads
    seen = x
    if layer.conv1d is not None:
        conv = layer.conv1d.conv
        assert conv.bias is not None
        rows = nn.functional.pad(x, (0, 0, conv.weight.shape[2] - 1, 0)).unfold(0, conv.weight.shape[2], 1)
        seen = nn.functional.silu((rows * conv.weight[:, 0]).sum(-1) + conv.bias)
    out = []
    for head in range(heads):
        here, c, n, h, steps = slice(head * size, (head + 1) * size), 0.0, 0.0, x.new_zeros(size), []
        for t in range(len(x)):
            fed = (layer.slstm_cell.recurrent[head] @ h).view(4, size) + layer.slstm_cell.bias[:, head]
            parts = (layer.igate, seen), (layer.fgate, seen), (layer.zgate, x), (layer.ogate, x)
            i, f, z, o = (gate.weight[head] @ of[t, here] + extra for (gate, of), extra in zip(parts, fed, strict=True))
            c = torch.sigmoid(f) * c + torch.exp(i) * torch.tanh(z)
            n = torch.sigmoid(f) * n + torch.exp(i)
            h = torch.sigmoid(o) * c / n
            steps.append((h - h.mean()) / (h.var(unbiased=False) + 1e-5).sqrt() * (1 + layer.group_norm.weight[here]))
        out.append(torch.stack(steps))
    return torch.cat(out, 1)


@pytest.mark.parametrize("config", [SLSTM(heads=2), SLSTM(heads=1, conv=0), SLSTM(heads=4, conv=2)], ids=str)
def test_the_slstm_is_its_equations(config: SLSTM) -> None:
    layer = twins.stirred(_build(config))
    assert isinstance(layer, SLSTMLayer)
    twins.equal(layer, partial(_slstm, layer), (13, 4))


def test_gates_of_any_size_stay_finite() -> None:
    """exp(1000) is no number in any precision; the largest gate outweighs all others, and a forget gate keeps it."""
    gates = torch.zeros(1, 4, 4, 1, 1, dtype=torch.float64)
    gates[0, :, 0, 0, 0] = torch.tensor([0.0, 1000.0, -1000.0, 500.0])
    gates[0, :, 1] = 1000.0  # f = 1
    gates[0, :, 2, 0, 0] = torch.tensor([1.0, -0.5, 2.0, 3.0])
    gates[0, :, 3] = 1000.0  # o = 1
    h, state = slstm(gates, torch.zeros(1, 4, 1, dtype=torch.float64))
    expected = torch.tanh(torch.tensor([1.0, -0.5, -0.5, -0.5], dtype=torch.float64))
    torch.testing.assert_close(h.flatten(), expected)
    assert state.peak.item() == 1000 and state.norm.item() == 1


def test_forget_gates_start_open_in_the_first_channel_and_closed_in_the_last() -> None:
    layer = _build(SLSTM(heads=2), 64)
    assert isinstance(layer, SLSTMLayer)
    bias = layer.slstm_cell.bias.detach()
    assert (bias[1, :, 0] == 5).all() and (bias[1, :, -1] == -7).all() and (bias[1].diff(dim=1) < 0).all()
    assert not bias[[0, 2, 3]].any() and not layer.slstm_cell.recurrent.any()
    assert layer.zgate.weight.std().item() == pytest.approx((2 / (5 * 64)) ** 0.5, rel=0.1)


def test_a_gru_can_be_told_to_follow_parity() -> None:
    """Weights by hand, with saturated gates: a zero keeps the state, and a one changes its sign, for ever."""
    layer = _build(GRU(hidden=1), 1).double()
    assert isinstance(layer, GRULayer)
    w, u, b, c = layer.gru.parameters()  # of the gates r, u and of the candidate, in this order
    with torch.no_grad():
        for value in layer.parameters():
            value.zero_()
        w[1], b[1] = -100.0, 50.0  # u is 1 where x is 0, and 0 where x is 1
        b[0] = 50.0  # r is 1
        u[2], c[2] = -50.0, 25.0  # the candidate is 1 after 0, and -1 after 1
        layer.out.weight.fill_(1.0)
    bits = torch.randint(2, (1, 3000, 1), generator=Generator().manual_seed(1)).double()
    assert torch.equal(layer(bits, None).sign().clamp(min=0), bits.cumsum(1) % 2)


def test_an_slstm_can_be_told_to_count() -> None:
    """Weights by hand, with closed forget gates, so that h = tanh(z): of a channel for each sum and digit, the one
    whose digit has just led to its sum is 1 and all others -1, for ever. So where a trained sLSTM does not count beyond
    the length of training (docs/studies.md), training has not found this."""
    modulus, steps, sure = 5, 10_000, 50.0
    sums, digits = torch.arange(modulus**2) // modulus, torch.arange(modulus**2) % modulus
    came_from = (sums - digits) % modulus
    recurrent = torch.zeros(1, 4, modulus**2, modulus**2, dtype=torch.float64)
    recurrent[0, 2] = sure / 2 * (came_from[:, None] == sums)
    word = torch.randint(modulus, (steps,), generator=Generator().manual_seed(1))
    gates = torch.zeros(1, steps, 4, 1, modulus**2, dtype=torch.float64)
    gates[:, :, 1], gates[:, :, 3] = -1000.0, 1000.0  # f = 0, o = 1
    gates[0, :, 2, 0] = sure * ((word[:, None] == digits) + modulus / 2 - 1.5)  # both have to be so: digit and last sum
    nothing = torch.zeros(1, 1, modulus**2, dtype=torch.float64)
    begun = torch.where((sums == 0) & (digits == 0), 1.0, -1.0).double().view_as(nothing)
    start = State(begun, nothing, nothing, nothing)
    h, _ = slstm(gates, recurrent.flatten(1, 2), start)
    assert torch.equal(sums[h[0, :, 0].argmax(-1)], word.cumsum(0) % modulus)
    assert ((h == h.max()).sum(-1) == 1).all() and h.max() > 1 - 1e-9 and h.abs().min() > 1 - 1e-9


@pytest.mark.parametrize("config", [GRU(), SLSTM(heads=2)], ids=str)
def test_finite_in_half_precision(config: MixerConfig) -> None:
    twins.half(_build(config), 0.1)


@pytest.mark.parametrize(
    "config, sentence",
    [(GRU(hidden=0), "at least one hidden"), (SLSTM(heads=3), "into 3 heads"), (SLSTM(2, conv=-1), "at least one tap")],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: MixerConfig, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
