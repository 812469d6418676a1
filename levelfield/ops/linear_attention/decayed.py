"""Computes linear attention with decay, whose state is a matrix, a chunk of steps at a time.

    S_t = diag(exp(log_decay_t)) S_{t-1} + k_t v_t^T,     y_t = q_t S_t                  S: (K, V) per head

The decay is one number per head and step (Mamba-2's SSD, dao2024) or one per key channel too (GLA, yang2024; RWKV-6).
Within a chunk the pairs of steps are products of small matrices; between chunks only the state is passed on. So cost
and memory are linear in T, and no array of size (T, T) or (T, K, V) is made:

    y, state = decayed_attention(q, k, v, log_decay)                # log_decay: (B, H, T) or (B, H, T, K), <= 0
    more, state = decayed_attention(*later, state)                  # goes on where it stopped

Only sums of log-decays over a range of steps are exponentiated, and none of these is positive, so decays may be of any
strength. `decay_per_head.py` and `decay_per_key.py` do the work. On a CPU, decays per key are a compiled recurrence
(`decay_per_key_cpu.py`), and on a GPU the kernel of another package may be used (`vendor/dispatch.py`).
Letters: B batch, H heads, G groups of heads with the same q and k, T steps, K key channels, V value channels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelfield.ops.linear_attention.chunks import suited_chunk
from levelfield.ops.linear_attention.decay_per_head import attend_by_head
from levelfield.ops.linear_attention.decay_per_key import attend_by_key
from levelfield.ops.opaque import opaque
from levelfield.ops.vendor.dispatch import try_kernel


@opaque
def decayed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor | None = None,
    chunk: int | None = None,
    bonus: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(B, H, T, V) and the state after the last step, (B, H, K, V), in float32 or wider.

    q, k: (B, H, T, K); v: (B, H, T, V); log_decay: (B, H, T) or (B, H, T, K), finite and none above 0; state: (B, H, K,
    V), or None for zeros. With log_decay (B, H, T), q and k may be (B, G, T, K), each shared by H / G heads in turn.
    bonus: (H, K), only with log_decay (B, H, T, K): a step is then read before it enters the state, with a weight of
    its own, y_t = q_t (S_{t-1} + diag(bonus) k_t v_t^T) (RWKV-6; peng2024, equation 19). chunk: steps of a chunk, or
    None for what suits the sizes. Equal to `naive_decayed_attention`. It is fastest where the arguments lie as
    (B, T, H, X) in memory, as the result does.
    """
    by_key = "decay_by_key" if bonus is None else "decay_by_key_with_bonus"
    operator = "decay_by_head" if log_decay.dim() == 3 else by_key
    given = try_kernel(operator, naive_decayed_attention, (q, k, v, log_decay, state, bonus))
    if given is not None:
        return given
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k, v, log_decay = (x.to(wide).transpose(1, 2) for x in (q, k, v, log_decay))
    if state is None:
        state = v.new_zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3])
    chunk = suited_chunk(q.shape[3], q.device) if chunk is None else chunk
    with torch.autocast(q.device.type, enabled=False):
        if log_decay.dim() == 3:
            y, state = attend_by_head(q, k, v, log_decay, state=state.to(wide), chunk=chunk)
        else:
            y, state = attend_by_key(q, k, v, log_decay, state=state.to(wide), chunk=chunk, bonus=bonus)
    return y.transpose(1, 2), state


def naive_decayed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor | None = None,
    bonus: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`decayed_attention` by its equation, step by step. Arguments and results have the same shapes."""
    q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], dim=1) for x in (q, k))
    decay = log_decay.exp() if log_decay.dim() == 4 else log_decay.exp().unsqueeze(-1)
    if state is None:
        state = v.new_zeros(*v.shape[:2], q.shape[3], v.shape[3])
    out = []
    for t in range(q.shape[2]):
        outer = k[:, :, t, :, None] * v[:, :, t, None, :]
        before, state = state, decay[:, :, t, :, None] * state + outer
        seen = state if bonus is None else before + bonus[:, :, None] * outer
        out.append((q[:, :, t, None, :] @ seen).squeeze(-2))
    return torch.stack(out, dim=2), state
