"""Computes the scores of all pairs of steps in a chunk, between which every key channel decays at a rate of its own.

With L_i the sums of log-decays in a chunk, the score of steps j <= i is sum_k q_ik k_jk exp(L_ik - L_jk). As a product
of q_i exp(L_i) and k_j exp(-L_j) it would overflow. A chunk is therefore halved again and again, down to blocks of
SMALL steps (yang2024, section 4.3, does so at two levels):

    . . . .       Pairs of steps in different halves are referred to the border m between the halves:
    . . . .           (q_i exp(L_i - L_m)) . (k_j exp(L_m - L_j)), with no exponent above 0, is one matrix product.
    x x . .       Pairs within a block of SMALL steps (here two) are computed distance by distance: k_j is multiplied
    x x . .           by one decay after another on its way to q_i, and nothing is exponentiated.

In the exclusive form a step is read before it decays: L_i is then the sum up to the step before i, and the score of
i = j is weighted by a bonus. The parts of the gradient by which L_i and L_j differ are left to the callers.

    decayed_scores(q, k, log_decay)            # the inclusive form with its gradients: (N, c, c), zero for j > i

Letters: N chunks, c steps in a chunk, a power of two; K channels, g blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.layers.underflow import decay_factor

SMALL = 8  # steps of a block whose pairs are computed distance by distance


class Pairs(NamedTuple):
    """What meets in the chunks, and the decays between their steps."""

    q: Tensor  # (N, c, K)
    k: Tensor  # (N, c, K)
    gate: Tensor  # exp(log_decay): (N, c, K)
    log_read: Tensor  # float64 L with which q_i reads: (N, c, K)
    log_written: Tensor  # float64 L with which k_j is written: (N, c, K)


def decayed_scores(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    """Scores of all pairs of steps in each chunk, (N, c, c), zero above the diagonal. Equal to `naive_decayed_scores`.

    q, k, log_decay: (N, c, K) of one type; log_decay is finite and not above 0; c is a power of two.
    """
    scores: Tensor = _DecayedScores.apply(q, k, log_decay)  # pyright: ignore[reportAssignmentType]
    return scores


def naive_decayed_scores(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    """`decayed_scores` by its formula, with the decay of every pair and channel: (N, c, c)."""
    total = log_decay.cumsum(1)
    size = total.shape[1]
    between = total.unsqueeze(2) - total.unsqueeze(1)  # (N, c, c, K)
    ahead = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
    decay = between.masked_fill(ahead.unsqueeze(-1), -torch.inf).exp()
    return torch.einsum("nik,njk,nijk->nij", q, k, decay)


class _DecayedScores(torch.autograd.Function):
    """Scores, (N, c, c), and their gradients for q, k and log_decay: (N, c, K) each."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, log_decay)
        return pair_scores(_inclusive(q, k, log_decay), None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, log_decay = ctx.saved_tensors
        grad_q, grad_k = pair_scores_backward(_inclusive(q, k, log_decay), grads[0], False)
        # exp(L_i) is a factor of q_i and exp(-L_j) one of k_j; a log-decay is in all L from its step on. Between a step
        # and itself nothing decays.
        slope = (q * grad_q - k * grad_k).double().flip(1).cumsum(1).flip(1).to(q.dtype)
        same = grads[0].diagonal(0, 1, 2).unsqueeze(-1)
        return grad_q + same * k, grad_k + same * q, slope


def _inclusive(q: Tensor, k: Tensor, log_decay: Tensor) -> Pairs:
    total = log_decay.double().cumsum(1)
    return Pairs(q, k, gate=decay_factor(log_decay, q.dtype), log_read=total, log_written=total)


def pair_scores(c: Pairs, bonus: Tensor | None) -> Tensor:
    """Scores of all pairs of steps in each chunk: (N, c, c), zero above the diagonal. bonus: (N, 1, K) or None."""
    size = c.q.shape[1]
    scores = c.q.new_zeros(c.q.shape[0], size, size)
    for half in _levels(size):
        from_border, to_border = _halves(c, half)
        qs, ks = c.q.unflatten(1, (-1, 2, half))[:, :, 1], c.k.unflatten(1, (-1, 2, half))[:, :, 0]
        _blocks(scores, 2 * half)[:, :, half:, :half] = (qs * from_border) @ (ks * to_border).mT
    small = min(SMALL, size)
    band = _blocks(scores, small)
    same = c.q * c.k if bonus is None else c.q * c.k * bonus
    scores.diagonal(0, 1, 2).copy_(same.sum(-1))
    qs, ks, gate = (x.unflatten(1, (-1, small)) for x in (c.q, c.k, c.gate))
    for distance, decayed in enumerate(_decaying(ks, gate, bonus is not None, True), 1):
        band.diagonal(-distance, 2, 3).copy_((qs[:, :, distance:] * decayed).sum(-1))
    return scores


def pair_scores_backward(c: Pairs, grad: Tensor, exclusive: bool) -> tuple[Tensor, Tensor]:
    """Gradients of q and k, (N, c, K) each, from that of the scores below the diagonal. grad: (N, c, c)."""
    size = c.q.shape[1]
    grad_q, grad_k = torch.zeros_like(c.q), torch.zeros_like(c.k)
    for half in _levels(size):
        from_border, to_border = _halves(c, half)
        qs, ks, to_q, to_k = (x.unflatten(1, (-1, 2, half)) for x in (c.q, c.k, grad_q, grad_k))
        corner = _blocks(grad, 2 * half)[:, :, half:, :half]
        to_q[:, :, 1].addcmul_(corner @ (ks[:, :, 0] * to_border), from_border)
        to_k[:, :, 0].addcmul_(corner.mT @ (qs[:, :, 1] * from_border), to_border)
    small = min(SMALL, size)
    band = _blocks(grad, small)
    qs, ks, gate, to_q, to_k = (x.unflatten(1, (-1, small)) for x in (c.q, c.k, c.gate, grad_q, grad_k))
    both = zip(_decaying(ks, gate, exclusive, True), _decaying(qs, gate, exclusive, False), strict=True)
    for distance, (from_k, from_q) in enumerate(both, 1):
        grad_score = band.diagonal(-distance, 2, 3).unsqueeze(-1)
        to_q[:, :, distance:].addcmul_(grad_score, from_k)
        to_k[:, :, :-distance].addcmul_(grad_score, from_q)
    return grad_q, grad_k


def _halves(c: Pairs, half: int) -> tuple[Tensor, Tensor]:
    """Decays to and from the border m between the halves of each block of 2 `half` steps: (N, g, half, K) each.

    They are exp(L_i - L_m) of the second halves and exp(L_m - L_j) of the first ones.
    """
    read, written = (x.unflatten(1, (-1, 2, half)) for x in (c.log_read, c.log_written))
    border = written[:, :, 0, -1:]
    from_border, to_border = read[:, :, 1] - border, border - written[:, :, 0]
    return decay_factor(from_border, c.q.dtype), decay_factor(to_border, c.q.dtype)


def _levels(size: int) -> list[int]:
    """Steps of half a block, from half the chunk down to SMALL."""
    return [1 << p for p in range(size.bit_length() - 2, SMALL.bit_length() - 2, -1)]


def _blocks(scores: Tensor, size: int) -> Tensor:
    """The blocks on the diagonal of scores, as a view: (N, c, c) -> (N, g, size, size)."""
    number = scores.shape[1] // size
    return scores.view(-1, number, size, number, size).diagonal(0, 1, 3).movedim(-1, 1)


def _decaying(x: Tensor, gate: Tensor, exclusive: bool, forwards: bool) -> Iterator[Tensor]:
    """Yields x, (N, g, s, K), with the decay over 1, 2, ... steps: (N, g, s - distance, K).

    Forwards it is x of step j as it has decayed by step i = j + distance, at i; backwards it is x of step i, at j.
    """
    size = x.shape[2]
    for distance in range(1, size):
        x = x[:, :, :-1] if forwards else x[:, :, 1:]
        if forwards:
            passed = gate[:, :, distance - exclusive : size - exclusive]
        else:
            passed = gate[:, :, 1 : size - distance + 1]
        # In the exclusive form the step before has not decayed yet when it is read.
        if not exclusive or distance > 1:
            x = x * passed
        yield x
