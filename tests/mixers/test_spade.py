"""The two branches against a recurrence and explicit softmaxes, tables of distances, and the carried state."""

from __future__ import annotations

import math

import pytest
import torch
import twins
from torch import Tensor, nn
from torch.nn import functional as F

from levelfield.mixers.spade import SPADE, SPADELayer, bucket_of
from levelfield.ops.attention.softmax import attend_window
from levelfield.ops.attention.windowed_bias import (
    attend_table,
    chunk_table,
    distances,
    naive_attend_table,
    window_table,
)
from levelfield.ops.conv.fft import naive_conv
from levelfield.ops.ssm.dplr import naive_dplr_kernel
from levelfield.spec import UserError

WIDTH = 8
CONFIGS = (
    SPADE(state=6, heads=2, window=5, buckets=8, max_distance=9),
    SPADE(state=4, heads=4, near="chunk", window=6, buckets=8, max_distance=9, copies=2),
    SPADE(state=4, heads=2, window=1, buckets=0),
    SPADE(state=0, heads=2, window=4, buckets=4, max_distance=5),
)


def _layer(config: SPADE, causal: bool) -> SPADELayer:
    layer = config.build(WIDTH, causal=causal, layer=0, generator=torch.Generator().manual_seed(0)).double()
    assert isinstance(layer, SPADELayer)
    return layer


def _normal(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive_bucket(away: int, buckets: int, farthest: int, causal: bool) -> int:
    """T5's, of one distance. away: key's number less query's."""
    if causal:
        first, away = 0, max(0, -away)
    else:
        buckets //= 2
        first, away = (buckets if away > 0 else 0), abs(away)
    exact = buckets // 2
    if away < exact:
        return first + away
    return first + min(
        buckets - 1, exact + int(math.log(away / exact) / math.log(farthest / exact) * (buckets - exact))
    )


def near_naive(config: SPADE, layer: SPADELayer, x: Tensor, causal: bool) -> Tensor:
    """A softmax for each head and step: (T, D) -> (T, D)."""
    q, k, v = layer.near.qkv(x).view(len(x), 3, config.heads, -1).unbind(1)
    rows = []
    for i in range(len(x)):
        for h in range(config.heads):
            seen = [j for j in range(len(x)) if not (causal and j > i)]
            if config.near == "window":
                seen = [j for j in seen if abs(i - j) < config.window]
            else:
                seen = [j for j in seen if i // config.window == j // config.window]
            scores = torch.stack([q[i, h] @ k[j, h] for j in seen]) / (WIDTH / config.heads) ** 0.5
            if layer.near.bias is not None:
                which = [naive_bucket(j - i, config.buckets, config.max_distance, causal) for j in seen]
                scores = scores + layer.near.bias.weight[which, h]
            rows.append(scores.softmax(0) @ v[seen, h])
    return layer.near.out(torch.stack(rows).view(len(x), WIDTH))


def spade_naive(config: SPADE, layer: SPADELayer, x: Tensor, causal: bool) -> Tensor:
    """zuo2022, section 3.1: (T, D) -> (T, D)."""
    near = near_naive(config, layer, x, causal)
    if layer.far is None:
        return near
    far = layer.far
    repeats = WIDTH // config.copies
    poles = torch.complex(-far.log_decay.exp(), far.frequency).repeat(repeats, 1)
    drive, low_rank = (torch.view_as_complex(part).repeat(repeats, 1) for part in (far.drive, far.low_rank))
    readout = 2 * torch.view_as_complex(far.readout)
    kernel = naive_dplr_kernel(poles, low_rank, drive, readout, far.log_dt.exp()[:, None], len(x))
    y = naive_conv(x.T[None], kernel[0], None if causal else kernel[1])[0].T + far.skip * x
    joined = torch.cat([layer.norm_far(y), layer.norm_near(near)], -1)
    return layer.join(joined)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 13])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_value_and_gradient_equal_the_sums(config: SPADE, length: int, causal: bool) -> None:
    layer = _layer(config, causal)
    twins.unpadded(layer, lambda z: spade_naive(config, layer, z[0], causal)[None], _normal(1, length, WIDTH))


@pytest.mark.parametrize("queries", [11, 4, 1])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("block, window, causal", [(4, 3, False), (3, 6, True), (16, 4, False), (1, 1, True)])
def test_tables_equal_one_matrix(block: int, window: int, causal: bool, masked: bool, queries: int) -> None:
    mask = torch.arange(11) < torch.tensor([[11], [6]]) if masked else None
    q, k, v = _normal(2, 3, queries, 4), _normal(2, 3, 11, 4, seed=1), _normal(2, 3, 11, 4, seed=2)
    shape = window_table(window, causal, block).double()
    table, results = _normal(3, *shape.shape, seed=3), []
    for run in (attend_table, naive_attend_table):
        a, b, c, d = leaves = [part.clone().requires_grad_() for part in (q, k, v, table)]
        y = run(a, b, c, d + shape, mask, window - 1)
        results.append((y, *torch.autograd.grad(y.sin().sum(), leaves)))
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 5, 40])
def test_without_a_bias_it_is_the_window_of_attention(window: int, causal: bool) -> None:
    q, k, v = (_normal(2, 2, 23, 4, seed=s) for s in range(3))
    y = attend_table(q, k, v, window_table(window, causal, 7)[None], None, window - 1)
    torch.testing.assert_close(y, attend_window(q, k, v, None, causal, window))


def test_a_chunk_is_attention_by_itself() -> None:
    q, k, v = (_normal(1, 2, 13, 4, seed=s) for s in range(3))
    y = attend_table(q, k, v, chunk_table(5, False)[None], None, 0)
    for part in (slice(0, 5), slice(5, 10), slice(10, 13)):
        alone = F.scaled_dot_product_attention(q[:, :, part], k[:, :, part], v[:, :, part])
        torch.testing.assert_close(y[:, :, part], alone)


@pytest.mark.parametrize("causal", [False, True])
def test_buckets_are_t5s(causal: bool) -> None:
    away = distances(40, 200, 0 if causal else 200)
    found = bucket_of(away, 32, 128, causal)
    expected = [[naive_bucket(int(d), 32, 128, causal) for d in row] for row in away[:3]]
    assert found[:3].tolist() == expected
    assert set(found.flatten().tolist()) <= set(range(32)) and found.max() == 31


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_padding_counts_as_nothing(config: SPADE) -> None:
    layer, x = _layer(config, False), _normal(1, 11, WIDTH)
    y = layer(x, torch.arange(11)[None] < 7)
    torch.testing.assert_close(y[:, :7], layer(x[:, :7]))
    assert y.isfinite().all()


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_pieces_from_a_state_equal_the_whole(config: SPADE) -> None:
    layer, x = _layer(config, True), _normal(2, 23, WIDTH)
    state, parts = None, []
    for piece in x.split([6, 1, 1, 9, 6], 1):
        y, state = layer.step(piece, state)
        parts.append(y)
        assert sum(part[0].numel() for part in state.values()) == config.state_size(
            WIDTH, sum(p.shape[1] for p in parts)
        )
    torch.testing.assert_close(torch.cat(parts, 1), layer(x), rtol=1e-9, atol=1e-9)


def test_a_frozen_state_stays_as_it_starts() -> None:
    frozen = {
        name for name, p in _layer(SPADE(state=4, heads=2, frozen=True), True).named_parameters() if not p.requires_grad
    }
    assert frozen == {f"far.{n}" for n in ("log_decay", "frequency", "drive", "low_rank", "log_dt", "readout", "skip")}


def test_starting_values_and_rules() -> None:
    """Maps of the attention are Xavier's, those of queries, keys and values over the square root of 2."""
    layer = SPADE().build(64, causal=True, layer=0, generator=torch.Generator().manual_seed(0))
    assert isinstance(layer, SPADELayer) and isinstance(layer.near.bias, nn.Embedding)
    bound = (6 / 128) ** 0.5
    for part in layer.near.qkv.weight.chunk(3):
        assert part.abs().max().item() == pytest.approx(bound / 2**0.5, rel=0.01)
    assert layer.near.out.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert layer.near.bias.weight.std().item() == pytest.approx(1, rel=0.2)
    rules = SPADE().param_rules()
    assert {name: rule.lr for name, rule in rules.items()} == {
        "log_decay": 1e-3, "frequency": 1e-3, "drive": 1e-3, "low_rank": 1e-3, "log_dt": None,
    }  # fmt: skip
    assert all(rule.weight_decay == 0 for rule in rules.values()) and SPADE(state=0).param_rules() == {}


@pytest.mark.parametrize(
    "config",
    [SPADE(state=3), SPADE(heads=3), SPADE(window=0), SPADE(copies=3), SPADE(dt_min=0.0), SPADE(buckets=6)],
    ids=str,
)
def test_impossible_sizes_are_refused(config: SPADE) -> None:
    with pytest.raises(UserError):
        _layer(config, False)


@pytest.mark.slow
def test_long_sequences_and_mixed_precision_stay_finite() -> None:
    layer = SPADE(heads=2).build(8, causal=False, layer=0, generator=torch.Generator().manual_seed(0))
    x = torch.randn(1, 65536, 8, generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    y.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
