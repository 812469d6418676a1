"""Computes attention whose weights are products of positive features, so that keys are summed before queries come.

    y_i = sum_j (q_i . k_j) v_j / sum_j (q_i . k_j)        q_i, k_j: features, none negative

Without a direction, the sums over j are one matrix and one vector per head. In the causal direction they are a running
state, computed in chunks by `decayed_attention`, where a value channel of ones gives the denominator. On a CPU, and
without decay, `attend_by_sums` computes it:

    y = attend_features(q, k, v, mask, eps=1e-6)                  # (B, H, T, F) features, (B, H, T, V) values
    y, state = attend_features_causal(q, k, v, log_decay, state, eps=1e-6)

Cost and memory are linear in T. All sums are taken in float32 or wider.
Letters: B batch, H heads, T steps, F features, V value channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.linear_attention.undecayed import attend_by_sums
from levelfield.ops.opaque import opaque


def attend_features(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, eps: float) -> Tensor:
    """Attention over all real steps. q, k: (B, H, T, F); v: (B, H, T, V) -> (B, H, T, V).

    mask: (B, T) bool, True at real steps, or None. `eps` is added to the denominator, so a sequence that is all padding
    gives zeros.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k, v = q.to(wide), k.to(wide), v.to(wide)
    if mask is not None:
        k = k.masked_fill(~mask[:, None, :, None], 0)
    with torch.autocast(q.device.type, enabled=False):
        weights = q @ k.sum(2).unsqueeze(-1)
        return (q @ (k.mT @ v)) / (weights + eps)


@opaque
def attend_features_causal(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, state: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Attention over the steps so far, (B, H, T, V), and the sums after the last step, (B, H, F, V + 1).

    q, k: (B, H, T, F); v: (B, H, T, V); log_decay: (B, H, T), logarithm of the factor by which each step multiplies the
    sums before it, or None for no decay; state: the sums before the first step, as returned, or None for zeros.
    """
    if log_decay is None and v.device.type == "cpu":
        return _summed(q, k, v, state, eps)
    if log_decay is None:
        log_decay = v.new_zeros(v.shape[:-1])
    y, state = decayed_attention(q, k, F.pad(v, (0, 1), value=1.0), log_decay, state)
    return y[..., :-1] / (y[..., -1:] + eps), state


def _summed(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """`attend_features_causal` without decay, by `attend_by_sums`."""
    wide = torch.promote_types(q.dtype, torch.float32)
    if state is None:
        state = v.new_zeros(*v.shape[:2], k.shape[3], v.shape[3] + 1, dtype=wide)
    q, k, v = (x.to(wide).transpose(1, 2) for x in (q, k, v))
    with torch.autocast(q.device.type, enabled=False):
        y, memory, total = attend_by_sums(q, k, v, state[..., :-1].to(wide), state[..., -1:].to(wide), eps=eps)
    return y.transpose(1, 2), torch.cat([memory, total], -1)
