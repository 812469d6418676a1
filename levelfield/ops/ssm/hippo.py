"""Computes HiPPO-LegS, the matrix from which state-space layers start, and the eigenvalues of its normal part.

    A[n, k] = -sqrt((2n + 1)(2k + 1)) below the diagonal, -(n + 1) on it;      x' = A x / t + b u / t

makes the state the coefficients of the past u in Legendre polynomials (gu2020). The eigenvectors of A are too badly
conditioned to use. But A + p p^T, with p[n] = sqrt(n + 1/2), is -1/2 plus a skew-symmetric matrix, whose eigenvectors
are unitary ("HiPPO-N").
"""

from __future__ import annotations

import torch
from torch import Tensor


def legs_matrices(state: int) -> tuple[Tensor, Tensor]:
    """The matrix A, (N, N), and the vector b, (N,), of HiPPO-LegS, float64."""
    n = torch.arange(state, dtype=torch.float64)
    root = torch.sqrt(2 * n + 1)
    return -torch.tril(root.unsqueeze(1) * root, -1) - torch.diag(n + 1), root


def legs_rank_one(state: int) -> Tensor:
    """The vector p of the rank-one term: (N,) float64."""
    return torch.sqrt(torch.arange(state, dtype=torch.float64) + 0.5)


def normal_legs(state: int) -> tuple[Tensor, Tensor]:
    """One of each conjugate pair of eigenvalues of A + p p^T, (N / 2,), and their eigenvectors, (N, N / 2), complex128.

    Frequencies rise. The phases of the eigenvectors are arbitrary.
    """
    a, _ = legs_matrices(state)
    p = legs_rank_one(state)
    skew = a + torch.outer(p, p) + 0.5 * torch.eye(state, dtype=torch.float64)
    frequency, basis = torch.linalg.eigh(-1j * skew)
    frequency = frequency[state // 2 :]  # the positive half
    return torch.complex(torch.full_like(frequency, -0.5), frequency), basis[:, state // 2 :]


def legs_nplr(state: int) -> tuple[Tensor, Tensor, Tensor]:
    """HiPPO-LegS as diag(poles) - p p* and b in its eigenbasis: (state / 2,) complex128 each, frequencies rising.

    The phases of the eigenvectors are chosen so that p is real and positive; then b = sqrt(2) p.
    """
    poles, basis = normal_legs(state)
    low_rank, drive = (basis.mH @ real.to(basis.dtype) for real in (legs_rank_one(state), legs_matrices(state)[1]))
    phase = low_rank / low_rank.abs()
    return poles, low_rank / phase, drive / phase
