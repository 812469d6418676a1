"""Computes the recurrence of mLSTM: a matrix of memory with exponential gates, and a normaliser, the sum of its keys.

    C_t = f_t C_{t-1} + i_t k_t v_t^T,    n_t = f_t n_{t-1} + i_t k_t,    h_t = q_t C_t / max(|q_t . n_t|, 1)

i = exp(log_input) is unbounded, so C and n are kept divided by exp(m), where m_t is the largest logarithm of any weight
so far (beck2024, equations 15 to 17, 26 and 27):

    m_t = max(log_forget_t + m_{t-1}, log_input_t, 0),     h_t = q_t C'_t / max(|q_t . n'_t|, exp(-m_t))

Then the log-decay of C' is log_forget_t + m_{t-1} - m_t, never above 0, and k_t enters with the weight
exp(log_input_t - m_t), never above 1. This is `decayed_attention`, with a value channel of ones for n'. h does not
depend on m, so m needs no gradient.

    h, state = mlstm(q, k, v, log_input, log_forget)
    more, state = mlstm(*later, state=state)             # goes on where it stopped

Letters: B batch, H heads, T steps, K and V channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.opaque import opaque

LEAST = 1e-6  # smallest divisor relative to the largest weight; the authors' code adds as much to the divisor

State = tuple[Tensor, Tensor]
"""C' with n' as its last column, (B, H, K, V + 1), and m, (B, H)."""


@opaque
def mlstm(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_input: Tensor,
    log_forget: Tensor,
    state: State | None = None,
    chunk: int | None = None,
) -> tuple[Tensor, State]:
    """(B, H, T, V) in float32 or wider, and the state after the last step.

    q, k: (B, H, T, K); v: (B, H, T, V); log_input, log_forget: (B, H, T), finite, of any sign. Equal to `naive_mlstm`
    where |q . n| is not below a millionth of the largest weight. chunk: as of `decayed_attention`. It is fastest where
    the arguments lie as (B, T, H, X) in memory.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k, v, log_input, log_forget = (x.to(wide) for x in (q, k, v, log_input, log_forget))
    memory, before = (None, log_input.new_zeros(log_input.shape[:2])) if state is None else state
    with torch.autocast(q.device.type, enabled=False):
        peak, fall = _peaks(log_input, log_forget, before.to(wide))
        entering = (k * (log_input - peak).exp().unsqueeze(-1)).to(wide)
        values = F.pad(v.transpose(1, 2), (0, 1), value=1.0).transpose(1, 2)
        y, memory = decayed_attention(q, entering, values, log_forget + fall, state=memory, chunk=chunk)
        least = peak.neg().exp().clamp(min=LEAST).unsqueeze(-1)
        h = y[..., :-1] / torch.maximum(y[..., -1:].abs(), least)
    return h, (memory, peak[..., -1])


@torch.no_grad()
def _peaks(log_input: Tensor, log_forget: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """The maxima m_t, and m_{t-1} - m_t: (B, H, T) each. before: m of the step before the first, (B, H)."""
    total = log_forget.double().cumsum(-1)
    highest = (log_input.clamp(min=0) - total).cummax(-1).values
    peak = (torch.maximum(highest, before.unsqueeze(-1)) + total).to(log_input.dtype)
    fall = torch.cat([before.unsqueeze(-1), peak[..., :-1]], -1) - peak
    return peak, torch.minimum(fall, -log_forget)  # rounding alone could put it above


def naive_mlstm(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_input: Tensor,
    log_forget: Tensor,
    state: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """`mlstm` step by step, with its gates exponentiated as they are. state: C, (B, H, K, V), and n, (B, H, K)."""
    c, n = (v.new_zeros(*v.shape[:2], q.shape[3], v.shape[3]), torch.zeros_like(q[:, :, 0])) if state is None else state
    out = []
    for t in range(q.shape[2]):
        keep, take = log_forget[:, :, t, None].exp(), log_input[:, :, t, None].exp()
        c = keep.unsqueeze(-1) * c + (take * k[:, :, t]).unsqueeze(-1) * v[:, :, t].unsqueeze(-2)
        n = keep * n + take * k[:, :, t]
        divisor = (q[:, :, t] * n).sum(-1, keepdim=True).abs().clamp(min=1)
        out.append((q[:, :, t].unsqueeze(-2) @ c).squeeze(-2) / divisor)
    return torch.stack(out, 2), (c, n)
