"""Mamba-3: its chunks against the recurrence, its layer against the paper's equations, and what its turns can count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import pytest
import torch
import twins
from torch import Generator, Tensor
from twins import WIDTH

from levelfield.mixers.mamba3 import Mamba3, Mamba3Layer
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.linear_attention.trapezoidal import Past, Steps, naive_trapezoidal, trapezoidal
from levelfield.spec import UserError


def _inputs(length: int, strength: float) -> list[Tensor]:
    """q, k, v, log_decay, dt, share; memory, key and value of the past. All in float64."""
    draw, rows, keys, values = Generator().manual_seed(0), (2, length, 3), 4, 5

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    steps = [normal(*rows, keys), normal(*rows, keys), normal(*rows, values)]
    steps += [-strength * normal(*rows).abs(), normal(*rows).abs(), normal(*rows).sigmoid()]
    return [*steps, normal(2, 3, keys, values), normal(2, 3, keys), normal(2, 3, values)]


def _results(work: Callable[[Steps, Past], tuple[Tensor, Past]], inputs: Sequence[Tensor]) -> list[Tensor]:
    """What the work returns, and the gradients of everything that goes in."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    y, past = work(Steps(*leaves[:6]), Past(*leaves[6:]))
    out, draw = (y, *past), Generator().manual_seed(9)
    pulls = [torch.randn(x.shape, generator=draw, dtype=x.dtype) for x in out]
    return [*out, *torch.autograd.grad(out, leaves, pulls)]


@pytest.mark.parametrize("length", [1, 2, 71])
@pytest.mark.parametrize("strength", [0.01, 20.0])
def test_one_late_write_a_step_is_the_recurrence(length: int, strength: float) -> None:
    inputs = _inputs(length, strength)
    for found, expected in zip(_results(trapezoidal, inputs), _results(naive_trapezoidal, inputs), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_all_of_a_steps_own_input_is_mamba_2s_rule() -> None:
    q, k, v, log_decay, dt, share, *past = _inputs(40, 0.1)
    y, _ = trapezoidal(Steps(q, k, v, log_decay, dt, torch.ones_like(share)), Past(*past))
    rows = (x.transpose(1, 2) for x in (q, k, v * dt.unsqueeze(-1), log_decay))
    torch.testing.assert_close(y.transpose(1, 2), decayed_attention(*rows, state=past[0])[0], rtol=1e-10, atol=1e-10)


def _build(config: Mamba3, width: int = WIDTH) -> Mamba3Layer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, Mamba3Layer)
    return layer


def _normed(part: Tensor, weight: Tensor) -> Tensor:
    return part / (part.square().mean() + 1e-5).sqrt() * weight


def _rate(config: Mamba3, a: Tensor) -> Tensor:
    """How fast a state decays, in continuous time."""
    if config.rates == "softplus":
        return torch.log1p(a.exp()).clamp(min=1e-4)
    return torch.where(a > 0, 1 + a, 1 / (1 - torch.where(a > 0, 0, a)))


def _by_hand(layer: Mamba3Layer, x: Tensor) -> Tensor:
    """lahoti2026, section 3, with states of complex numbers that rotate, and real ones that do not. x: (T, D)."""
    c, heads, turned = layer.config, [], 2 * layer.config.angles
    sizes = list(layer.sizes)
    z, values, keys, queries, dts, rates, shares, phis = (x @ layer.in_proj.weight.T).split(sizes, 1)
    for h in range(layer.heads):
        group = slice(h * c.groups // layer.heads * c.state, (h * c.groups // layer.heads + 1) * c.state)
        some, out = slice(h * c.head, (h + 1) * c.head), []
        held = torch.zeros(c.angles, c.head, dtype=torch.complex128)  # the states that rotate
        plain = x.new_zeros(c.state - turned, c.head)
        before = [torch.zeros_like(held), torch.zeros_like(plain)]
        for t in range(len(x)):
            b = _normed(keys[t, group], layer.B_norm.weight) + layer.B_bias[h, 0]
            read = _normed(queries[t, group], layer.C_norm.weight) + layer.C_bias[h, 0]
            dt = torch.log1p(torch.exp(dts[t, h] + layer.dt_bias[h]))
            alpha, share = torch.exp(-dt * _rate(c, rates[t, h])), torch.sigmoid(shares[t, h])
            spin = torch.polar(torch.ones_like(phis[t]), -dt * math.pi * torch.tanh(phis[t])).unsqueeze(1)
            writes = [_complex(b[:turned])[:, None] * values[t, some], b[turned:, None] * values[t, some]]
            held = alpha * spin * (held + (1 - share) * dt * before[0]) + share * dt * writes[0]
            plain = alpha * (plain + (1 - share) * dt * before[1]) + share * dt * writes[1]
            before = writes
            y = (_complex(read[:turned]).conj() @ held).real + read[turned:] @ plain + layer.D[h] * values[t, some]
            if layer.norm is not None:
                y = _normed(y, layer.norm.weight[some])
            out.append(y * z[t, some] * torch.sigmoid(z[t, some]))
        heads.append(torch.stack(out))
    return torch.cat(heads, 1) @ layer.out_proj.weight.T


def _complex(pairs: Tensor) -> Tensor:
    """Neighbouring channels as complex numbers: (2 R,) -> (R,)."""
    return torch.view_as_complex(pairs.unflatten(0, (-1, 2)).contiguous())


@pytest.mark.parametrize(
    "config",
    [
        Mamba3(state=6, head=4, expand=1),
        Mamba3(state=5, expand=1, head=2, groups=2, rotated=1.0, rates="heavy", norm=True),
    ],
    ids=str,
)
def test_the_layer_is_its_papers_equations(config: Mamba3) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (13, 4))


@pytest.mark.parametrize("rates", ["softplus", "heavy"])
def test_a_step_of_zeros_has_the_gradient_that_small_changes_show(rates: Literal["softplus", "heavy"]) -> None:
    """Its A is exactly 0, where heavy rates pass from one formula to the other."""
    layer = twins.stirred(_build(Mamba3(state=4, head=8, rates=rates)))
    x = twins.normal(1, 12, WIDTH).double()
    x[:, 3::4] = 0.0
    way, pull = (twins.normal(1, 12, WIDTH, seed=seed).double() for seed in (1, 2))
    (grad,) = torch.autograd.grad((layer(leaf := x.clone().requires_grad_()) * pull).sum(), leaf)
    further, back = ((layer(x + step * way) * pull).sum() for step in (1e-6, -1e-6))
    assert (grad * way).sum().item() == pytest.approx(((further - back) / 2e-6).item(), rel=1e-6)


def test_a_layer_counts_ones_modulo_two_over_a_thousand_steps() -> None:
    """A one turns the state by half a turn and hardly anything decays: the sign of the first write is the parity."""
    layer = _build(Mamba3(state=2, expand=1, head=1, rotated=1.0), 3).double()
    bits = torch.randint(0, 2, (1000,), generator=Generator().manual_seed(0))
    bits[0] = 0
    first = torch.arange(1000) == 0
    with torch.no_grad():
        for value in layer.parameters():
            value.zero_()
        gate, value, _, _, _, rate, _, turn = layer.in_proj.weight.split(layer.sizes)
        gate[:, :2], value[:, 2], rate[:, :2] = 1.0, 1.0, -100.0
        turn[0, 1] = 100.0
        layer.dt_bias.fill_(math.log(math.e - 1))  # dt is 1
        layer.B_bias.fill_(1.0)
        layer.C_bias.fill_(1.0)
        layer.out_proj.weight.copy_(torch.eye(3))
        y = layer(torch.stack([1 - bits, bits, first], 1).double().unsqueeze(0))[0, :, 0]
    signs = 1 - 2 * (bits.cumsum(0) % 2)
    assert (y * signs).min().item() > 0.5


def test_first_values_are_the_published_codes() -> None:
    layer = _build(Mamba3(head=2), 256)
    step = torch.nn.functional.softplus(layer.dt_bias.detach())
    assert step.min() > 1e-3 * 0.999 and step.max() < 1e-1 * 1.001 and step.shape == (256,)
    assert all(bool((part == 1).all()) for part in (layer.B_bias, layer.C_bias, layer.D, layer.B_norm.weight))
    assert layer.in_proj.weight.shape == (2 * 512 + 2 * 128 + 3 * 256 + 32, 256)
    assert Mamba3().state_size(256, 9) == 8 * (128 * 64 + 128 + 64 + 32)


def test_finite_in_half_precision() -> None:
    twins.half(_build(Mamba3(state=8, head=4)), 0.1)


@pytest.mark.parametrize(
    "config, sentence",
    [
        (Mamba3(head=3), "into heads of 3"),
        (Mamba3(head=8, groups=3), "in 3 groups"),
        (Mamba3(head=8, state=3), "pairs of its 3 states"),
        (Mamba3(head=8, rotated=1.5), "pairs of its 128 states"),
        (Mamba3(head=8, dt_min=0.0), "0 < dt_min"),
        (Mamba3(head=8, state=0), "at least 1"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: Mamba3, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
