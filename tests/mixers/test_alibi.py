"""Attention with linear biases against the equation, and the published slopes."""

from __future__ import annotations

import kept
import pytest
import torch
from torch import Tensor

from levelfield.mixers.alibi import Alibi, AlibiLayer, slopes
from levelfield.ops.attention.softmax import CHUNK
from levelfield.spec import UserError


def build(heads: int, width: int, causal: bool, seed: int = 0) -> AlibiLayer:
    generator = torch.Generator().manual_seed(seed)
    layer = Alibi(heads).build(width, causal=causal, layer=0, generator=generator).double()
    assert isinstance(layer, AlibiLayer)
    return layer


def naive(layer: AlibiLayer, x: Tensor, causal: bool, real: int) -> Tensor:
    """Pair by pair, head by head; steps from `real` on are padding. x: (T, D)."""
    length, width = x.shape
    heads, dim = layer.heads, width // layer.heads
    q, k, v = layer.qkv(x).split(width, -1)
    out = []
    for i in range(length):
        parts = []
        for h in range(heads):
            some = slice(h * dim, (h + 1) * dim)
            keys = range(i + 1) if causal else range(real)
            slope = 2 ** (-8 * (h + 1) / heads)
            scores = torch.stack([q[i, some] @ k[j, some] / dim**0.5 - slope * abs(i - j) for j in keys])
            parts.append(torch.softmax(scores, 0) @ v[list(keys), some])
        out.append(torch.cat(parts))
    return layer.out(torch.stack(out))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("length", "real"), [(1, 1), (13, 13), (17, 11)])
def test_it_is_the_equation_in_value_and_gradient(causal: bool, length: int, real: int) -> None:
    layer = build(4, 8, causal)
    x = torch.randn(length, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    mask = torch.arange(length)[None] < real
    fast, slow = layer(x[None], mask)[0, :real], naive(layer, x, causal, real)[:real]
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)
    pull = torch.randn(fast.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    wanted = [x, *layer.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad((fast * pull).sum(), wanted),
        torch.autograd.grad((slow * pull).sum(), wanted),
        rtol=1e-9,
        atol=1e-11,
    )


@pytest.mark.parametrize(("causal", "padded"), [(True, 0), (False, 0), (False, 300)])
def test_chunks_of_queries_change_nothing(causal: bool, padded: int) -> None:
    length = 2 * CHUNK + 37
    real = torch.arange(length) < length - padded
    layer = build(2, 4, causal)
    x = torch.randn(1, length, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    q, k, v = (p.unflatten(-1, (2, 2)).transpose(1, 2) for p in layer.qkv(x).chunk(3, -1))
    ahead = torch.arange(length) - torch.arange(length)[:, None]
    scores = q @ k.transpose(-1, -2) / 2**0.5 - ahead.abs() * layer.slopes[:, None, None]
    if causal:
        scores = scores.masked_fill(ahead > 0, -torch.inf)
    scores = scores.masked_fill(~real, -torch.inf)
    expected = layer.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    mask = real[None] if padded else None
    torch.testing.assert_close(layer(x, mask), expected, rtol=1e-10, atol=1e-12)


def test_pieces_of_any_sizes_are_the_whole() -> None:
    layer = build(2, 6, causal=True)
    x = torch.randn(2, 23, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    state, parts = None, []
    for piece in x.split([9, 1, 1, 12], 1):
        y, state = layer.step(piece, state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), layer(x), rtol=1e-10, atol=1e-12)


def test_slopes_are_those_printed() -> None:
    """press2022, section 3: for 8 heads 1/2 to 1/256, for 16 the geometric means between them as well."""
    assert slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    torch.testing.assert_close(slopes(16), torch.tensor([2.0 ** (-h / 2) for h in range(1, 17)]))
    assert slopes(12).tolist()[:8] == slopes(8).tolist()
    torch.testing.assert_close(slopes(12)[8:], torch.tensor([2.0 ** (-h / 2) for h in (1, 3, 5, 7)]))


def test_heads_divide_the_width() -> None:
    with pytest.raises(UserError, match="choose a divisor"):
        Alibi(heads=3).build(8, causal=True, layer=0, generator=torch.Generator())


@kept.modes
def test_bloom_gives_the_same(mode: kept.Mode) -> None:
    """The attention of BLOOM, weights copied across: its rows of queries, keys and values interleave by head."""
    theirs, heads, width = kept.case("bloom", mode), 6, 24
    weights, ours = theirs.weights, build(heads, width, causal=True)
    for end in ("weight", "bias"):
        rows = weights.pop(f"query_key_value.{end}").unflatten(0, (heads, 3, width // heads))
        weights |= {f"qkv.{end}": rows.transpose(0, 1).flatten(0, 2), f"out.{end}": weights.pop(f"dense.{end}")}
    ours.load_state_dict(weights, strict=False)  # slopes are not theirs
    x = theirs["x"].detach().requires_grad_()
    y = ours(x)
    torch.testing.assert_close(y, theirs["y"], rtol=0, atol=1e-5)  # its softmax is in float32
    torch.testing.assert_close(torch.autograd.grad(y.sin().sum(), x)[0], theirs["gradient"], rtol=0, atol=1e-5)
