"""Says how many operations torch's linear algebra takes, by the rule of `arithmetic.py` and the shapes of arguments.

Matrices are (..., T, T). What is not known here is named in `UNCOUNTED`, so that a run can say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

Shape = Sequence[int]
_aten = torch.ops.aten


def _triangular(a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    """A triangular solve with a, (..., T, T), of which half is zero, for b, (..., T, K)."""
    return math.prod(b) * a[-1]


def _eliminated(a: Shape, *_: Any, **__: Any) -> int:
    """The LU form of a, (..., T, T): at each pivot with m rows below it, m divisions and m^2 products and sums."""
    return math.prod(a[:-2]) * (a[-1] * (a[-1] - 1) * (4 * a[-1] + 1) // 6)


def _substituted(a: Shape, pivots: Any, b: Shape, **_: Any) -> int:
    """The two triangular solves with the LU form of a, (..., T, T), for b, (..., T, K) or of vectors (..., T)."""
    return 2 * _triangular(a, b)


def _solve(a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    return _eliminated(a) + _substituted(a, None, b)


def _inverse(a: Shape, *_: Any, **__: Any) -> int:
    return _solve(a, a)


def _cholesky(a: Shape, *_: Any, **__: Any) -> int:
    """The Cholesky form of a, (..., T, T): at each column with m rows below it, m divisions and m (m + 1) / 2 products
    and sums."""
    return math.prod(a[:-2]) * (a[-1] * (a[-1] - 1) * (2 * a[-1] + 5) // 6)


DISTANCE = {0.0: (2, 0), 1.0: (2, 3), 2.0: (3, 4), math.inf: (1, 3)}
"""Operations per pair and channel of distances by their norm, forward and backward."""
POWER = 3, 6  # of any other norm: difference, power and sum; backward also a product, a division and another power


def _distances(x: Shape, y: Shape, norm: float, *_: Any, **__: Any) -> int:
    """Distances of all pairs of x, (..., N, D), and y, (..., M, D): a difference, its power and the sum for each."""
    return DISTANCE.get(norm, POWER)[0] * math.prod(x) * y[-2]


def _distances_backward(grad: Shape, x: Shape, y: Shape, norm: float, *_: Any, **__: Any) -> int:
    """The gradient of x alone; that of y is another call."""
    return DISTANCE.get(norm, POWER)[1] * math.prod(x) * y[-2]


def _distances_by_product(x: Shape, y: Shape, *_: Any, **__: Any) -> int:
    """Distances as torch computes those of more than 25 points: squares, and a product of D + 2 channels."""
    return 2 * (math.prod(x) + math.prod(y)) + 2 * math.prod(x[:-1]) * y[-2] * (x[-1] + 2)


def _trilinear(a: Shape, b: Shape, c: Shape, *dimensions: Any, **_: Any) -> int:
    """The product of a and b, and that of the result and c, once for each index of one dimension, `unrolled`.

    dimensions: those that a lacks, that b lacks and that c lacks; those in `summed`, which are summed up in the first
    product where c lacks them, and in the second otherwise; and the unrolled one, which is summed after both, and is 1
    where it is left out. Bilinear layers are products of this kind, forward and backward.
    """
    new_a, new_b, new_c, summed, *rest = dimensions
    unrolled: int = rest[0] if rest else 1
    sides: list[list[int]] = []
    for shape, new in ((a, new_a), (b, new_b), (c, new_c)):
        left = iter(shape)
        sides.append([1 if d in new else next(left) for d in range(len(shape) + len(new))])
    first, last = [max(sizes) for sizes in zip(*sides[:2], strict=True)], sides[2]
    first[unrolled] = max(first[unrolled], last[unrolled])
    early, late = ({d for d in summed if d != unrolled and (d in new_c) == lacking} for lacking in (True, False))
    second = [max(1 if d in early else size, last[d]) for d, size in enumerate(first)]
    sums = math.prod(1 if d in late else size for d, size in enumerate(second)) if unrolled in summed else 0
    return (2 if early else 1) * math.prod(first) + (2 if late else 1) * math.prod(second) + sums


ALGEBRA: dict[Any, Callable[..., int]] = {
    _aten.linalg_solve_triangular: _triangular,
    _aten._linalg_solve_ex: _solve,
    _aten.linalg_lu_solve: _substituted,
    _aten.linalg_lu: _eliminated,
    _aten.linalg_lu_factor_ex: _eliminated,
    _aten._linalg_det: _eliminated,
    _aten._linalg_slogdet: _eliminated,
    _aten.linalg_inv_ex: _inverse,
    _aten.linalg_cholesky_ex: _cholesky,
    _aten._trilinear: _trilinear,
    _aten._cdist_forward: _distances,
    _aten._cdist_backward: _distances_backward,
    _aten._euclidean_dist: _distances_by_product,
}
"""Rules for operators, by the shapes of their arguments."""

UNCOUNTED = {
    getattr(_aten, name)
    for name in (
        "linalg_qr", "geqrf", "linalg_householder_product", "ormqr", "_linalg_svd", "linalg_eig", "_linalg_eigh",
        "_linalg_eigvals", "linalg_lstsq", "linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_matrix_exp",
        "cholesky_solve", "cholesky_inverse", "triangular_solve", "_pdist_forward", "_pdist_backward",
        "_embedding_bag", "_embedding_bag_dense_backward", "grid_sampler_2d", "grid_sampler_2d_backward",
    )
}  # fmt: skip
"""Operators that add and multiply by no rule here: they count as nothing."""
