"""Computes causal attention to keys that every later step turns: each step multiplies all keys before it by a matrix.

    H_t = I - beta_t w_t w_t^T,    s_ij = q_i . (H_i .. H_{j+1} k_j) / sqrt(d),    y_i = sum_{j <= i} softmax_j(s_i) v_j

per head (yang2025path). With beta_t = 2 and |w_t| = 1 a step is a reflection, with beta_t = 1 a projection, from which
there is no way back; so what is kept of the past are keys as they stand at its last step. A block of c steps turns them
all at once. With A the part of beta_i w_i . w_j where j < i and N the inverse of I + A (the UT transform):

    K <- K - K (N diag(beta) W)^T W                            keys from before the block, at its end
    S = (Q - tril(Q W^T) N diag(beta) W) K^T                   their scores; K as it was before the block
    S = tril(Q K^T - tril(Q W^T) N stril(diag(beta) W K^T))    scores of the block's own keys

    y, keys = attend_turned(Steps(q, k, v, w, beta))
    more, keys = attend_turned(later, Past(keys, v))           # goes on where it stopped

Scores exist for SEGMENT blocks of queries at a time: the backward pass makes them again from the keys at their start.
Letters: B batch, H heads, T steps, P steps before them, d channels of a head, c steps of a block.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from levelfield.ops.opaque import opaque

BLOCK = 64  # steps that turn keys at once
SEGMENT = 4  # blocks whose scores exist at a time


class Steps(NamedTuple):
    """What the steps bring: (B, H, T, d) four times, and how far each turns what is before it, (B, H, T)."""

    q: Tensor
    k: Tensor
    v: Tensor
    w: Tensor
    beta: Tensor


class Past(NamedTuple):
    """The steps before: their keys as they stand at the last of them, and their values, (B, H, P, d) each."""

    keys: Tensor
    values: Tensor


@opaque
def attend_turned(steps: Steps, past: Past | None = None, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """The outputs, (B, H, T, d), and the keys as they stand after the last step, (B, H, P + T, d).

    All of one type, float32 or wider; past: None where there is none. It is stable where beta |w|^2 is at most 2. Equal
    to `naive_attend_turned`.
    """
    keys, values = Past(steps.k[:, :, :0], steps.v[:, :, :0]) if past is None else past
    values = torch.cat([values, steps.v], 2)
    scaled = steps._replace(q=steps.q / math.sqrt(steps.q.shape[3]))
    out = []
    for part in zip(*(x.split(block * SEGMENT, 2) for x in scaled), strict=True):
        found = checkpoint(_segment, Steps(*part), keys, values, block, use_reentrant=False, preserve_rng_state=False)
        assert found is not None
        y, keys = found
        out.append(y)
    return torch.cat(out, 2), keys


def naive_attend_turned(steps: Steps, past: Past | None = None) -> tuple[Tensor, Tensor]:
    """`attend_turned` a step at a time. Arguments and results have the same shapes."""
    keys, values = Past(steps.k[:, :, :0], steps.v[:, :, :0]) if past is None else past
    out = []
    for q, k, v, w, beta in zip(*(x.split(1, 2) for x in steps), strict=True):
        keys = torch.cat([keys - beta.unsqueeze(-1) * (keys @ w.mT) * w, k], 2)
        values = torch.cat([values, v], 2)
        out.append((q @ keys.mT / math.sqrt(q.shape[3])).softmax(-1) @ values)
    return torch.cat(out, 2), keys


def _segment(steps: Steps, keys: Tensor, values: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """`attend_turned` for some steps, whose queries are scaled already, with the keys before them; a block at a time.

    keys: (B, H, P, d); values: (B, H, at least P + T, d).
    """
    out = []
    for part in zip(*(x.split(block, 2) for x in steps), strict=True):
        scores, keys = _block(Steps(*part), keys)
        out.append(scores.softmax(-1) @ values[:, :, : keys.shape[2]])
    return torch.cat(out, 2), keys


def _block(steps: Steps, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of a block's c steps, (B, H, c, P + c), and the keys after it, (B, H, P + c, d); keys: (B, H, P, d)."""
    q, k, _, w, beta = steps
    pull = beta.unsqueeze(-1) * w
    # How far each step turns keys along its w: those from before the block, and those of the block's earlier steps. The
    # diagonal is taken as ones, and what lies above it is not read.
    given = torch.cat([pull, (pull @ k.mT).tril(-1)], -1)
    turns = torch.linalg.solve_triangular(pull @ w.mT, given, upper=False, unitriangular=True)
    before, own = turns.split([w.shape[3], w.shape[2]], -1)
    along = (q @ w.mT).tril()
    ahead = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    here = (q @ k.mT - along @ own).masked_fill(ahead, -math.inf)
    scores = torch.cat([(q - along @ before) @ keys.mT, here], -1)
    return scores, torch.cat([keys - (keys @ before.mT) @ w, k - own.mT @ w], 2)
