"""Log-linear Mamba-2: its blocks against all pairs of steps, its layer against the paper's partition of the past."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from twins import WIDTH

from levelfield.mixers.log_linear_mamba2 import LogLinearMamba2, LogLinearMamba2Layer
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.linear_attention.levels import Past, Steps, level_attention, naive_level_attention
from levelfield.spec import UserError


def _inputs(length: int, strength: float, weights: int = 9) -> Steps:
    """Four heads in two groups, in float64."""
    draw, rows = Generator().manual_seed(0), (2, length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*rows, *shape, generator=draw, dtype=torch.float64)

    return Steps(normal(2, 3), normal(2, 3), normal(4, 5), -strength * normal(4).abs(), normal(4, weights))


def _results(work: Callable[[Steps], tuple[Tensor, Past]], inputs: Steps) -> list[Tensor]:
    """Outputs and memories, and the gradients of everything that goes in."""
    leaves = Steps(*(x.clone().requires_grad_() for x in inputs))
    y, past = work(leaves)
    assert past.steps == inputs.v.shape[1]
    out, draw = (y, past.memory), Generator().manual_seed(9)
    pulls = [torch.randn(x.shape, generator=draw, dtype=x.dtype) for x in out]
    return [*out, *torch.autograd.grad(out, leaves, pulls, materialize_grads=True)]


@pytest.mark.parametrize(
    ("length", "strength", "weights"), [(1, 0.1, 9), (7, 20.0, 9), (64, 0.1, 9), (101, 0.01, 9), (101, 20.0, 3)]
)
def test_blocks_are_all_pairs_of_steps(length: int, strength: float, weights: int) -> None:
    inputs = _inputs(length, strength, weights)
    expected = _results(naive_level_attention, inputs)
    for chunk in (1, 8, 64):
        for ours, theirs in zip(_results(partial(level_attention, chunk=chunk), inputs), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_it_goes_on_where_it_stopped() -> None:
    inputs, past, parts = _inputs(101, 0.1), None, []
    y, whole = level_attention(inputs)
    for piece in zip(*(x.split([1, 6, 5, 37, 51, 1], 1) for x in inputs), strict=True):
        part, past = level_attention(Steps(*piece), past)
        parts.append(part)
    assert past is not None and past.steps == whole.steps
    torch.testing.assert_close(torch.cat(parts, 1), y, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(past.memory, whole.memory, rtol=1e-10, atol=1e-10)


def test_equal_weights_are_mamba_2s_recurrence() -> None:
    inputs = _inputs(70, 0.1)
    y, past = level_attention(inputs._replace(weights=torch.ones_like(inputs.weights)))
    q, k, v, log_decay = (x.transpose(1, 2) for x in inputs[:4])
    expected, state = decayed_attention(q, k, v, log_decay)
    torch.testing.assert_close(y.transpose(1, 2), expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(past.memory.sum(1), state, rtol=1e-10, atol=1e-10)


def _build(config: LogLinearMamba2, width: int = WIDTH) -> LogLinearMamba2Layer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, LogLinearMamba2Layer)
    return layer


def _partition(t: int) -> list[tuple[int, range]]:
    """The levels of step t and their steps, by guo2025, section 3: what remains loses its lowest bit each time."""
    blocks, end = [(0, range(t, t + 1))], t
    while end:
        size = end & -end
        blocks.append((size.bit_length(), range(end - size, end)))
        end -= size
    return blocks


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def _by_hand(layer: LogLinearMamba2Layer, x: Tensor) -> Tensor:
    """guo2025, section 3, a step and a block of its past at a time. x: (T, D)."""
    c = layer.config
    gate, mixed, dt, scale = (x @ layer.in_proj.weight.T).split(list(layer.sizes), 1)
    before = torch.cat([torch.zeros(c.conv - 1, mixed.shape[1], dtype=x.dtype), mixed])
    taps = layer.conv1d.weight[:, 0]
    assert layer.conv1d.bias is not None
    mixed = _silu(sum(taps[:, i] * before[i : i + len(x)] for i in range(c.conv)) + layer.conv1d.bias)
    values, keys, queries = mixed.split([layer.sizes[0], c.groups * c.state, c.groups * c.state], 1)
    dt = torch.log1p(torch.exp(dt + layer.dt_bias))
    rows = []
    for t in range(len(x)):
        heads = []
        for h in range(layer.heads):
            some = slice(h * c.head, (h + 1) * c.head)
            shared = slice(h * c.groups // layer.heads * c.state, (h * c.groups // layer.heads + 1) * c.state)
            y = layer.D[h] * values[t, some]
            for level, block in _partition(t):
                at = min(level, c.levels - 1)
                weight = torch.log1p(torch.exp(layer.L[h, at] * scale[t, h * c.levels + at]))
                for s in block:
                    kept = torch.exp(-layer.A_log[h].exp() * dt[s + 1 : t + 1, h].sum())
                    y = y + weight * kept * (queries[t, shared] @ keys[s, shared]) * dt[s, h] * values[s, some]
            heads.append(y)
        groups = (torch.cat(heads) * _silu(gate[t])).view(c.groups, -1)
        normed = groups / (groups.square().mean(1, keepdim=True) + 1e-5).sqrt()
        rows.append(normed.flatten() * layer.norm.weight)
    return torch.stack(rows) @ layer.out_proj.weight.T


@pytest.mark.parametrize(
    "config",
    [LogLinearMamba2(state=3, head=8), LogLinearMamba2(state=2, expand=1, head=2, groups=2, conv=2, levels=3)],
    ids=str,
)
def test_the_layer_is_its_papers_equations(config: LogLinearMamba2) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (10, 3))


def test_the_state_grows_with_the_logarithm_of_the_length() -> None:
    config = LogLinearMamba2(state=4, head=8)
    layer, x, sizes = _build(config), twins.normal(1, 40, WIDTH), []
    for n in (1, 7, 8, 31, 32, 40):
        _, state = layer.step(x[:, :n], None)
        sizes.append(state["memory"].numel())
        assert sum(part.numel() for part in state.values()) == config.state_size(WIDTH, n)
    assert sizes == [bits * 2 * WIDTH * 4 for bits in (1, 3, 4, 5, 6, 6)]


def test_first_values_are_the_published_codes() -> None:
    layer = _build(LogLinearMamba2(head=2), 256)
    step = torch.nn.functional.softplus(layer.dt_bias.detach())
    assert step.min() > 1e-3 * 0.999 and step.max() < 1e-1 * 1.001 and step.shape == (256,)
    torch.testing.assert_close(layer.A_log.exp(), torch.arange(1.0, 257.0))
    assert layer.L.shape == (256, 15) and all(bool((part == 1).all()) for part in (layer.L, layer.D))
    assert layer.in_proj.weight.shape == (2 * 512 + 2 * 128 + 256 * 16, 256)


def test_finite_in_half_precision() -> None:
    twins.half(_build(LogLinearMamba2(state=8, head=4)), 0.1)


@pytest.mark.parametrize(
    "config, sentence",
    [
        (LogLinearMamba2(head=3), "into heads of 3"),
        (LogLinearMamba2(head=8, groups=3), "in 3 groups"),
        (LogLinearMamba2(head=8, levels=0), "at least 1"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: LogLinearMamba2, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
