"""mLSTM: its recurrence against plain exponentials in float64, its block against the paper's equations, its stabiliser
where plain exponentials overflow, and small memories worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.mlstm import MLSTM, MLSTMLayer
from levelfield.ops.layers.block_diagonal import by_blocks
from levelfield.ops.linear_attention.mlstm import mlstm, naive_mlstm
from levelfield.spec import UserError

CONFIGS = (MLSTM(heads=2), MLSTM(heads=1, expand=1.0, conv=1, block=2, forget="exponential", layers=3))


def _inputs(length: int, strength: float, growing: bool = False) -> list[Tensor]:
    """q, k, v, log_input, log_forget, C, n in float64."""
    draw = Generator().manual_seed(0)
    shapes = [(2, 3, length, 5), (2, 3, length, 5), (2, 3, length, 4), (2, 3, length), (2, 3, length)]
    q, k, v, gate, forget, c, n = (
        torch.randn(s, generator=draw, dtype=torch.float64) for s in [*shapes, (2, 3, 5, 4), (2, 3, 5)]
    )
    return [q, k, v, strength * gate, 0.3 * forget if growing else F.logsigmoid(2 + 2 * forget), c, n]


def _joined(c: Tensor, n: Tensor) -> Tensor:
    return torch.cat([c, n.unsqueeze(-1)], -1)


def _results(inputs: Sequence[Tensor], chunk: int | None) -> list[Tensor]:
    """h, C and n, and the gradients of everything that goes in; chunk None: by the equations."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    q, k, v, gate, forget, c, n = leaves
    if chunk is None:
        h, last = naive_mlstm(q, k, v, gate, forget, (c, n))
        memory = _joined(*last)
    else:
        h, (memory, peak) = mlstm(q, k, v, gate, forget, (_joined(c, n), torch.zeros_like(gate[..., 0])), chunk)
        memory = memory * peak[..., None, None].exp()
    draw = Generator().manual_seed(9)
    pulls = [torch.randn(x.shape, generator=draw, dtype=torch.float64) for x in (h, memory)]
    pulls[1] *= 1e-3 / memory.detach().abs().max()
    return [h, memory, *torch.autograd.grad((h, memory), leaves, pulls)]


@pytest.mark.parametrize("length, chunk", [(1, 64), (37, 16), (32, 16)])
@pytest.mark.parametrize("strength, growing", [(0.1, False), (1.0, True), (8.0, False)])
def test_chunks_are_the_recurrence(length: int, chunk: int, strength: float, growing: bool) -> None:
    inputs = _inputs(length, strength, growing)
    for found, expected in zip(_results(inputs, chunk), _results(inputs, None), strict=True):
        worst = expected.abs().max()
        torch.testing.assert_close(found / worst, expected / worst, rtol=1e-9, atol=1e-9)


def test_gates_that_overflow_give_what_their_differences_say() -> None:
    """exp(200) is beyond float32. With |q . n| > 1 differences of the gates count: 200 more for all are nothing."""
    q, k, v, gate, forget, _, _ = _inputs(70, 5.0)
    q, k = q.abs(), k.abs()  # so that no divisor is nearly zero
    exact, _ = naive_mlstm(q, k, v, gate + 30, forget)
    h, (memory, peak) = mlstm(q.float(), k.float(), v.float(), gate.float() + 200, forget.float())
    assert memory.isfinite().all() and peak.max() > 200
    torch.testing.assert_close(h.double(), exact, rtol=2e-4, atol=2e-4)


def test_closed_gates_leave_nothing() -> None:
    """Inputs of e^-300 are not scaled up: the paper's divisor is at least 1."""
    q, k, v, gate, forget, _, _ = (x.float() for x in _inputs(20, 1.0))
    h, (_, peak) = mlstm(q, k, v, gate - 300, forget)
    assert not h.any() and not peak.any()


def test_one_late_step_can_outweigh_all_before() -> None:
    """Equal keys and queries of ones: h is the mean of the values, weighted by exp(i~) sigmoid(f~)^age."""
    values, gate = torch.arange(1.0, 101.0).double(), torch.zeros(100).double()
    gate[60] = 50
    ones = torch.ones(1, 1, 100, 1, dtype=torch.float64)
    forget = torch.full((100,), 0.9, dtype=torch.float64).log()
    h, _ = mlstm(ones, ones, values.view(1, 1, 100, 1), gate.view(1, 1, -1), forget.view(1, 1, -1))
    for t in (0, 5, 59, 60, 61, 99):
        weights = torch.exp(gate[: t + 1] + (t - torch.arange(t + 1)) * forget[0])
        expected = (weights * values[: t + 1]).sum() / weights.sum()
        assert h[0, 0, t, 0].item() == pytest.approx(expected.item(), rel=1e-10)
    assert h[0, 0, 99, 0].item() == pytest.approx(61, abs=1e-6)


@pytest.mark.parametrize("number, block, outputs", [(8, 4, 4), (5, 4, 4), (3, 2, 6), (1, 40, 40), (7, 1, 2)])
def test_blocks_are_a_block_diagonal_matrix(number: int, block: int, outputs: int) -> None:
    draw = Generator().manual_seed(0)
    x = torch.randn(2, 5, number * block, generator=draw, dtype=torch.float64)
    weight = torch.randn(number, outputs, block, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(by_blocks(x, weight), x @ torch.block_diag(*weight).T, rtol=1e-12, atol=1e-12)


def _build(config: MLSTM, width: int = WIDTH) -> MLSTMLayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, MLSTMLayer)
    return layer


def _by_hand(layer: MLSTMLayer, x: Tensor) -> Tensor:
    """Figure 11 and equations 19 to 27, without a stabiliser. x: (T, D)."""
    cell, conv = layer.mlstm_cell, layer.conv1d.conv
    assert conv.bias is not None
    u, z = (x @ layer.proj_up.weight.T).chunk(2, dim=1)
    rows = F.pad(u, (0, 0, conv.weight.shape[2] - 1, 0)).unfold(0, conv.weight.shape[2], 1)
    c = F.silu((rows * conv.weight[:, 0]).sum(-1) + conv.bias)
    q, k, v = (
        part @ torch.block_diag(*maps.weight).T
        for part, maps in ((c, layer.q_proj), (c, layer.k_proj), (u, layer.v_proj))
    )
    joined = torch.cat([q, k, v], 1)
    take = (joined @ cell.igate.weight.T + cell.igate.bias).exp()
    keep = joined @ cell.fgate.weight.T + cell.fgate.bias
    keep = keep.sigmoid() if cell.config.forget == "sigmoid" else keep.exp()
    size, heads = q.shape[1] // take.shape[1], []
    for h in range(take.shape[1]):
        part = slice(h * size, (h + 1) * size)
        memory, normaliser, out = x.new_zeros(size, size), x.new_zeros(size), []
        for t in range(len(x)):
            key = k[t, part] / size**0.5
            memory = keep[t, h] * memory + take[t, h] * torch.outer(v[t, part], key)
            normaliser = keep[t, h] * normaliser + take[t, h] * key
            y = memory @ q[t, part] / (normaliser @ q[t, part]).abs().clamp(min=1)
            out.append((y - y.mean()) / (y.var(unbiased=False) + 1e-5).sqrt())
        heads.append(torch.stack(out))
    normed = torch.cat(heads, 1) * (1 + cell.outnorm.weight)
    return ((normed + layer.learnable_skip * c) * F.silu(z)) @ layer.proj_down.weight.T


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_layer_is_its_papers_equations(config: MLSTM) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (21, 6))


def test_first_values_are_the_authors_codes() -> None:
    layer, cell = _build(MLSTM(layers=3), 128), _build(MLSTM(heads=64), 512).mlstm_cell
    spread = (2 / (5 * 128)) ** 0.5
    for weight in (layer.proj_up.weight, *(maps.weight for maps in (layer.q_proj, layer.k_proj, layer.v_proj))):
        assert weight.std().item() == pytest.approx(spread, rel=0.1)
    assert layer.q_proj.weight.shape == (64, 4, 4)
    assert layer.proj_down.weight.std().item() == pytest.approx(2 / 3 / 128**0.5, rel=0.05)
    assert torch.equal(layer.mlstm_cell.fgate.bias, torch.tensor([3.0, 4.0, 5.0, 6.0]))
    assert not cell.fgate.weight.any() and not cell.igate.weight.any() and not cell.outnorm.weight.any()
    assert cell.igate.bias.std().item() == pytest.approx(0.1, rel=0.3)
    assert torch.equal(layer.learnable_skip, torch.ones(256))
    grown = _build(MLSTM(heads=4, forget="exponential")).mlstm_cell.fgate.bias
    torch.testing.assert_close(grown.exp(), torch.tensor([3.0, 4.0, 5.0, 6.0]).sigmoid())
    assert all(rule.weight_decay == 0 for rule in MLSTM().param_rules().values())


def test_finite_in_half_precision() -> None:
    twins.half(_build(CONFIGS[0]), 0.1)


@pytest.mark.slow
def test_finite_over_64_thousand_steps() -> None:
    """The other is in the test of all mixers."""
    twins.far(_build(CONFIGS[1]))


@pytest.mark.parametrize(
    "config, sentence",
    [(MLSTM(heads=3), "into 3 heads"), (MLSTM(block=3), "blocks of 3"), (MLSTM(layers=0), "at least 1")],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: MLSTM, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
