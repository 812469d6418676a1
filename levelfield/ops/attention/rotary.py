"""Applies rotary positions, which rotate each pair of channels (2i, 2i + 1) of step t by the angle t * theta_i.

    theta_i = base^(-2i / dim)            i = 0 .. dim/2 - 1
    (a, b) -> (a cos - b sin, a sin + b cos)

The product of a rotated query and a rotated key depends only on their distance (su2024, section 3.2). With `half`,
theta is zero at even i, the fastest pair included, so those channels ignore position (miralles2025, table 5, "disable
half"). Angles are computed in float64, because at step 16,000 a float32 angle is already off by 1e-3.

Published weights often pair channel i with channel i + dim / 2 instead. That is the same function with the rows of the
query and key maps in another order, so weights are reordered when they are read (`neighbours_from_halves`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from levelfield.ops.layers.constants import table
from levelfield.ops.opaque import opaque


def frequencies(dim: int, base: float = 10000.0, half: bool = False) -> Tensor:
    """The angle per step of each pair of channels: (dim // 2,) float64. Raises ValueError if dim is odd."""
    if dim % 2:
        raise ValueError(
            f"Rotary positions rotate pairs of channels, so the number of channels must be even, not {dim}."
        )
    theta = base ** (-2 * torch.arange(dim // 2, dtype=torch.float64) / dim)
    if half:
        theta[0::2] = 0
    return theta


@opaque
def rotate(
    x: Tensor,
    heads: int = 1,
    base: float = 10000.0,
    half: bool = False,
    start: int | np.ndarray = 0,
    turned: int | None = None,
    scale: float = 1.0,
    last: int | None = None,
) -> Tensor:
    """Rotates every step of x, (..., T, D), by its position, that of the first step being `start`: the same shape.

    start: that position; or those of all steps, (T,) integers, which may have gaps. The D channels are `heads`
    groups, each with the angles of D / heads channels. turned: how many channels of each group, from the first, are
    rotated, with the angles of so many channels; None rotates all of them. scale: multiplies every position (chen2023,
    equation 4). last: the position of all steps after that one; None for their own.
    """
    length, width = x.shape[-2:]
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    turned = width // heads if turned is None else turned
    own, first = (start, 0) if isinstance(start, np.ndarray) else (None, start)
    if own is None and last is not None and first + length > last + 1:
        own = np.arange(first, first + length)
    angles = _Angles(width, heads=heads, base=base, half=half, turned=turned, scale=scale)
    turns = _table(_rounded(first + length if own is None else int(own.max()) + 1), angles, x.device, wide)
    turns = turns[first : first + length] if own is None else turns[torch.as_tensor(own.clip(0, last), device=x.device)]
    pairs = _aligned(x.to(wide).unflatten(-1, (width // 2, 2)))
    # One complex product passes over memory once; four real products take three times as long on a CPU.
    return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2).to(x.dtype)


def rotary_bias(first: Tensor, second: Tensor, length: int) -> Tensor:
    """A bias for every distance: `first`, rotated for step i, times `second`, rotated for step j (ma2023, appendix).

    first, second: (dim,), whose channels c and c + dim / 2 are pairs. The result is (2 length - 1,), for the distances
    j - i from -(length - 1) to length - 1: Re sum_c (first second*)_c exp(i theta_c (i - j)) depends only on j - i.
    """
    dim, device = first.shape[0], first.device
    angles = _Angles(dim, heads=1, base=10000.0, half=False, turned=dim)
    turns = _table(_rounded(length), angles, device, first.dtype)[:length]
    a, b = (torch.complex(*part.chunk(2)) for part in (first, second))
    product = a * b.conj()
    near, turned = turns.real @ product.real, turns.imag @ product.imag
    return torch.cat([(near - turned).flip(0), (near + turned)[1:]])


def neighbours_from_halves(rows: Tensor, heads: int, turned: int | None = None) -> Tensor:
    """Reorders rows of a query or key map, or of its bias, from pairs (i, i + turned / 2) to pairs (2i, 2i + 1).

    rows: (heads * dim, ...) -> the same shape. turned: how many channels of each head, from the first, are pairs; None
    means all.
    """
    parts = rows.unflatten(0, (heads, -1))
    turned = parts.shape[1] if turned is None else turned
    pairs = parts[:, :turned].unflatten(1, (2, turned // 2)).transpose(1, 2).flatten(1, 2)
    return torch.cat([pairs, parts[:, turned:]], 1).flatten(0, 1)


def rotate_naive(
    x: Tensor,
    heads: int = 1,
    base: float = 10000.0,
    half: bool = False,
    start: int | np.ndarray = 0,
    turned: int | None = None,
    scale: float = 1.0,
    last: int | None = None,
) -> Tensor:
    """The naive twin of `rotate`, by one 2 x 2 rotation matrix after another: (..., T, D) -> the same shape."""
    group = x.shape[-1] // heads
    dim = group if turned is None else turned
    out = x.clone()
    for step in range(x.shape[-2]):
        for channel in range(0, x.shape[-1], 2):
            pair = channel % group // 2
            still = 2 * pair >= dim or (half and pair % 2 == 0)
            theta = torch.tensor(0.0 if still else base ** (-2 * pair / dim), dtype=torch.float64)
            position = start + step if isinstance(start, int) else int(start[step])
            position = position if last is None else min(position, last)
            angle = scale * position * theta
            cos, sin = torch.cos(angle), torch.sin(angle)
            matrix = torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])]).to(x.dtype)
            out[..., step, channel : channel + 2] = x[..., step, channel : channel + 2] @ matrix.T
    return out


def _rounded(length: int) -> int:
    """The next power of two, so that batches of many lengths share a few tables."""
    return 1 << max(0, length - 1).bit_length()


def _aligned(pairs: Tensor) -> Tensor:
    """The pairs, (..., 2), in a layout in which each can be read as a complex number; a copy where it must be."""
    *strides, last = pairs.stride()
    fits = last == 1 and pairs.storage_offset() % 2 == 0 and not any(stride % 2 for stride in strides)
    return pairs if fits else pairs.contiguous()


class _Angles(NamedTuple):
    """The angles of all channels; see `rotate`."""

    width: int
    heads: int
    base: float
    half: bool
    turned: int
    scale: float = 1.0


@table
def _table(length: int, angles: _Angles, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The factors cos + i sin of every angle: (length, width // 2) complex, with parts of `dtype`."""
    still = torch.zeros(max(0, angles.width // angles.heads - angles.turned) // 2, dtype=torch.float64)
    theta = torch.cat([frequencies(angles.turned, angles.base, angles.half), still]).repeat(angles.heads)
    phases = angles.scale * torch.arange(length, dtype=torch.float64)[:, None] * theta
    return torch.polar(torch.ones_like(phases), phases).to(device, dtype.to_complex())
