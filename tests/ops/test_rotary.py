"""Rotations against their naive twin and against what they promise: distances alone matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from levelfield.ops.attention.rotary import frequencies, neighbours_from_halves, rotate, rotate_naive

SETTINGS = [(1, 10000.0, False), (1, 500.0, True), (3, 10000.0, False), (2, 10000.0, True)]


def _normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("heads, base, half", SETTINGS)
@pytest.mark.parametrize("length", [1, 5, 17])
def test_value_and_gradient_equal_the_naive_twin(heads: int, base: float, half: bool, length: int) -> None:
    x, weights = _normal(2, length, 12), _normal(2, length, 12, seed=1)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    fast, slow = rotate(a, heads, base, half), rotate_naive(b, heads, base, half)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    (fast * weights).sum().backward()
    (slow * weights).sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12)


def test_a_quarter_turn_by_hand() -> None:
    """Base chosen so that the second pair turns by exactly pi / 2 per step."""
    base = (math.pi / 2) ** -2.0
    x = torch.tensor([[0.0, 0.0, 1.0, 0.0]] * 4, dtype=torch.float64)
    expected = torch.tensor([[1, 0], [0, 1], [-1, 0], [0, -1]], dtype=torch.float64)
    torch.testing.assert_close(rotate(x, base=base)[:, 2:], expected)


def test_products_depend_on_distance_alone() -> None:
    q, k = _normal(8), _normal(8, seed=1)
    turned_q, turned_k = rotate(q.expand(40, 8)), rotate(k.expand(40, 8))
    products = turned_q @ turned_k.T
    for distance in (-7, 0, 12):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert products.diagonal(5)[0] != pytest.approx(float(products.diagonal(-5)[0]))


def test_half_leaves_the_even_pairs_alone() -> None:
    x = _normal(3, 20, 8)
    turned = rotate(x, half=True)
    still = [0, 1, 4, 5]
    torch.testing.assert_close(turned[..., still], x[..., still])
    assert not torch.allclose(turned[:, 1:, [2, 3]], x[:, 1:, [2, 3]])
    assert frequencies(8, half=True).tolist() == [0, pytest.approx(0.1), 0, pytest.approx(1e-3)]


def test_settings_do_not_share_a_table() -> None:
    x = _normal(1, 6, 8)
    results = [rotate(x, *s) for s in [(1, 1e4, False), (1, 1e4, True), (2, 1e4, False), (1, 1e3, False)]]
    for i, a in enumerate(results):
        assert all(not torch.allclose(a, b) for b in results[i + 1 :])
    torch.testing.assert_close(rotate(x, 1, 1e4, False), results[0], rtol=0, atol=0)


def test_shorter_sequences_get_the_first_angles() -> None:
    x = _normal(1, 70, 8)
    torch.testing.assert_close(rotate(x)[:, :33], rotate(x[:, :33]), rtol=0, atol=0)


def test_angles_stay_exact_at_long_range() -> None:
    """Step 60,000 by 1 radian: float32 angles are only good to 4e-3 there, half precision not at all."""
    x = torch.tensor([1.0, 0.0]).repeat(60001, 1)
    got = rotate(x)[60000]
    torch.testing.assert_close(got, torch.tensor([math.cos(60000), math.sin(60000)]), rtol=0, atol=1e-6)
    low = rotate(x.bfloat16())[60000]
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), got, rtol=0, atol=5e-3)


def test_a_table_first_used_in_inference_mode_serves_training() -> None:
    with torch.inference_mode():
        rotate(_normal(1, 9, 10), base=1234.0)
    x = _normal(1, 9, 10).requires_grad_()
    rotate(x, base=1234.0).square().sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()


@pytest.mark.parametrize("cut", [slice(1, 9), slice(0, 8), slice(2, 18, 2)])
def test_any_memory_layout_will_do(cut: slice) -> None:
    """Pairs are read as complex numbers, which the strides and offsets of a slice can forbid."""
    x = _normal(2, 5, 19)[..., cut]
    torch.testing.assert_close(rotate(x), rotate_naive(x.contiguous()))
    torch.testing.assert_close(rotate(x.transpose(0, 1)), rotate_naive(x.transpose(0, 1).contiguous()))


@pytest.mark.parametrize("start, turned", [(3, None), (0, 4), (70, 2), (5, 6)])
def test_later_starts_and_channels_that_stay(start: int, turned: int | None) -> None:
    x = _normal(2, 5, 18)
    got = rotate(x, 3, start=start, turned=turned)
    torch.testing.assert_close(got, rotate_naive(x, 3, start=start, turned=turned), rtol=1e-12, atol=1e-12)
    whole = torch.cat([torch.zeros(2, start, 18, dtype=x.dtype), x], 1)
    torch.testing.assert_close(got, rotate(whole, 3, turned=turned)[:, start:])


def test_positions_are_scaled_and_end_at_the_last_one() -> None:
    x = _normal(2, 9, 12)
    got = rotate(x, 2, start=3, scale=0.3, last=6)
    torch.testing.assert_close(got, rotate_naive(x, 2, start=3, scale=0.3, last=6), rtol=1e-12, atol=1e-12)
    still = rotate(x[:, 3:4].expand(-1, 6, -1), 2, start=20, scale=0.3, last=6)  # all at position 6, as step 3 is here
    torch.testing.assert_close(still, got[:, 3:4].expand(-1, 6, -1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("last", [None, 9])
def test_positions_may_have_gaps(last: int | None) -> None:
    x, places = _normal(2, 5, 12), np.array([0, 3, 4, 9, 40])
    got = rotate(x, 2, start=places, last=last)
    torch.testing.assert_close(got, rotate_naive(x, 2, start=places, last=last), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got[:, 1:3], rotate(x[:, 1:3], 2, start=3))


def test_pairs_of_halves_are_pairs_of_neighbours_in_another_order() -> None:
    """Half-split rotation as in the code of LLaMA: x cos + [-second half, first half] sin."""
    rows, x, steps = _normal(2 * 8, 6), _normal(7, 6, seed=1), torch.arange(7, dtype=torch.float64)[:, None]
    angles = steps * torch.cat([frequencies(8)] * 2)
    y = (x @ rows.T).unflatten(-1, (2, 8)).transpose(0, 1)
    turned = y * angles.cos() + torch.cat([-y[..., 4:], y[..., :4]], -1) * angles.sin()
    ours = rotate(x @ neighbours_from_halves(rows, heads=2).T, heads=2).unflatten(-1, (2, 8)).transpose(0, 1)
    torch.testing.assert_close(ours @ ours.mT, turned @ turned.mT, rtol=1e-12, atol=1e-12)
    some = neighbours_from_halves(torch.arange(12), heads=2, turned=4)
    assert some.tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


def test_odd_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="pairs of channels"):
        rotate(_normal(1, 3, 6), heads=2)
