"""Computes what a linear map says of each query that fits all keys and values so far best: least squares at every step.

    P_t = argmin_P  sum_{j <= t} a_t .. a_{j+1} beta_j |v_j - k_j P|^2 + tr(P^T R P),      y_t = q_t P_t        per head
    G_t = a_t G_{t-1} + beta_t k_t k_t^T,    S_t = a_t S_{t-1} + beta_t k_t v_t^T,         y_t = x_t S_t,
    x_t = (G_t + R)^-1 q_t,    a_t = exp(log_decay_t),    R a diagonal matrix              G: (K, K), S: (K, V)

(vonoswald2025). No G_t is made but the last: x is found by conjugate gradients, which ask for nothing but
products of G_t with a vector. For all steps at once that is linear attention with decay, with k as the values too. Each
round of it makes x better, and K rounds would be exact but for rounding.

The gradient is that of the exact solution, by the equation it solves: with z = (G_t + R)^-1 dx_t, which takes as many
rounds again, dq_t = z, and everything in G_t and R gets what it would from the sum of -z (G_t + R) x_t, x held fixed.

    y, past = least_squares(Steps(q, k, v, beta, log_decay), ridge)      # ridge: the diagonal of R, (H, K)
    more, past = least_squares(later, ridge, past)                       # goes on where it stopped

Letters: B batch, H heads, T steps, K and V channels of a head's keys and values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.linear_attention.chunks import suited_chunk
from levelfield.ops.linear_attention.decay_per_head import attend_by_head
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.opaque import opaque

ROUNDS = 30
SCALED = 120  # the largest power of two by which a right-hand side is scaled, and its inverse; float32 has both


class Steps(NamedTuple):
    """What the steps bring: (B, H, T, K) twice, (B, H, T, V), and (B, H, T) twice; none of the last is above 0."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor  # not below 0
    log_decay: Tensor


class Past(NamedTuple):
    """G and S after some steps: (B, H, K, K) and (B, H, K, V)."""

    gram: Tensor
    memory: Tensor


class _System(NamedTuple):
    """What makes up the matrices G_t + R of all steps."""

    k: Tensor  # (B, H, T, K)
    written: Tensor  # beta k: (B, H, T, K)
    log_decay: Tensor  # (B, H, T)
    ridge: Tensor  # (H, 1, K)
    gram: Tensor  # before the first step: (B, H, K, K)

    def times(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(G_t + R) x_t at every step, (B, H, T, K), and G after the last.

        Never by the kernel of another package: those round factors to ten bits, and no solution is better than that.
        """
        rows = (part.transpose(1, 2) for part in (x, self.k, self.written, self.log_decay))
        seen, gram = attend_by_head(*rows, state=self.gram, chunk=suited_chunk(x.shape[3], x.device))
        return seen.transpose(1, 2) + self.ridge * x, gram


@opaque
def least_squares(steps: Steps, ridge: Tensor, past: Past | None = None, rounds: int = ROUNDS) -> tuple[Tensor, Past]:
    """The outputs, (B, H, T, V), and what later steps need. All of one type, float32 or wider.

    ridge: (H, K), above 0; past: None for zeros. Equal to `naive_least_squares` where rounds suffice. It is fastest
    where steps lie as (B, T, H, X) in memory.
    """
    q, k, v, beta, log_decay = steps
    past = _nothing(steps) if past is None else past
    rate = beta.unsqueeze(-1)
    system = _System(k, rate * k, log_decay, ridge.unsqueeze(1), past.gram)
    with torch.no_grad():
        x = _solved(system, q, rounds)
    seen, gram = system.times(x)
    x = _Solution.apply(q - seen, x, rounds, *(part.detach() for part in system))
    y, memory = decayed_attention(x, k, rate * v, log_decay, past.memory)  # pyright: ignore[reportArgumentType]
    return y, Past(gram, memory)


def naive_least_squares(steps: Steps, ridge: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
    """`least_squares` by its equations, step by step and exactly. Arguments and results have the same shapes."""
    gram, memory = _nothing(steps) if past is None else past
    out = []
    for q, k, v, beta, log_decay in zip(*(x.unbind(2) for x in steps), strict=True):
        a, rate, column = log_decay.exp()[..., None, None], beta[..., None, None], k.unsqueeze(-1)
        gram = a * gram + rate * column @ k.unsqueeze(-2)
        memory = a * memory + rate * column @ v.unsqueeze(-2)
        x = torch.linalg.solve(gram + torch.diag_embed(ridge), q)
        out.append((x.unsqueeze(-2) @ memory).squeeze(-2))
    return torch.stack(out, 2), Past(gram, memory)


class _Solution(torch.autograd.Function):
    """The solution x of (G_t + R) x_t = q_t as a function of what x leaves, which is 0 there: (B, H, T, K) each."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, rounds: int, *system: Tensor) -> Tensor:
        ctx.save_for_backward(*system)
        ctx.rounds = rounds
        return x.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _solved(_System(*ctx.saved_tensors), grads[0], ctx.rounds), *[None] * 7


def _solved(system: _System, q: Tensor, rounds: int) -> Tensor:
    """Solves (G_t + R) x_t = q_t, nearly, by conjugate gradients: (B, H, T, K). Every step has a course of its own.

    A solution is as large as what it is for, so each q is brought to about 1 by a power of two, which rounds nothing:
    of one of 1e-22, as gradients of early steps may be, products would be below any float32, and quotients NaN.
    """
    power = torch.frexp(q.abs().amax(-1, keepdim=True)).exponent.clamp(-SCALED, SCALED)
    q = torch.ldexp(q, -power)
    x, rest, way = torch.zeros_like(q), q, q
    size = torch.linalg.vecdot(rest, rest).unsqueeze(-1)
    rounding = torch.finfo(q.dtype).eps ** 2 * size  # what is left below it is no better known
    for _ in range(rounds):
        seen, _ = system.times(way)
        open_ = size > rounding
        far = torch.where(open_, size / torch.linalg.vecdot(way, seen).unsqueeze(-1), 0)
        x, rest = x + far * way, rest - far * seen
        left = torch.linalg.vecdot(rest, rest).unsqueeze(-1)
        way, size = rest + torch.where(open_, left / size, 0) * way, left
    return torch.ldexp(x, power)


def _nothing(steps: Steps) -> Past:
    key, value = torch.zeros_like(steps.k[:, :, 0]), torch.zeros_like(steps.v[:, :, 0])
    return Past(key.unsqueeze(-1) * key.unsqueeze(-2), key.unsqueeze(-1) * value.unsqueeze(-2))
