"""Sums over the steps so far, in chunks, against pairs of steps: values, gradients, states, blocks."""

from __future__ import annotations

import pytest
import torch
from counted import Referee
from torch import Generator, Tensor

from levelfield.ops.linear_attention import chunks
from levelfield.ops.linear_attention.feature_map import attend_features_causal
from levelfield.ops.linear_attention.undecayed import attend_by_sums

EPS = 1e-3  # large enough to be seen


def _inputs(length: int, batch: int = 2, heads: int = 3, keys: int = 5, values: int = 4) -> list[Tensor]:
    """q, k, v, S and z, (B, T, H, X); features above 0, as exponentials are."""
    draw = Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    q, k = (normal(batch, length, heads, keys).exp() for _ in range(2))
    return [
        q,
        k,
        normal(batch, length, heads, values),
        normal(batch, heads, keys, values),
        normal(batch, heads, keys, 1).exp(),
    ]


def naive(leaves: list[Tensor]) -> tuple[Tensor, ...]:
    """Every pair of steps, and what came before the first."""
    q, k, v, memory, total = leaves
    weights = torch.einsum("bihk,bjhk->bhij", q, k).tril()
    above = torch.einsum("bhij,bjhv->bihv", weights, v) + torch.einsum("bihk,bhkv->bihv", q, memory)
    below = weights.sum(-1).transpose(1, 2).unsqueeze(-1) + torch.einsum("bihk,bhkv->bihv", q, total)
    after = memory + torch.einsum("bjhk,bjhv->bhkv", k, v)
    return above / (below + EPS), after, total + k.sum(1).unsqueeze(-1)


def _gradients(found: tuple[Tensor, ...], leaves: list[Tensor]) -> list[Tensor]:
    draw = Generator().manual_seed(9)
    pulls = [torch.randn(x.shape, generator=draw, dtype=x.dtype) for x in found]
    return [*found, *torch.autograd.grad(found, leaves, pulls)]


def _summed(leaves: list[Tensor], chunk: int) -> tuple[Tensor, ...]:
    q, k, v, memory, total = leaves
    return attend_by_sums(q, k, v, memory, total, EPS, chunk)


def _check(length: int, chunk: int, batch: int = 2) -> None:
    fast, slow = ([x.clone().requires_grad_() for x in _inputs(length, batch)] for _ in range(2))
    expected = _gradients(naive(slow), slow)
    for found, wanted in zip(_gradients(_summed(fast, chunk), fast), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        for found, wanted in zip(_summed(fast, chunk), expected, strict=False):
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length, chunk", [(1, 64), (6, 64), (37, 16), (64, 64), (129, 64)])
def test_chunks_are_sums_over_pairs(length: int, chunk: int) -> None:
    _check(length, chunk)


def test_blocking_for_caches_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows one by one and chunks two by two, as wide layers are computed."""
    monkeypatch.setattr(chunks, "CPU_BLOCK_ELEMENTS", 2 * 16 * 3 * 4)
    _check(70, 16, batch=3)


def test_nothing_forgotten_is_a_decay_of_one() -> None:
    """What a CPU computes without decays, beside the recurrence with decays that other devices take."""
    q, k, v, memory, total = (x.transpose(1, 2) if x.shape[1] == 70 else x for x in _inputs(70))
    state = torch.cat([memory, total], -1)
    for before in (None, state):
        found = attend_features_causal(q, k, v, None, before, EPS)
        expected = attend_features_causal(q, k, v, v.new_zeros(v.shape[:-1]), before, EPS)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("keys", [4, 16, 32, 64, 128])
def test_the_length_of_chunks_suits_the_keys(keys: int):
    """They take few more operations than the shortest chunks, each of which costs a call."""
    leaves = _inputs(256, batch=1, heads=1, keys=keys, values=keys)

    def operations(chunk: int | None) -> int:
        rows = [each.clone().requires_grad_() for each in leaves]
        with Referee() as referee:
            attend_by_sums(*rows, eps=EPS, chunk=chunk)[0].sum().backward()
        return referee.total

    assert operations(None) < 1.7 * operations(8)
