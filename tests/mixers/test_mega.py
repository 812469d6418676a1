"""Mega against its equations step by step, against transformers' code, and inside the residual block."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import kept
import pytest
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from levelfield.mixers.mega import EXAMPLES, Mega, MegaLayer
from levelfield.model import Network, ResidualBlock
from levelfield.ops.attention import relative
from levelfield.ops.attention.relative import Weigh, attend_chunks, attend_distances, naive_attend_distances
from levelfield.ops.attention.rotary import rotary_bias
from levelfield.recipes import ma2023
from levelfield.spec import Block, Head, Tokens, UserError

WIDTH = 6
LENGTHS = (13, 7, 1)  # of three sequences, padded to the first


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def built(config: Mega, causal: bool, width: int = WIDTH) -> MegaLayer:
    """In float64, away from its initial values."""
    layer = config.build(width, causal=causal, layer=0, generator=Generator().manual_seed(0)).double()
    assert isinstance(layer, MegaLayer)
    with torch.no_grad():
        for i, value in enumerate(layer.parameters()):
            value += 0.3 * normal(*value.shape, seed=i)
    return layer


def averages(layer: MegaLayer, x: Tensor, way: int) -> Tensor:
    """Re sum_n gamma a / sqrt(N) of one direction, step by step. x: (T, D) in the order of that direction."""
    part = layer.average
    p, d = torch.sigmoid(part.decay[way]), torch.sigmoid(part.damp[way])
    states = p.shape[1]
    if part.drive is not None:
        keep, take, gamma = 1 - p * d, p * part.drive[way], part.readout[way]
    else:
        assert part.turn is not None
        angles = torch.sigmoid(part.turn[way])[:, None] * 2 * math.pi * torch.arange(1, states + 1) / states
        keep, take = torch.polar(1 - p * d, angles), p
        gamma = torch.complex(part.readout[way][..., 0], part.readout[way][..., 1])
    state, out = torch.zeros_like(keep), []
    for step in x:
        state = keep * state + take * step[:, None]
        out.append((gamma * state).real.sum(1) / math.sqrt(states))
    return torch.stack(out)


def biases(layer: MegaLayer, i: int, j: int) -> Tensor:
    """The bias of a query at step i for a key at step j of the same chunk."""
    if layer.config.positions == "simple":
        return layer.bias[(len(layer.bias) - 1) // 2 + j - i]
    half = layer.bias.shape[1] // 2
    theta = 10000 ** (-torch.arange(half, dtype=torch.float64) / half)

    def turned(row: Tensor, step: int) -> Tensor:
        a, b = row[:half], row[half:]
        cos, sin = torch.cos(step * theta), torch.sin(step * theta)
        return torch.cat([a * cos - b * sin, b * cos + a * sin])

    return turned(layer.bias[0], i) @ turned(layer.bias[1], j)


def naive(layer: MegaLayer, x: Tensor, stream: Tensor) -> Tensor:
    """The equations of ma2023, sections 3.1 to 3.4, for one sequence (T, D) without padding."""
    c, length = layer.config, len(x)
    mean = averages(layer, x, 0)
    if not layer.causal:
        mean = mean + averages(layer, x.flip(0), 1).flip(0)
    m = F.silu(mean + layer.average.skip * x)
    u, z, r, h = layer.mix(m).split(layer.rows, -1)
    q, k = (F.silu(z) * layer.scale[i] + layer.shift[i] for i in range(2))
    v, out = F.silu(layer.value(x)), []
    for i in range(length):
        first = 0 if c.chunk is None else i // c.chunk * c.chunk
        last = length if c.chunk is None else min(length, first + c.chunk)
        seen = range(first, i + 1 if layer.causal else last)
        norm = math.sqrt(c.keys) if c.attention == "softmax" else len(seen)
        scores = torch.stack([q[i] @ k[j] / norm + biases(layer, i, j) for j in seen])
        if c.attention == "softmax":
            weights = scores.exp() / scores.exp().sum()
        else:
            weights = 0.5 * (1 + torch.erf((scores - math.sqrt(1 / 2)) / (math.sqrt(1 / (4 * math.pi)) * math.sqrt(2))))
        o = sum(weight * v[j] for weight, j in zip(weights, seen, strict=True))
        candidate = F.silu(h[i] + layer.out(F.silu(r[i]) * o))
        out.append(torch.sigmoid(u[i]) * (candidate - stream[i]))
    return torch.stack(out)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", EXAMPLES, ids=str)
def test_the_layer_is_the_equations(config: Mega, causal: bool) -> None:
    layer, length = built(config, causal), LENGTHS[0]
    mask = torch.arange(length) < torch.tensor(LENGTHS)[:, None]
    x, stream = normal(3, length, WIDTH).requires_grad_(), normal(3, length, WIDTH, seed=1)
    sources = (x, *layer.parameters())
    ours = layer(x, mask, stream)[mask]
    theirs = torch.cat([naive(layer, x[i, :n], stream[i, :n]) for i, n in enumerate(LENGTHS)])
    # The paper's constants are rounded to six digits.
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    for a, b in zip(*(torch.autograd.grad(y.sin().sum(), sources) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("block", "rows"), [(1 << 18, 256), (40, 1), (1, 4)])
@pytest.mark.parametrize("weigh", ["softmax", "laplace"])
@pytest.mark.parametrize(("queries", "causal"), [(13, False), (13, True), (5, True)])
def test_attention_in_blocks_is_score_after_score(
    monkeypatch: pytest.MonkeyPatch, block: int, rows: int, weigh: Weigh, queries: int, causal: bool
) -> None:
    monkeypatch.setattr(relative, "CPU_BLOCK_ELEMENTS", block)
    monkeypatch.setattr(relative, "ROWS", rows)
    q, k, v, bias = (normal(*s, seed=len(s) + s[0]) for s in ((2, queries, 4), (2, 13, 4), (2, 13, 6), (33,)))
    mask = None if causal else torch.arange(13) < torch.tensor([[9], [0]])
    sources = [part.requires_grad_() for part in (q, k, v, bias)]
    ours = attend_distances(q, k, v, bias, mask, causal, weigh)
    theirs = naive_attend_distances(q, k, v, bias, mask, causal, weigh)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(y.sin().sum(), sources) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (5, 5), (14, 14), (3, 5), (1, 9), (9, 12), (11, 14)])
def test_chunks_are_calls_of_their_own(queries: int, keys: int) -> None:
    """Of the keys, the first is the first of a chunk of 5; only queries of a chunk that was begun are missing."""
    chunk, past = 5, keys - queries
    q, k, v, bias = (normal(*s, seed=i) for i, s in enumerate(((2, queries, 4), (2, keys, 4), (2, keys, 3), (9,))))
    past = keys - queries
    if past >= chunk:
        k, v, past = k[:, past // chunk * chunk :], v[:, past // chunk * chunk :], past % chunk
    parts = []
    for start in range(0, k.shape[1], chunk):
        seen, rows = slice(start, start + chunk), slice(max(0, start - past), max(0, start + chunk - past))
        parts.append(naive_attend_distances(q[:, rows], k[:, seen], v[:, seen], bias, None, True, "laplace"))
    theirs = torch.cat(parts, 1)
    torch.testing.assert_close(attend_chunks(q, k, v, bias, None, True, "laplace", chunk), theirs)


def test_the_rotary_bias_is_a_product_of_turned_vectors() -> None:
    layer = built(Mega(keys=6, values=4, positions="rotary"), False)
    table = rotary_bias(layer.bias[0], layer.bias[1], 9)
    pairs = [(i, j) for i in range(9) for j in range(9)]
    theirs = torch.stack([biases(layer, i, j) for i, j in pairs])
    torch.testing.assert_close(table[[8 + j - i for i, j in pairs]], theirs)


@pytest.mark.parametrize("prenorm", [False, True])
def test_in_its_block_the_gate_is_the_residual(prenorm: bool) -> None:
    """(1 - u) x + u h of the stream itself, as published, wherever the norm is; and so step by step."""
    layer = built(Mega(state=2, keys=4, values=8, bound=20), True)
    block = ResidualBlock(layer, Block(prenorm=prenorm), WIDTH).double().eval()
    x = 3 * normal(2, 11, WIDTH)
    inner = block.norm(x, None) if prenorm else x
    mixed = layer.average(inner, None)
    seen = layer._attended(*layer._heads(mixed), F.silu(layer.value(inner)), None)
    u, _, r, h = layer.mix(mixed).split(layer.rows, -1)
    u, h = torch.sigmoid(u), F.silu(h + layer.out(F.silu(r) * seen))
    expected = (1 - u) * x + u * h
    expected = expected if prenorm else block.norm(expected, None)
    torch.testing.assert_close(block(x, None), expected)
    first, state = block.step(x[:, :4], None)
    second, _ = block.step(x[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), expected)


def test_initial_values_are_those_of_the_code() -> None:
    layer = Mega(state=16, keys=64).build(256, causal=False, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, MegaLayer)
    part = layer.average
    assert part.drive is not None
    for value, std in (
        *((part.decay, 0.2), (part.damp, 0.2), (part.readout, 1), (part.skip, 1), (layer.bias, 0.02)),
        *((m.weight, 0.02) for m in (layer.value, layer.mix, layer.out)),
    ):
        assert value.std().item() == pytest.approx(std, rel=0.15) and abs(value.mean().item()) < std / 5
    assert layer.scale.std().item() == pytest.approx(0.02, rel=0.3)
    assert (part.drive[..., 0::2] - 1).std().item() == pytest.approx(0.02, rel=0.1)
    assert (part.drive[..., 1::2] + 1).abs().max() < 0.12
    assert not any(value.any() for value in (layer.shift, layer.mix.bias, layer.value.bias, layer.out.bias))
    assert layer.config.param_rules() == {}


def test_initial_values_of_the_complex_form_are_megalodons() -> None:
    layer = Mega(form="complex").build(64, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, MegaLayer) and layer.average.turn is not None
    spread = 64 ** (-torch.arange(1, 65) / 64)
    torch.testing.assert_close(torch.sigmoid(layer.average.turn[0]).sort(descending=True).values, spread)
    assert not layer.average.readout[..., 1].any()
    assert layer.average.skip.std().item() == pytest.approx(0.25, rel=0.2) and layer.average.skip.abs().max() < 1


@pytest.mark.parametrize("weigh", ["softmax", "laplace"])
def test_no_table_of_scores_is_kept(weigh: Weigh) -> None:
    length, kept = 700, []
    layer = Mega(state=2, keys=4, values=8, attention=weigh).build(8, causal=False, layer=0, generator=Generator())
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        layer(torch.randn(1, length, 8), None)
    assert max(kept) < 20 * length


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (Mega(keys=0), "keys=0"),
        (Mega(chunk=0), "chunk=0"),
        (Mega(keys=5, positions="rotary"), "even keys, not 5"),
    ],
)
def test_bad_settings_are_told(config: Mega, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        config.build(WIDTH, causal=False, layer=0, generator=Generator())


def test_what_bounds_the_length() -> None:
    assert Mega(bound=50).max_length == 50
    assert Mega(bound=50, chunk=8).max_length is None and Mega(positions="rotary").max_length is None
    with pytest.raises(UserError, match="biases for 50 steps, not 51"):
        built(Mega(state=1, keys=2, bound=50), False)(normal(1, 51, WIDTH))


@kept.modes
@pytest.mark.parametrize("chunk", [None, 8])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("positions", ["simple", "rotary"])
@pytest.mark.parametrize("weigh", ["softmax", "laplace"])
def test_parity_with_transformers(
    weigh: Weigh, positions: Literal["simple", "rotary"], causal: bool, chunk: int | None, mode: kept.Mode
) -> None:
    """Its transforms and angles set to float64. Its biases of chunks lie at the front of a table for all steps."""
    theirs = kept.case("mega", mode, f"{weigh} {positions} {causal} {chunk}")
    config = Mega(state=3, keys=6, values=14, attention=weigh, bound=40, chunk=chunk, positions=positions)
    layer = built(config, causal)
    _copy(theirs.weights, layer)
    x, mask = theirs["x"].detach().requires_grad_(), theirs["mask"]
    y = (x + layer(x, mask)) * mask[..., None]
    torch.testing.assert_close(y, theirs["y"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(torch.autograd.grad(y.sin().sum(), x)[0], theirs["gradient"], rtol=1e-8, atol=1e-9)


def _copy(theirs: kept.Tensors, layer: MegaLayer) -> None:
    ema, bias, part = "ema_gate.", "rel_pos_bias.", layer.average
    assert part.drive is not None
    pairs = {"damping_factor": part.decay, "decay_factor": part.damp, "ema_expansion_matrix": part.drive}
    pairs |= {"kernel_projection_matrix": part.readout, "residual_weight": part.skip}
    pairs = {ema + name: target for name, target in pairs.items()}
    pairs |= {"qk_weight": layer.scale, "qk_bias": layer.shift}
    for name, ours in (("v_proj", layer.value), ("mx_proj", layer.mix), ("h_proj", layer.out)):
        pairs |= {f"{name}.weight": ours.weight, f"{name}.bias": ours.bias}
    with torch.no_grad():
        for name, target in pairs.items():
            target.copy_(theirs[name].reshape(target.shape))
        if layer.config.positions == "simple":
            layer.bias.copy_(theirs[bias + "rel_pos_bias"][: len(layer.bias)])
        else:
            layer.bias.copy_(torch.cat([theirs[bias + "alpha"], theirs[bias + "b_param"]]))


@pytest.mark.parametrize(
    ("task", "norms"), [("listops", 2 * 80), ("text", 1), ("retrieval", 1), ("image", 2 * 160), ("pathx", 2 * 64)]
)
def test_recipes_have_the_parameters_of_the_code(task: str, norms: int) -> None:
    """Counted from the shapes in its modules: averages, maps, scale and shift, biases, feed-forward, two norms."""
    s = ma2023.mega(task)
    d, e, z = s.shape.width, s.values, s.keys
    mixer = Mega(keys=z, values=e, attention=s.attention, bound=s.bound)
    averages, maps = 4 * 2 * d * 16 + d, (d + 1) * e + (d + 1) * (z + e + 2 * d) + (e + 1) * d
    layer = averages + maps + 4 * z + 2 * s.bound - 1 + (d + 1) * e + (e + 1) * d + 2 * norms
    head = (d + 1) * e + (e + 1) * 10
    rest = 20 * d + (norms if s.shape.block.final_norm else 0)
    net = Network(s.shape.model(mixer, "mega"), Tokens(18), (Head("label", 10, "sequence"),), mask_flag=False, seed=0)
    assert sum(p.numel() for p in net.parameters()) == s.shape.depth * layer + head + rest


def test_the_scale_norm_divides_by_the_root_mean_square() -> None:
    block = ResidualBlock(torch.nn.Identity(), Block(norm="scale", prenorm=False, eps=1e-5), 4).double()
    x = normal(2, 3, 4)
    with torch.no_grad():
        block.norm.get_parameter("gain").fill_(1.5)
    y = block.norm(x, None)
    torch.testing.assert_close(y, 1.5 * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", EXAMPLES[1:2] + EXAMPLES[3:], ids=str)
def test_finite_over_64k_steps_and_under_mixed_precision(config: Mega, causal: bool) -> None:
    layer = replace(config, chunk=128).build(8, causal=causal, layer=0, generator=Generator().manual_seed(0))
    x = torch.randn(1, 65536, 8, requires_grad=True)
    layer(x, None).square().sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x[:, :300], None)
    y.float().square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())
