"""Longformer against attention over pairs of steps under a mask, and against transformers' class."""

from __future__ import annotations

import math

import kept
import pytest
import torch
from torch import Generator, Tensor
from traffic import growth

from levelfield.mixers.longformer import Longformer, LongformerLayer
from levelfield.spec import UserError

WIDTH = 8


def _layer(config: Longformer, causal: bool, width: int = WIDTH) -> LongformerLayer:
    """With every parameter away from its start, where the two sets of maps are equal."""
    layer = config.build(width, causal=causal, layer=0, generator=Generator().manual_seed(1))
    assert isinstance(layer, LongformerLayer)
    with torch.no_grad():
        for value in layer.parameters():
            value += 0.2 * torch.randn(value.shape, generator=Generator().manual_seed(value.numel()))
    return layer.double()


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(2), dtype=torch.float64)


def naive(layer: LongformerLayer, x: Tensor, lengths: list[int]) -> Tensor:
    """One query and one head at a time, the steps it sees picked by hand. Zero before the last map at padded steps."""
    c, dim = layer.config, x.shape[-1] // layer.config.heads
    near = layer.qkv(x).chunk(3, -1)
    far = near if layer.qkv_global is None else layer.qkv_global(x).chunk(3, -1)
    rows = []
    for b, length in enumerate(lengths):
        steps = [torch.zeros(x.shape[-1], dtype=x.dtype) for _ in range(x.shape[1])]
        for i in range(length):
            whole = i < c.global_steps
            seen = [j for j in range(length) if whole or j < c.global_steps or abs(i - j) <= c.window // 2]
            seen = [j for j in seen if j <= i or not layer.causal]
            q, k, v = (part[b] for part in (far if whole else near))
            heads = []
            for h in range(c.heads):
                own = slice(h * dim, (h + 1) * dim)
                scores = torch.stack([q[i, own] @ k[j, own] for j in seen]) / math.sqrt(dim)
                heads.append(scores.softmax(0) @ torch.stack([v[j, own] for j in seen]))
            steps[i] = torch.cat(heads)
        rows.append(torch.stack(steps))
    return layer.out(torch.stack(rows))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 23])
@pytest.mark.parametrize(
    "config",
    [
        Longformer(heads=2, window=4, global_steps=3),
        Longformer(heads=1, window=2, global_steps=1, bias=False),
        Longformer(heads=2, window=6, global_steps=0),
        Longformer(heads=2, window=60, global_steps=2),
    ],
    ids=str,
)
def test_equals_attention_over_the_steps_it_sees_in_value_and_gradient(
    config: Longformer, causal: bool, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levelfield.ops.attention.softmax.CHUNK", 5)  # several calls, and a last one that is not full
    layer, x = _layer(config, causal), _x(3, length, WIDTH).requires_grad_()
    lengths = [length, max(1, length // 2), 1]
    mask = torch.arange(length) < torch.tensor(lengths)[:, None]
    leaves = [x, *layer.parameters()]
    ours, theirs = layer(x, mask)[mask], naive(layer, x, lengths)[mask]
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    mine = torch.autograd.grad(ours.sin().sum(), leaves, materialize_grads=True, allow_unused=True)
    other = torch.autograd.grad(theirs.sin().sum(), leaves, materialize_grads=True, allow_unused=True)
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@kept.modes
@pytest.mark.parametrize("global_steps", [0, 3])
def test_the_same_function_as_transformers_class(global_steps: int, mode: kept.Mode) -> None:
    theirs = kept.case("longformer", mode, str(global_steps))
    ours = _layer(Longformer(heads=4, window=8, global_steps=global_steps), False, 16)
    copies = {"out.weight": torch.eye(16), "out.bias": torch.zeros(16)}
    for name, ending in (("qkv", ""), ("qkv_global", "_global")) if global_steps else (("qkv", ""),):
        for end in ("weight", "bias"):
            parts = [theirs.weights[f"{part}{ending}.{end}"] for part in ("query", "key", "value")]
            copies[f"{name}.{end}"] = torch.cat(parts)
    ours.load_state_dict(copies)
    mask = torch.arange(40) < theirs["lengths"][:, None]
    x = theirs["x"].detach().requires_grad_()
    y = ours(x, mask) * mask[..., None]
    # its softmax is in float32
    torch.testing.assert_close(y, theirs["y"], rtol=2e-6, atol=2e-6)
    (gradient,) = torch.autograd.grad(y.sin().sum(), x)
    torch.testing.assert_close(gradient[mask], theirs["gradient"][mask], rtol=1e-5, atol=1e-5)


def test_maps_of_global_steps_start_as_the_others() -> None:
    layer = Longformer(heads=2).build(WIDTH, causal=False, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, LongformerLayer) and layer.qkv_global is not None and layer.qkv.bias is not None
    assert torch.equal(layer.qkv_global.weight, layer.qkv.weight)
    assert layer.qkv_global.weight.data_ptr() != layer.qkv.weight.data_ptr()
    assert 0.9 / math.sqrt(WIDTH) < layer.qkv.weight.abs().max() <= 1 / math.sqrt(WIDTH)
    assert sum(p.numel() for p in layer.parameters()) == 7 * (WIDTH * WIDTH + WIDTH)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_linear_in_the_length_backward_too(causal: bool, mask: bool) -> None:
    layer = Longformer(heads=1, window=16).build(8, causal=causal, layer=0, generator=Generator().manual_seed(0))
    assert growth(layer, 2048, mask) < 1.05


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_long_sequences_and_half_precision_stay_finite(causal: bool) -> None:
    layer = Longformer(heads=2, window=64).build(8, causal=causal, layer=0, generator=Generator().manual_seed(0))
    x = _x(1, 65536, 8).float().requires_grad_()
    y = layer(x, None)
    y.square().sum().backward()
    assert x.grad is not None and torch.isfinite(y).all() and torch.isfinite(x.grad).all()
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x[:, :1024], None)
    torch.testing.assert_close(half.float(), layer(x[:, :1024], None), rtol=0.1, atol=0.03)


@pytest.mark.parametrize(
    "config, message",
    [
        (Longformer(heads=3), "width 8 into 3 heads"),
        (Longformer(heads=2, window=5), "even number, not 5"),
        (Longformer(heads=2, window=0), "even number, not 0"),
        (Longformer(heads=2, global_steps=-1), "global_steps=-1"),
    ],
)
def test_impossible_sizes_are_refused(config: Longformer, message: str) -> None:
    with pytest.raises(UserError, match=message):
        config.build(8, causal=False, layer=0, generator=Generator())
