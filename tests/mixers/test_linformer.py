"""Linformer against its equation one query at a time, and against an independent implementation."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import kept
import pytest
import torch
import twins
from torch import Generator, Tensor

from levelfield.mixers.linformer import Linformer, LinformerLayer
from levelfield.spec import UserError

SHARES: tuple[Literal["none", "heads", "kv"], ...] = ("none", "heads", "kv")


def _layer(config: Linformer, width: int) -> LinformerLayer:
    layer = config.build(width, causal=False, layer=0, generator=Generator().manual_seed(1))
    assert isinstance(layer, LinformerLayer)
    return layer.double()


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(2), dtype=torch.float64)


def naive(layer: LinformerLayer, x: Tensor) -> Tensor:
    """wang2020, equation 7, a head and a step at a time. x: (T, D)."""
    dim, heads = x.shape[-1] // layer.heads, []
    maps_v = layer.compress_k if layer.compress_v is None else layer.compress_v
    for h in range(layer.heads):
        part, own = slice(h * dim, (h + 1) * dim), h % len(maps_v)
        k, v = torch.zeros(2, maps_v.shape[1], dim, dtype=x.dtype)
        for t, step in enumerate(x):
            k = k + torch.outer(layer.compress_k[own, :, t], layer.key.weight[part] @ step)
            v = v + torch.outer(maps_v[own, :, t], layer.value.weight[part] @ step)
        if layer.key.bias is not None:
            k, v = k + layer.key.bias[part], v + layer.value.bias[part]
        scores = layer.query(x)[:, part] @ k.T / math.sqrt(dim)
        heads.append(scores.exp() / scores.exp().sum(1, keepdim=True) @ v)
    return layer.out(torch.cat(heads, 1))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", [1, 23, 29])
def test_equals_its_equation_in_value_and_gradient(
    share: Literal["none", "heads", "kv"], bias: bool, length: int
) -> None:
    layer = _layer(Linformer(heads=2, rank=5, bound=29, share=share, bias=bias), 6)
    twins.equal(layer, partial(naive, layer), (length, max(1, length // 2)), width=6, value=1e-10)


def test_a_map_that_keeps_every_step_is_softmax_attention() -> None:
    layer, x = _layer(Linformer(heads=2, rank=11, bound=11, share="kv"), 6), _x(2, 11, 6)
    with torch.no_grad():
        layer.compress_k[0] = torch.eye(11)
    q, k, v = (part(x).unflatten(-1, (2, 3)).transpose(1, 2) for part in (layer.query, layer.key, layer.value))
    full = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer(x), layer.out(full))


@pytest.mark.parametrize("share, maps", [("none", 8), ("heads", 2), ("kv", 1)])
def test_sharing_leaves_so_many_maps(share: Literal["none", "heads", "kv"], maps: int) -> None:
    layer = _layer(Linformer(heads=4, rank=16, bound=100, share=share), 8)
    compress = [value for name, value in layer.named_parameters() if name.startswith("compress")]
    assert sum(value.numel() for value in compress) == maps * 16 * 100
    numbers = torch.cat([value.flatten() for value in compress]).detach()
    size = math.sqrt(3 / 116)  # the standard deviation of a uniform number is size / sqrt(3)
    assert numbers.abs().max() <= size
    assert abs(float(numbers.std()) - size / math.sqrt(3)) < 0.03 * size


def test_longer_sequences_and_impossible_sizes_are_refused() -> None:
    layer = _layer(Linformer(heads=2, rank=4, bound=9), 6)
    layer(_x(1, 9, 6))
    with pytest.raises(UserError, match="at most 9 steps, not 10"):
        layer(_x(1, 10, 6))
    for config, message in (
        (Linformer(heads=4), "width 6 into 4 heads"),
        (Linformer(heads=2, rank=0), "rank=0"),
        (Linformer(heads=2, bound=0), "bound=0"),
    ):
        with pytest.raises(UserError, match=message):
            _layer(config, 6)


def test_half_precision_stays_close() -> None:
    layer, x = _layer(Linformer(heads=2, rank=16, bound=1000), 8).float(), _x(1, 1000, 8).float()
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x)
    torch.testing.assert_close(half.float(), layer(x), rtol=0.05, atol=0.02)


def test_long_sequences_stay_finite() -> None:
    layer, x = _layer(Linformer(heads=2, rank=8, bound=65536), 8).float(), _x(1, 65536, 8).float().requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    assert x.grad is not None and torch.isfinite(y).all() and torch.isfinite(x.grad).all()


@kept.modes
@pytest.mark.parametrize("share", ["heads", "kv"])
@pytest.mark.parametrize("length", [40, 64])
def test_equals_the_linformer_package(share: Literal["heads", "kv"], length: int, mode: kept.Mode) -> None:
    """Which shares maps between heads always, and has one for keys and values together with `share_kv`.

    Its own `share_kv` also makes the values the keys, which the paper does not: our value map is set to our key map.
    """
    theirs = kept.case("linformer", mode, f"{share} {length}")
    layer, w = _layer(Linformer(heads=2, rank=7, bound=64, share=share), 12), theirs.weights
    copies = {"query.weight": w["to_q.weight"], "key.weight": w["to_k.weight"], "compress_k": w["proj_k"].T[None]}
    copies["value.weight"] = w.get("to_v.weight", copies["key.weight"])
    if share == "heads":
        copies["compress_v"] = w["proj_v"].T[None]
    copies |= {"out.weight": w["to_out.weight"], "out.bias": w["to_out.bias"]}
    copies |= {f"{name}.bias": torch.zeros(12) for name in ("query", "key", "value")}
    layer.load_state_dict(copies)
    x = theirs["x"].detach().requires_grad_()
    y = layer(x)
    torch.testing.assert_close(y, theirs["y"], rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(y.sin().sum(), x)
    torch.testing.assert_close(gradient, theirs["gradient"], rtol=1e-12, atol=1e-12)
