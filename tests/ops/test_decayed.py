"""Decayed attention in chunks against its equation run step by step: values, gradients, states, strong decays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import pytest
import torch
from torch import Generator, Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from levelfield.ops.arithmetic import Operations
from levelfield.ops.linear_attention import chunks, decay_per_key
from levelfield.ops.linear_attention.decayed import decayed_attention, naive_decayed_attention


@pytest.fixture(params=["cpu", "none"], autouse=True, ids=["compiled", "chunks"])
def _by_key(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decays by key are a compiled recurrence on a CPU, and chunks elsewhere: both must do what is said here."""
    monkeypatch.setattr(decay_per_key, "COMPILED", request.param)


def _inputs(
    heads: int, groups: int, length: int, kind: str, strength: float = 1.0, batch: int = 2, seed: int = 0
) -> list[Tensor | None]:
    """q, k, v, log_decay, state, bonus in float64. Decays are spread: most near 1, few as strong as `strength`."""
    draw = Generator().manual_seed(seed)
    keys, values = 5, 3

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    shape = (batch, heads, length) if kind == "head" else (batch, heads, length, keys)
    log_decay = -strength * torch.rand(shape, generator=draw, dtype=torch.float64) ** 3
    q, k = normal(batch, groups, length, keys), normal(batch, groups, length, keys)
    bonus = normal(heads, keys) if kind == "bonus" else None
    return [q, k, normal(batch, heads, length, values), log_decay, normal(batch, heads, keys, values), bonus]


def _results(inputs: Sequence[Tensor | None], chunk: int | None) -> list[Tensor]:
    """y, the last state and the gradients of everything that goes in; chunk None: by the equation."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
    q, k, v, log_decay, state, bonus = leaves
    assert q is not None and k is not None and v is not None and log_decay is not None
    if chunk is None:
        y, last = naive_decayed_attention(q, k, v, log_decay, state, bonus)
    else:
        y, last = decayed_attention(q, k, v, log_decay, state, chunk, bonus)
    draw = Generator().manual_seed(9)
    pulls = [torch.randn(x.shape, generator=draw, dtype=torch.float64).to(x.dtype) for x in (y, last)]
    grads = torch.autograd.grad((y, last), [x for x in leaves if x is not None], pulls)
    return [y, last, *grads]


@pytest.mark.parametrize("length, chunk", [(1, 64), (6, 64), (37, 16), (129, 64)])
@pytest.mark.parametrize(
    "heads, groups, kind", [(4, 1, "head"), (4, 2, "head"), (3, 3, "head"), (3, 3, "key"), (3, 3, "bonus")]
)
@pytest.mark.parametrize("strength", [0.5, 300.0])
def test_chunks_are_the_recurrence(
    heads: int, groups: int, kind: str, length: int, chunk: int, strength: float
) -> None:
    inputs = _inputs(heads, groups, length, kind, strength)
    for found, expected in zip(_results(inputs, chunk), _results(inputs, None), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("heads, groups, kind", [(4, 2, "head"), (2, 2, "key"), (2, 2, "bonus")])
def test_blocking_for_caches_changes_nothing(
    heads: int, groups: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows one by one and chunks two by two, as wide layers are computed."""
    inputs = _inputs(heads, groups, 70, kind, batch=3)
    whole = _results(inputs, 16)
    monkeypatch.setattr(chunks, "CPU_BLOCK_ELEMENTS", 2 * 16 * heads * 5)
    for found, expected in zip(_results(inputs, 16), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", ["head", "key", "bonus"])
def test_a_state_goes_on_where_it_stopped(kind: str) -> None:
    q, k, v, log_decay, state, bonus = _inputs(2, 2, 50, kind)
    assert q is not None and k is not None and v is not None and log_decay is not None
    whole, last = decayed_attention(q, k, v, log_decay, state, 16, bonus)
    parts, start = [], 0
    for size in (1, 20, 3, 26):
        cut = slice(start, start + size)
        given = None if state is None else state.clone()
        y, after = decayed_attention(q[:, :, cut], k[:, :, cut], v[:, :, cut], log_decay[:, :, cut], state, 16, bonus)
        assert state is None or given is None or torch.equal(state, given)  # it stays as it was
        state, start = after, start + size
        parts.append(y)
    assert state is not None
    torch.testing.assert_close(torch.cat(parts, 2), whole, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(state, last, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", ["head", "key", "bonus"])
@pytest.mark.parametrize("strength", [1.0, 1e4])
def test_single_precision_keeps_its_digits_at_any_decay(kind: str, strength: float) -> None:
    """After a decay by e^-1000 the next ones of a few percent must still count."""
    inputs = [x if x is None else x.float() for x in _inputs(3, 3, 70, kind, strength, batch=1)]
    exact = _results([None if x is None else x.double() for x in inputs], None)
    for found, expected in zip(_results(inputs, 64), exact, strict=True):
        assert found.dtype == torch.float32
        worst = (found - expected).abs().max()
        assert worst <= 2e-5 * expected.abs().max() + 1e-30


def test_half_precision_comes_in_and_single_goes_out() -> None:
    q, k, v, log_decay, _, _ = (None if x is None else x.bfloat16() for x in _inputs(2, 1, 20, "head"))
    assert q is not None and k is not None and v is not None and log_decay is not None
    with torch.autocast("cpu", torch.bfloat16):
        y, state = decayed_attention(q, k, v, log_decay)
    exact, _ = naive_decayed_attention(q.double(), k.double(), v.double(), log_decay.double())
    assert y.dtype == state.dtype == torch.float32
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keys", [5, 16, 33])
def test_keys_of_any_width_are_padded_to_whole_registers(keys: int) -> None:
    draw = Generator().manual_seed(3)
    q, k, v, decay = (torch.randn(2, 3, 9, keys, generator=draw, dtype=torch.float64) for _ in range(4))
    found = decayed_attention(q, k, v, -decay.abs())
    for ours, exact in zip(found, naive_decayed_attention(q, k, v, -decay.abs()), strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_the_heads(threads: int) -> None:
    inputs, before = _inputs(3, 3, 20, "bonus"), torch.get_num_threads()
    expected = _results(inputs, None)
    torch.set_num_threads(threads)
    try:
        for ours, exact in zip(_results(inputs, 16), expected, strict=True):
            torch.testing.assert_close(ours, exact, rtol=1e-10, atol=1e-10)
    finally:
        torch.set_num_threads(before)


def test_work_is_counted_with_values_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decay_per_key, "COMPILED", "cpu")
    counts = []
    for mode in (nullcontext(), FakeTensorMode()):
        with mode, Operations() as counter:
            q = torch.ones(2, 3, 9, 16, requires_grad=True)
            decayed_attention(q, q, q, -q)[0].sum().backward()
            assert q.grad is not None and q.grad.shape == q.shape
        counts.append(counter.total)
    assert counts[0] == counts[1] > 17 * 2 * 3 * 9 * 16 * 16
