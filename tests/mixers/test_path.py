"""PaTH: its blocks against keys turned step by step, its layer against products of matrices, and swaps to follow."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from twins import WIDTH

from levelfield.mixers.path import PaTH, PaTHLayer
from levelfield.ops.attention.turned import Past, Steps, attend_turned, naive_attend_turned
from levelfield.spec import UserError


def _inputs(length: int, past: int, size: int = 5) -> list[Tensor]:
    """q, k, v, w, beta; keys and values of the past. All in float64."""
    draw, rows = Generator().manual_seed(0), (2, 3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*rows, *shape, generator=draw, dtype=torch.float64)

    w = torch.nn.functional.normalize(normal(length, size), dim=-1)
    steps = [normal(length, size), normal(length, size), normal(length, size), w, 2 * normal(length).sigmoid()]
    return [*steps, normal(past, size), normal(past, size)]


def _results(work: Callable[[Steps, Past], tuple[Tensor, Tensor]], inputs: Sequence[Tensor]) -> list[Tensor]:
    """What the work returns, and the gradients of everything that goes in."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out, draw = work(Steps(*leaves[:5]), Past(*leaves[5:])), Generator().manual_seed(9)
    pulls = [torch.randn(x.shape, generator=draw, dtype=x.dtype) for x in out]
    return [*out, *torch.autograd.grad(out, leaves, pulls)]


@pytest.mark.parametrize(("length", "past"), [(1, 0), (1, 9), (5, 0), (71, 3), (70, 0)])
def test_blocks_turn_keys_as_single_steps_do(length: int, past: int) -> None:
    """With blocks of four steps, 71 are five segments, and the last block is not whole."""
    inputs = _inputs(length, past)
    expected = _results(naive_attend_turned, inputs)
    for block in (4, 64):
        for ours, theirs in zip(_results(partial(attend_turned, block=block), inputs), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_it_follows_swaps_over_hundreds_of_steps() -> None:
    """A reflection along the difference of two places swaps what lies there; a query then finds who is at its place."""
    places, draw, swaps = 5, random.Random(0), 300
    eye, order = torch.eye(places, dtype=torch.float64), list(range(places))
    nothing = torch.zeros(swaps, places, dtype=torch.float64)
    w = torch.zeros(places + swaps, places, dtype=torch.float64)
    for t in range(swaps):
        one, other = draw.sample(range(places), 2)
        order[one], order[other] = order[other], order[one]
        w[places + t] = (eye[one] - eye[other]) / 2**0.5
    k = v = torch.cat([eye, nothing])
    for place, who in enumerate(order):
        q = 100 * eye[place].expand_as(k)
        parts = (x.view(1, 1, -1, places) for x in (q, k, v, w))
        y, _ = attend_turned(Steps(*parts, beta=torch.full((1, 1, places + swaps), 2.0, dtype=torch.float64)))
        torch.testing.assert_close(y[0, 0, -1], eye[who])


def _build(config: PaTH, width: int = WIDTH) -> PaTHLayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, PaTHLayer)
    return layer


def _by_hand(layer: PaTHLayer, x: Tensor) -> Tensor:
    """yang2025path: the matrix between each pair of steps as a product of one for each step. x: (T, D)."""
    size, taps = x.shape[1] // layer.config.heads, layer.w_conv1d.weight[:, 0]
    q, k, v = (x @ part.weight.T for part in (layer.q_proj, layer.k_proj, layer.v_proj))
    turned = torch.cat([x.new_zeros(taps.shape[1] - 1, x.shape[1]), layer.w_proj(x)])
    w = sum((taps[:, i] * turned[i : i + len(x)] for i in range(taps.shape[1])), torch.zeros_like(x))
    w = w * torch.sigmoid(w)
    beta = 2 * torch.sigmoid(x @ layer.bt_proj.weight.T + layer.bt_proj.bias)
    heads = []
    for h in range(layer.config.heads):
        some, rows = slice(h * size, (h + 1) * size), []
        for i in range(len(x)):
            scores, between = [], torch.eye(size, dtype=x.dtype)
            for j in range(i, -1, -1):
                scores.append(q[i, some] @ between @ k[j, some] / size**0.5)
                axis = w[j, some] / (w[j, some].square().sum() + 1e-6).sqrt()
                between = between @ (torch.eye(size, dtype=x.dtype) - beta[j, h] * torch.outer(axis, axis))
            rows.append(torch.stack(scores).softmax(0) @ v[: i + 1, some].flip(0))
        heads.append(torch.stack(rows))
    return torch.cat(heads, 1) @ layer.o_proj.weight.T


@pytest.mark.parametrize("config", [PaTH(heads=2, rank=3), PaTH(heads=1, rank=None, conv=2)], ids=str)
def test_the_layer_is_its_papers_equations(config: PaTH) -> None:
    layer = twins.stirred(_build(config))
    twins.equal(layer, partial(_by_hand, layer), (10, 3))


def test_without_turns_it_is_plain_attention() -> None:
    layer, x = _build(PaTH(heads=2)).double(), twins.normal(2, 90, WIDTH).double()
    with torch.no_grad():
        layer.bt_proj.bias.fill_(-1000.0)
    q, k, v = (part(x).unflatten(-1, (2, -1)).transpose(1, 2) for part in (layer.q_proj, layer.k_proj, layer.v_proj))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer(x), layer.o_proj(y), rtol=1e-10, atol=1e-10)


def test_finite_in_half_precision() -> None:
    twins.half(_build(PaTH(heads=2)), 0.1)


@pytest.mark.parametrize(
    "config, sentence",
    [(PaTH(heads=3), "into 3 heads"), (PaTH(rank=0), "at least one channel"), (PaTH(conv=0), "at least one tap")],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: PaTH, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
