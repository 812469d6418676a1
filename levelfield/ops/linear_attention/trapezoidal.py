"""Computes linear attention with decay whose writes mix a step's input with the one before, as Mamba-3's rule does.

    S_t = a_t S_{t-1} + (1 - s_t) dt_t a_t k_{t-1} v_{t-1}^T + s_t dt_t k_t v_t^T,     y_t = q_t S_t      S: (K, V)

per head, with a_t = exp(log_decay_t): an integral over a step of length dt, from the input at both its ends. s = 1/2 is
the trapezoidal rule, s = 1 that of Mamba-2 (lahoti2026, section 3.1). What step t writes is thus in two parts, at t and
at t + 1. Taken together, and a step late, they are a recurrence with one write a step, as `decayed_attention` has it:

    R_t = a_t R_{t-1} + a_t (s_{t-1} dt_{t-1} + (1 - s_t) dt_t) k_{t-1} v_{t-1}^T,     S_t = R_t + s_t dt_t k_t v_t^T

    y, past = trapezoidal(Steps(q, k, v, log_decay, dt, share))
    more, past = trapezoidal(later, past)                                # goes on where it stopped

Letters: B batch, T steps, H heads, K and V channels of a head's keys and values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from levelfield.ops.layers.underflow import decay_factor
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.opaque import opaque


class Steps(NamedTuple):
    """What the steps bring: (B, T, H, K) twice, (B, T, H, V), and (B, T, H) three times."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor  # none above 0
    dt: Tensor  # how long a step is, above 0
    share: Tensor  # s: of a step's own input, between 0 and 1


class Past(NamedTuple):
    """S after some steps, (B, H, K, V), and the last step's key, (B, H, K), and value, (B, H, V)."""

    memory: Tensor
    key: Tensor
    value: Tensor


@opaque
def trapezoidal(steps: Steps, past: Past | None = None) -> tuple[Tensor, Past]:
    """The outputs, (B, T, H, V), and what later steps need. All of one type, float32 or wider; past: None for zeros.

    Equal to `naive_trapezoidal`.
    """
    q, k, v, log_decay, dt, share = steps
    past = _nothing(steps) if past is None else past
    key, value = (torch.cat([last.unsqueeze(1), x[:, :-1]], 1) for last, x in ((past.key, k), (past.value, v)))
    own = share * dt
    # The last step before these has been written by its own share already: its part of S is in the memory.
    written = torch.cat([torch.zeros_like(own[:, :1]), own[:, :-1]], 1) + dt - own
    late = value * (written * decay_factor(log_decay, dt.dtype)).unsqueeze(-1)
    rows = (x.transpose(1, 2) for x in (q, key, late, log_decay))
    y, memory = decayed_attention(*rows, state=past.memory)
    now = v * own.unsqueeze(-1)
    y = y.transpose(1, 2) + torch.linalg.vecdot(q, k).unsqueeze(-1) * now
    memory = memory + k[:, -1].unsqueeze(-1) * now[:, -1].unsqueeze(-2)
    return y, Past(memory, k[:, -1], v[:, -1])


def naive_trapezoidal(steps: Steps, past: Past | None = None) -> tuple[Tensor, Past]:
    """`trapezoidal` by its equation, step by step. Arguments and results have the same shapes."""
    memory, key, value = _nothing(steps) if past is None else past
    out = []
    for q, k, v, log_decay, dt, share in zip(*(x.unbind(1) for x in steps), strict=True):
        a, dt, share = (x[..., None, None] for x in (log_decay.exp(), dt, share))
        before, now = (x.unsqueeze(-1) * y.unsqueeze(-2) for x, y in ((key, value), (k, v)))
        memory = a * memory + (1 - share) * dt * a * before + share * dt * now
        out.append((q.unsqueeze(-2) @ memory).squeeze(-2))
        key, value = k, v
    return torch.stack(out, 1), Past(memory, key, value)


def _nothing(steps: Steps) -> Past:
    key, value = torch.zeros_like(steps.k[:, 0]), torch.zeros_like(steps.v[:, 0])
    return Past(key.unsqueeze(-1) * value.unsqueeze(-2), key, value)
