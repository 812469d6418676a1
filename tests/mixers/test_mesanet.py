"""MesaNet: conjugate gradients against systems solved step by step, and its layer against the fit that it should be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.mesanet import MesaNet, MesaNetLayer
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.linear_attention.least_squares import Past, Steps, least_squares, naive_least_squares
from levelfield.spec import UserError


def _inputs(length: int, strength: float, keys: int = 4) -> list[Tensor]:
    """q, k, v, beta, log_decay; the ridge; both matrices of the past. All in float64."""
    draw, rows = Generator().manual_seed(0), (2, 3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    steps = [normal(*rows, length, keys), F.normalize(normal(*rows, length, keys), dim=-1), normal(*rows, length, 5)]
    steps += [normal(*rows, length).sigmoid(), -strength * normal(*rows, length).abs()]
    root = normal(*rows, keys, keys)
    return [*steps, 0.25 + normal(3, keys).abs(), root @ root.mT, normal(*rows, keys, 5)]


def _results(work: Callable[..., tuple[Tensor, Past]], inputs: Sequence[Tensor]) -> list[Tensor]:
    """What the work returns, and the gradients of everything that goes in, of G's as of a symmetric matrix."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    y, past = work(Steps(*leaves[:5]), leaves[5], Past(*leaves[6:]))
    out, draw = (y, *past), Generator().manual_seed(9)
    pulls = [torch.randn(x.shape, generator=draw, dtype=x.dtype) for x in out]
    *grads, gram, memory = torch.autograd.grad(out, leaves, pulls)
    return [*out, *grads, gram + gram.mT, memory]


@pytest.mark.parametrize(("length", "strength"), [(1, 0.1), (2, 20.0), (71, 0.01), (71, 1.0)])
def test_rounds_solve_what_is_solved_step_by_step(length: int, strength: float) -> None:
    inputs = _inputs(length, strength)
    for ours, theirs in zip(_results(least_squares, inputs), _results(naive_least_squares, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


def test_each_round_leaves_less_to_be_solved() -> None:
    *steps, ridge, gram, memory = _inputs(60, 0.01, keys=16)
    exact, _ = naive_least_squares(Steps(*steps), ridge, Past(gram, memory))
    errors = [
        (least_squares(Steps(*steps), ridge, Past(gram, memory), rounds)[0] - exact).norm() for rounds in (1, 4, 8, 16)
    ]
    assert all(later < earlier / 2 for earlier, later in pairwise(errors))
    assert errors[-1] < 1e-6 * exact.norm()


def test_nothing_asked_is_nothing_said() -> None:
    """A query of zeros is solved by zeros, and no round divides by its size."""
    q, *rest = _inputs(9, 0.1)[:5]
    q = torch.zeros_like(q).requires_grad_()
    y, _ = least_squares(Steps(q, *rest), torch.ones(3, 4, dtype=torch.float64))
    (grad,) = torch.autograd.grad(y.sum(), q)
    assert not y.any() and grad.isfinite().all() and grad.any()


@pytest.mark.parametrize("size", [2.0**-73, 2.0**-110, 2.0**90])
def test_small_and_large_queries_and_pulls_are_solved_as_any_other(size: float) -> None:
    """Answers are linear in queries, and gradients in what pulls: in float32 too, whose squares of 1e-22 are 0."""
    q, *rest = (part.float() for part in _inputs(40, 0.01, keys=16)[:5])
    ridge, found = torch.full((3, 16), 0.3), []
    for asked, pull in ((1.0, 1.0), (size, 1.0), (1.0, size)):
        leaf = (asked * q).requires_grad_()
        y, _ = least_squares(Steps(leaf, *rest), ridge)
        found.append([y, *torch.autograd.grad(y, leaf, torch.full_like(y, pull))])
    (y, grad), (scaled, same), (_, pulled) = found
    torch.testing.assert_close(scaled.double(), size * y.double(), rtol=1e-4, atol=1e-5 * size + 2.0**-140)
    torch.testing.assert_close(same, grad)
    torch.testing.assert_close(pulled.double(), size * grad.double(), rtol=1e-4, atol=1e-5 * size + 2.0**-140)


def test_a_large_penalty_leaves_linear_attention() -> None:
    q, k, v, beta, log_decay, *_ = _inputs(40, 0.1)
    y, _ = least_squares(Steps(q, k, v, beta, log_decay), torch.full((3, 4), 1e9, dtype=torch.float64))
    expected, _ = decayed_attention(q, k, beta.unsqueeze(-1) * v, log_decay)
    torch.testing.assert_close(1e9 * y, expected, rtol=1e-6, atol=1e-6)


def _build(config: MesaNet, width: int = WIDTH) -> MesaNetLayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, MesaNetLayer)
    return layer


def _convolved(x: Tensor, weight: Tensor) -> Tensor:
    """silu of a causal convolution: (T, C); weight: (C, 1, W)."""
    before = torch.cat([x.new_zeros(weight.shape[2] - 1, x.shape[1]), x])
    mixed = torch.stack([(before[t : t + weight.shape[2]] * weight[:, 0].T).sum(0) for t in range(len(x))])
    return mixed * torch.sigmoid(mixed)


def _unit(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def _by_hand(layer: MesaNetLayer, x: Tensor) -> Tensor:
    """vonoswald2025: at each step the weighted least squares over all rows so far and the penalty's. x: (T, D)."""
    size, heads = x.shape[1] // layer.config.heads, []
    q, k = (
        _convolved(x @ part.weight.T, taps.weight)
        for part, taps in ((layer.q_proj, layer.q_conv1d), (layer.k_proj, layer.k_conv1d))
    )
    v, keep, rate = (x @ layer.v_proj.weight.T, *(torch.sigmoid(part(x)) for part in (layer.a_proj, layer.b_proj)))
    penalty = layer.config.least + torch.log1p(layer.lambda_params.exp())
    for h in range(layer.config.heads):
        some, rows = slice(h * size, (h + 1) * size), []
        queries, keys = _unit(q[:, some]), _unit(k[:, some])
        for t in range(len(x)):
            weight = torch.stack([rate[j, h] * keep[j + 1 : t + 1, h].prod() for j in range(t + 1)]).sqrt()
            left = torch.cat([weight[:, None] * keys[: t + 1], penalty[some].sqrt().diag()])
            right = torch.cat([weight[:, None] * v[: t + 1, some], x.new_zeros(size, size)])
            y = queries[t] @ torch.linalg.lstsq(left, right).solution
            rows.append(y / (y.square().mean() + 1e-5).sqrt() * layer.o_norm.weight)
        heads.append(torch.stack(rows))
    y = torch.cat(heads, 1)
    if layer.g_proj is not None:
        gate = x @ layer.g_proj.weight.T
        y = y * gate * torch.sigmoid(gate)
    return y @ layer.o_proj.weight.T


@pytest.mark.parametrize("config", [MesaNet(heads=2), MesaNet(heads=1, conv=2, least=0.5, gate=True)], ids=str)
def test_the_layer_is_the_fit_that_its_paper_asks_for(config: MesaNet) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (10, 3), value=1e-8, gradient=(1e-6, 1e-7))


def test_first_values_are_the_published_codes() -> None:
    layer = _build(MesaNet(least=0.25), 256)
    torch.testing.assert_close(F.softplus(layer.lambda_params) + 0.25, torch.ones(256))
    assert MesaNet().state_size(256, 9) == 2 * 4 * 64 * 64 + 2 * 3 * 256


def test_finite_in_half_precision() -> None:
    twins.half(_build(MesaNet(heads=2)), 0.1)


@pytest.mark.parametrize(
    "config, sentence",
    [
        (MesaNet(heads=3), "into 3 heads"),
        (MesaNet(conv=0), "at least one tap"),
        (MesaNet(least=0.0), "a least penalty between 0 and 1"),
        (MesaNet(rounds=0), "and a round, not"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: MesaNet, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
