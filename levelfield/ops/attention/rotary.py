"""Rotary positions: each pair of channels (2i, 2i+1) of step t is turned by the angle t * theta_i.

    theta_i = base^(-2i / dim)            i = 0 .. dim/2 - 1
    (a, b) -> (a cos - b sin, a sin + b cos)

The product of a turned query and a turned key depends on their distance alone (su2024, section 3.2). With `half`, theta
is zero at even i, the fastest pair included, so those channels ignore position (miralles2025, table 5, "disable half").
Angles are computed in float64: at step 16,000 a float32 angle is already off by 1e-3.

Published weights often pair channel i with channel i + dim / 2 instead. That is the same function with the rows of the
query and key maps in another order, so weights are reordered when they are read (`neighbours_from_halves`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelfield.ops.layers.constants import table


def frequencies(dim: int, base: float = 10000.0, half: bool = False) -> Tensor:
    """Angle per step of each pair: (dim // 2,) float64. dim must be even."""
    if dim % 2:
        raise ValueError(f"Rotary positions turn pairs of channels, so {dim} channels cannot be.")
    theta = base ** (-2 * torch.arange(dim // 2, dtype=torch.float64) / dim)
    if half:
        theta[0::2] = 0
    return theta


def rotate(
    x: Tensor, heads: int = 1, base: float = 10000.0, half: bool = False, start: int = 0, turned: int | None = None
) -> Tensor:
    """Turn every step of x by its position, the first one's being `start`. x: (..., T, D) -> the same shape and dtype.

    The D channels are `heads` groups that each turn with the angles of D / heads channels; one group turns all D.
    turned: so many channels of each group, the first ones, turn (with the angles of so many); None is all of them.
    """
    length, width = x.shape[-2:]
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    turned = width // heads if turned is None else turned
    rows = _rounded(start + length)
    turns = _table(rows, width, heads, base, half, turned, x.device, wide)[start : start + length]
    pairs = _aligned(x.to(wide).unflatten(-1, (width // 2, 2)))
    # One complex product goes over memory once; the four real ones take three times as long on a CPU.
    return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2).to(x.dtype)


def rotary_bias(first: Tensor, second: Tensor, length: int, base: float = 10000.0) -> Tensor:
    """A bias for every distance: first, turned as at step i, times second, turned as at step j (ma2023, appendix).

    first, second: (dim,), whose channels c and c + dim / 2 are pairs -> (2 length - 1,), of the distances j - i from
    -(length - 1) to length - 1. It depends on j - i alone: Re sum_c (first second*)_c exp(i theta_c (i - j)).
    """
    dim, device = first.shape[0], first.device
    turns = _table(_rounded(length), dim, 1, base, False, dim, device, first.dtype)[:length]
    a, b = (torch.complex(*part.chunk(2)) for part in (first, second))
    product = a * b.conj()
    near, turned = turns.real @ product.real, turns.imag @ product.imag
    return torch.cat([(near - turned).flip(0), (near + turned)[1:]])


def neighbours_from_halves(rows: Tensor, heads: int, turned: int | None = None) -> Tensor:
    """Rows of a query or key map, or of its bias, from pairs (i, i + turned / 2) to pairs (2i, 2i + 1) in each head.

    rows: (heads * dim, ...) -> the same shape. turned: the first so many channels of each head are pairs; None is all.
    """
    parts = rows.unflatten(0, (heads, -1))
    turned = parts.shape[1] if turned is None else turned
    pairs = parts[:, :turned].unflatten(1, (2, turned // 2)).transpose(1, 2).flatten(1, 2)
    return torch.cat([pairs, parts[:, turned:]], 1).flatten(0, 1)


def rotate_naive(
    x: Tensor, heads: int = 1, base: float = 10000.0, half: bool = False, start: int = 0, turned: int | None = None
) -> Tensor:
    """The twin of `rotate`, one 2 x 2 rotation matrix after another. x: (..., T, D) -> the same."""
    group = x.shape[-1] // heads
    dim = group if turned is None else turned
    out = x.clone()
    for step in range(x.shape[-2]):
        for channel in range(0, x.shape[-1], 2):
            pair = channel % group // 2
            still = 2 * pair >= dim or (half and pair % 2 == 0)
            theta = torch.tensor(0.0 if still else base ** (-2 * pair / dim), dtype=torch.float64)
            angle = (start + step) * theta
            cos, sin = torch.cos(angle), torch.sin(angle)
            matrix = torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])]).to(x.dtype)
            out[..., step, channel : channel + 2] = x[..., step, channel : channel + 2] @ matrix.T
    return out


def _rounded(length: int) -> int:
    """The next power of two, so that batches of many lengths share a few tables."""
    return 1 << max(0, length - 1).bit_length()


def _aligned(pairs: Tensor) -> Tensor:
    """(..., 2) such that each pair can be read as one complex number; a copy where the layout forbids it."""
    *strides, last = pairs.stride()
    fits = last == 1 and pairs.storage_offset() % 2 == 0 and not any(stride % 2 for stride in strides)
    return pairs if fits else pairs.contiguous()


@table
def _table(
    length: int, width: int, heads: int, base: float, half: bool, turned: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """cos + i sin of every angle: (length, width // 2) complex, with parts of `dtype`."""
    still = torch.zeros(max(0, width // heads - turned) // 2, dtype=torch.float64)
    theta = torch.cat([frequencies(turned, base, half), still]).repeat(heads)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * theta
    return torch.polar(torch.ones_like(angles), angles).to(device, dtype.to_complex())
