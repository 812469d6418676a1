"""Computes the delta rule over a matrix of memory whose key channels decay, each at a rate of its own, by chunks.

    S_t = (I - beta_t k_t k_t^T) diag(exp(log_decay_t)) S_{t-1} + beta_t k_t v_t^T,     y_t = q_t S_t

S: (K, V) per head. This is Kimi Delta Attention (kimi2025, section 3). With equal decays in all channels of a head it
is `delta.py`'s rule, and with decays in (e^-1, 1) a case of `delta_per_key.py`, whose factors would overflow at others.
Let L_i be the sums of log-decays from a chunk's first step through its step i, S the state before the chunk and e_i the
error that step i corrects. The errors of a chunk solve one triangular system (the WY form):

    e_i + sum_{j < i} <k_i, k_j>_ij beta_j e_j = v_i - (k_i exp(L_i)) S,     <a, b>_ij = sum_c a_c b_c exp(L_ic - L_jc)
    y_i = (q_i exp(L_i)) S + sum_{j <= i} <q_i, k_j>_ij beta_j e_j

Only sums of log-decays over a range of steps are exponentiated, and none of these is positive (`decayed_scores.py`), so
decays may be of any strength. What the systems need is computed for all chunks at once; from chunk to chunk it takes
two products of small matrices.

    y, state = decayed_delta_rule(q, k, v, beta, log_decay)          # keys of unit length, beta in [0, 1]
    more, state = decayed_delta_rule(*later, state)                  # goes on where it stopped

Letters: B batch, H heads, T steps, K and V channels, m chunks, c steps in a chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from levelfield.ops.layers.underflow import decay_factor, forgets_all
from levelfield.ops.linear_attention.chunks import whole_chunks
from levelfield.ops.linear_attention.decayed_scores import decayed_scores
from levelfield.ops.opaque import opaque

CHUNK = 32


@opaque
def decayed_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor,
    state: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """(B, T, H, V) and the state after the last step, (B, H, K, V), in float32 or wider.

    q, k: (B, T, H, K); v: (B, T, H, V); beta: (B, T, H); log_decay: (B, T, H, K), finite and none above 0; state:
    (B, H, K, V), or None for zeros. chunk: steps, a power of two. The recurrence is stable where beta |k|^2 is at most
    2. Equal to `naive_decayed_delta_rule`.
    """
    length, wide = q.shape[1], torch.promote_types(q.dtype, torch.float32)
    chunk = min(chunk, 1 << (length - 1).bit_length())
    start = v.new_zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3]) if state is None else state
    with torch.autocast(q.device.type, enabled=False):
        log_decay = log_decay.to(wide)
        # Where a step's decay is below rounding, what is computed for its gradient is rounding alone.
        log_decay = torch.where(forgets_all(log_decay), log_decay.detach(), log_decay)
        cut = (whole_chunks(x.to(wide), chunk) for x in (q, k, v, beta.unsqueeze(-1), log_decay))
        y, last = _passed(_chunks(*cut), start.to(wide))
    return y.transpose(2, 3).flatten(1, 2)[:, :length], last


def naive_decayed_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`decayed_delta_rule` by its equation, step by step. Arguments and results have the same shapes."""
    memory = v.new_zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3]) if state is None else state
    eye, out = torch.eye(q.shape[3], dtype=q.dtype, device=q.device), []
    for qt, kt, vt, rate, decay in zip(*(x.unbind(1) for x in (q, k, v, beta, log_decay)), strict=True):
        column = kt.unsqueeze(-1)
        turn = eye - rate[..., None, None] * column @ column.mT
        memory = turn @ (decay.exp().unsqueeze(-1) * memory) + rate[..., None, None] * column @ vt.unsqueeze(-2)
        out.append((qt.unsqueeze(-2) @ memory).squeeze(-2))
    return torch.stack(out, 1), memory


class _Chunks(NamedTuple):
    """What is known of all chunks before the states are."""

    own: Tensor  # e where the state before the chunk is zero: (B, m, H, c, V)
    pushed: Tensor  # by which that state changes e: (B, m, H, c, K)
    read: Tensor  # q_i exp(L_i): (B, m, H, c, K)
    weights: Tensor  # <q_i, k_j>_ij beta_j, zero for j > i: (B, m, H, c, c)
    written: Tensor  # k_j exp(L_end - L_j) beta_j, in columns: (B, m, H, K, c)
    whole: Tensor  # exp(L_end): (B, m, H, K, 1)


def _chunks(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor) -> _Chunks:
    """All as `whole_chunks` returns them; beta: (B, m, H, c, 1)."""
    shape, size = v.shape[:3], v.shape[3]
    # Sums are float64: the difference of two large sums must not lose the small decays between them.
    total = log_decay.double().cumsum(3)
    before, after = (decay_factor(x, v.dtype) for x in (total, total[..., -1:, :] - total))
    rows, keys, decays = q.flatten(0, 2), k.flatten(0, 2), log_decay.flatten(0, 2)
    weights, overlap = (decayed_scores(x, keys, decays).unflatten(0, shape) * beta.mT for x in (rows, keys))
    eye = torch.eye(size, dtype=v.dtype, device=v.device).expand_as(overlap)
    # The diagonal is taken as ones, and what lies above it is not read.
    inverse = torch.linalg.solve_triangular(overlap, eye, upper=False, unitriangular=True)
    return _Chunks(
        own=inverse @ v,
        pushed=inverse @ (k * before),
        read=q * before,
        weights=weights,
        written=(k * after * beta).mT,
        whole=before[..., -1:, :].mT,
    )


def _passed(c: _Chunks, state: Tensor) -> tuple[Tensor, Tensor]:
    """The results of all chunks, (B, m, H, c, V), and the last state, (B, H, K, V)."""
    states, errors = [], []
    for own, pushed, written, whole in zip(*(x.unbind(1) for x in (c.own, c.pushed, c.written, c.whole)), strict=True):
        states.append(state)
        errors.append(own - pushed @ state)
        state = whole * state + written @ errors[-1]
    return c.read @ torch.stack(states, 1) + c.weights @ torch.stack(errors, 1), state
