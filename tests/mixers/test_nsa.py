"""Native sparse attention: chosen blocks against a matrix of all pairs, the layer against the paper step by step."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from twins import WIDTH

from levelfield.mixers.nsa import NSA, NSALayer
from levelfield.ops.attention import chosen
from levelfield.ops.attention.chosen import Choice, attend_chosen, attend_pooled, choose, naive_attend_chosen, pool
from levelfield.ops.attention.softmax import attend
from levelfield.spec import UserError

BLOCK = 4


def _inputs(queries: int, keys: int) -> list[Tensor]:
    """q with four heads, and k and v with two, in float64."""
    draw = Generator().manual_seed(0)
    shapes = ((2, 4, queries, 6), (2, 2, keys, 6), (2, 2, keys, 6))
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]


def _blocks(inputs: list[Tensor], count: int) -> Tensor:
    q, k, v = inputs
    past = k.shape[2] - q.shape[2]
    weights = attend_pooled(q, pool(k, BLOCK), pool(v, BLOCK), past, BLOCK)[1]
    return choose(weights, 2, Choice(past, BLOCK, most=count, total=k.shape[2]))


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (7, 7), (38, 38), (5, 40)])
def test_gathered_blocks_are_the_matrix_of_all_pairs(queries: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In value and gradient, with the keys of a few queries gathered at a time."""
    monkeypatch.setattr(chosen, "GATHERED", 2000)
    inputs = _inputs(queries, keys)
    blocks, results = _blocks(inputs, 4), []
    for work in (attend_chosen, naive_attend_chosen):
        leaves = q, k, v = [x.clone().requires_grad_() for x in inputs]
        y = work(q, k, v, blocks, BLOCK)
        pull = torch.randn(y.shape, generator=Generator().manual_seed(9), dtype=y.dtype)
        results.append([y, *torch.autograd.grad(y, leaves, pull)])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_all_blocks_are_attention() -> None:
    q, k, v = _inputs(30, 30)
    y = attend_chosen(q, k, v, _blocks([q, k, v], 99), BLOCK)
    torch.testing.assert_close(y, attend(q, k, v, None, causal=True), rtol=1e-9, atol=1e-11)


def test_a_far_block_is_chosen_for_the_key_that_is_asked_for() -> None:
    """Of 25 blocks a query at the end reads four: the first, the last two, and the one that holds what it seeks."""
    q, k, v = (torch.zeros(1, 1, n, 6) for n in (1, 100, 100))
    q[..., 0], k[0, 0, 38, 0], v[0, 0, 38, 1] = 50.0, 50.0, 1.0
    blocks = choose(
        attend_pooled(q, pool(k, BLOCK), pool(v, BLOCK), 99, BLOCK)[1], 1, Choice(99, BLOCK, most=4, total=100)
    )
    assert sorted(blocks.flatten().tolist()) == [0, 38 // BLOCK, 23, 24]
    assert attend_chosen(q, k, v, blocks, BLOCK)[0, 0, 0, 1].item() == pytest.approx(1.0)


@pytest.mark.parametrize("shared", [1, 2])
def test_of_equal_blocks_the_earlier_are_chosen_however_many_steps_come_later(shared: int) -> None:
    """A query of zeros weighs all blocks alike, and one that is sure gives most of them nothing at all."""
    weights = torch.zeros(1, 2, 400, 100)
    weights[:, :, 200:, 60] = 1.0
    chosen_of = {}
    for steps in (250, 303, 400):
        some = weights[:, :, :steps, : steps // BLOCK]
        chosen_of[steps] = choose(some, shared, Choice(0, BLOCK, most=6, total=steps))[0, 0]
    for steps in (250, 303):
        assert torch.equal(chosen_of[steps], chosen_of[400][:steps])
    assert sorted(chosen_of[400][150].tolist()) == [0, 1, 2, 3, 36, 37]
    assert sorted(chosen_of[400][399].tolist()) == [0, 1, 2, 60, 98, 99]


def test_steps_of_zeros_are_the_same_in_any_pieces_and_before_any_others() -> None:
    layer = _build(NSA(heads=4, kv_heads=2, block=4, blocks=4, window=4), 32).double()
    x = twins.normal(2, 300, 32).double()
    x[:, ::3] = 0.0
    with torch.no_grad():
        whole, first, state, parts = layer(x), layer(x[:, :131]), None, []
        for part in x.split(37, 1):
            y, state = layer.step(part, state)
            parts.append(y)
    torch.testing.assert_close(first, whole[:, :131])
    torch.testing.assert_close(torch.cat(parts, 1), whole)


def _build(config: NSA, width: int = WIDTH) -> NSALayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, NSALayer)
    return layer


def _turned(part: Tensor, size: int) -> Tensor:
    """Queries or keys, (T, heads * d), as complex pairs of channels that turn with the step."""
    pairs = torch.view_as_complex(part.unflatten(-1, (-1, size // 2, 2)).contiguous())
    angles = torch.arange(len(part), dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(size // 2, dtype=torch.float64) * 2 / size
    )
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles).unsqueeze(1)).flatten(1)


def _softmax(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(keys @ query / math.sqrt(len(query)), 0)
    return weights @ values, weights


def _by_hand(layer: NSALayer, x: Tensor) -> Tensor:
    """yuan2025, section 3, step by step and head by head, with means of blocks. x: (T, D)."""
    c, size = layer.config, x.shape[1] // layer.config.heads
    ratio, q = c.heads // c.kv_heads, _turned(x @ layer.q_proj.weight.T, size)
    k, v = _turned(x @ layer.k_proj.weight.T, size), x @ layer.v_proj.weight.T
    gates = torch.sigmoid(x @ layer.g_proj.weight.T).unflatten(1, (c.heads, 3))
    out = []
    for t in range(len(x)):
        heads = []
        for g in range(c.kv_heads):
            columns = [
                slice((branch * c.kv_heads + g) * size, (branch * c.kv_heads + g + 1) * size) for branch in range(3)
            ]
            (k1, k2, k3), (v1, v2, v3) = ([part[: t + 1, some] for some in columns] for part in (k, v))
            whole, own = (t + 1) // c.block, t // c.block
            means = [
                torch.stack([z[i * c.block : (i + 1) * c.block].mean(0) for i in range(whole)] or [0 * z[0]])
                for z in (k1, v1)
            ]
            queries = [q[t, h * size : (h + 1) * size] for h in range(g * ratio, (g + 1) * ratio)]
            summed = [_softmax(query, *means) for query in queries]
            votes = torch.stack([weights for _, weights in summed]).sum(0)
            always = {0, own, max(0, own - 1)}
            others = sorted(set(range(whole)) - always, key=lambda i: -votes[i].item())
            blocks = {*always, *others[: max(0, c.blocks - len(always))]}
            steps = [s for s in range(t + 1) if s // c.block in blocks]
            for r, query in enumerate(queries):
                gate = gates[t, g * ratio + r]
                near = max(0, t - c.window + 1)
                a = summed[r][0] if whole else 0 * query
                b, last = _softmax(query, k2[steps], v2[steps])[0], _softmax(query, k3[near:], v3[near:])[0]
                heads.append(gate[0] * a + gate[1] * b + gate[2] * last)
        out.append(torch.cat(heads))
    return torch.stack(out) @ layer.o_proj.weight.T


@pytest.mark.parametrize(
    "config",
    [NSA(heads=2, block=3, blocks=4, window=5), NSA(heads=4, kv_heads=2, block=2, blocks=3, window=1)],
    ids=str,
)
def test_the_layer_is_its_papers_equations(config: NSA) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (16, 4))


def test_sizes() -> None:
    layer = _build(NSA(), 256)
    assert sum(value.numel() for value in layer.parameters()) == 256 * (2 * 256 + 6 * 64 + 12)
    assert NSA().state_size(256, 1000) == 2 * 64 * (15 + 40 + 1000 + 511)


def test_finite_in_half_precision() -> None:
    twins.half(_build(NSA(heads=2, block=4, blocks=3, window=5)), 0.05)


@pytest.mark.parametrize(
    "config, sentence",
    [
        (NSA(heads=3), "into 3 heads"),
        (NSA(heads=4, kv_heads=3), "share 3 heads"),
        (NSA(heads=8), "pairs of channels"),
        (NSA(blocks=2), "three blocks"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: NSA, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
