"""A layer against its paper's equations, in half precision and over many steps: what the tests of single mixers share.

    twins.equal(twins.stirred(layer), partial(by_hand, layer), lengths=(21, 6))
    twins.half(layer, 0.05)
    twins.far(layer)

Letters: B batch, T steps, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn

Layer = TypeVar("Layer", bound=nn.Module)
WIDTH = 8  # D of every layer but where a test says otherwise


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in float32."""
    return torch.randn(shape, generator=Generator().manual_seed(seed))


def stirred(layer: Layer, size: float = 0.3) -> Layer:
    """The layer in float64, no parameter where it started: many start at values, such as 0, that would hide a fault."""
    draw = Generator().manual_seed(3)
    with torch.no_grad():
        for value in layer.double().parameters():
            value += size * torch.randn(value.shape, generator=draw, dtype=value.dtype)
    return layer


def equal(
    layer: nn.Module,
    by_hand: Callable[[Tensor], Tensor],
    lengths: tuple[int, ...],
    width: int = WIDTH,
    size: float = 1.0,
    value: float = 1e-9,
    gradient: tuple[float, float] = (1e-8, 1e-9),
) -> None:
    """A layer in float64 is `by_hand`, (T, D) -> (T, D), in value and in every gradient.

    Sequences have these `lengths`, the longest first: padded in one batch for the layer, by hand each alone. Inputs are
    normal, `size` times. `value` bounds the relative and the absolute error of values; `gradient` is the relative and
    the absolute error of gradients.
    """
    draw = Generator().manual_seed(5)
    x, pull = (torch.randn(len(lengths), lengths[0], width, generator=draw, dtype=torch.float64) for _ in range(2))
    x = (size * x).requires_grad_()
    mask = torch.arange(lengths[0]) < torch.tensor(lengths)[:, None]
    leaves = [x, *layer.parameters()]
    found = layer(x, mask)[mask]
    expected = torch.cat([by_hand(x[row, :length]) for row, length in enumerate(lengths)])
    torch.testing.assert_close(found, expected, rtol=value, atol=value)
    _same_gradients((found * pull[mask]).sum(), (expected * pull[mask]).sum(), leaves, gradient)


def unpadded(
    layer: nn.Module,
    by_hand: Callable[[Tensor], Tensor],
    x: Tensor,
    value: tuple[float, float] = (1e-9, 1e-10),
    gradient: tuple[float, float] = (1e-8, 1e-9),
) -> None:
    """A layer in float64 is `by_hand`, (B, T, D) -> (B, T, D), without a mask, in value and in every gradient.

    `value` and `gradient` bound the relative and the absolute error.
    """
    x = x.clone().requires_grad_()
    found, expected = layer(x, None), by_hand(x)
    torch.testing.assert_close(found, expected, rtol=value[0], atol=value[1])
    _same_gradients(found.sin().sum(), expected.sin().sum(), [x, *layer.parameters()], gradient, unused=True)


def _same_gradients(
    ours: Tensor, theirs: Tensor, leaves: list[Tensor], bounds: tuple[float, float], unused: bool = False
) -> None:
    """Two losses have the same gradients. unused: a leaf may be used by neither, as taps beyond the length are."""
    found, expected = (torch.autograd.grad(loss, leaves, materialize_grads=unused) for loss in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=bounds[0], atol=bounds[1])


def half(layer: nn.Module, share: float, by: Callable[[Tensor], Tensor] = torch.max) -> tuple[Tensor, Tensor]:
    """Under bfloat16's autocast a float32 layer is off by less than this share of its largest output (or of the `by`).

    All its parameters get finite gradients. Returns the input (2, 70, 8) and the output in float32.
    """
    x = normal(2, 70, WIDTH)
    exact = layer(x, None)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x, None)
    y.float().square().sum().backward()
    assert_finite_gradients(layer)
    assert by((y - exact).abs()) < share * by(exact.abs())
    return x, exact


def far(layer: nn.Module, steps: int = 1 << 16) -> None:
    """Output and gradients of all parameters are finite over so many steps."""
    y = layer(normal(1, steps, WIDTH), None)
    y.square().mean().backward()
    assert y.isfinite().all()
    assert_finite_gradients(layer)


def assert_finite_gradients(layer: nn.Module) -> None:
    """Every parameter has one."""
    assert all(value.grad is not None and value.grad.isfinite().all() for value in layer.parameters())
