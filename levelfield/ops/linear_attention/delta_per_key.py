"""Computes the generalised delta rule of RWKV-7: a matrix of memory that decays by channel and is then corrected.

    S_t = diag(exp(log_decay_t)) S_{t-1} + b_t (a_t S_{t-1}) + k_t^T v_t,     y_t = q_t S_t          S: (K, V) per head

a is the key that is looked up and b the direction in which the result is written back; with a = -key and b = rate * key
this is a delta rule. It is computed a chunk of steps at a time (the WY form, as in `delta.py`). With L_i the sum of
log-decays in a chunk up to step i, and S the state before the chunk,

    u_i = a_i S_{i-1} = a_i exp(L_{i-1}) S + sum_{j < i} (a_i exp(L_{i-1} - L_j)) . (b_j u_j + k_j v_j)

is a triangular system in the u of a chunk, and y and the state after the chunk are sums of the same kind.

    y, state = delta_by_key(q, k, v, a, b, log_decay)
    more, state = delta_by_key(*later, state)          # goes on where it stopped

Letters: B batch, H heads, T steps, K key channels, V value channels, m chunks, c steps in a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelfield.ops.linear_attention.chunks import whole_chunks
from levelfield.ops.opaque import opaque
from levelfield.ops.vendor.dispatch import try_kernel

CHUNK = 32


@opaque
def delta_by_key(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    log_decay: Tensor,
    state: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """(B, T, H, V) and the state after the last step, (B, H, K, V), in float32 or wider.

    q, k, a, b, log_decay: (B, T, H, K), v: (B, T, H, V). log_decay must lie between -1 and 0: with m in the middle of
    a chunk, the factors of exp(L_i - L_m) exp(L_m - L_j) would overflow float32 otherwise. state: (B, H, K, V), or None
    for zeros. Equal to `naive_delta_by_key`.
    """
    given = try_kernel("delta_by_key", naive_delta_by_key, (q, k, v, a, b, log_decay, state))
    if given is not None:
        return given
    wide = torch.promote_types(q.dtype, torch.float32)
    length, chunk = q.shape[1], min(chunk, q.shape[1])
    start = v.new_zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3]) if state is None else state
    with torch.autocast(q.device.type, enabled=False):
        cut = [whole_chunks(x.to(wide), chunk) for x in (q, k, v, a, b, log_decay)]
        y, last = _chunks(cut, start.to(wide))
    return y.transpose(2, 3).flatten(1, 2)[:, :length], last


def naive_delta_by_key(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, log_decay: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`delta_by_key` by its equation, step by step. Arguments and results have the same shapes."""
    memory = v.new_zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3]) if state is None else state
    out = []
    for qt, kt, vt, at, bt, decay in zip(*(x.unbind(1) for x in (q, k, v, a, b, log_decay)), strict=True):
        found = at.unsqueeze(-2) @ memory
        memory = decay.exp().unsqueeze(-1) * memory + bt.unsqueeze(-1) * found + kt.unsqueeze(-1) * vt.unsqueeze(-2)
        out.append((qt.unsqueeze(-2) @ memory).squeeze(-2))
    return torch.stack(out, 1), memory


def _chunks(cut: list[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """The results of all chunks, (B, m, H, c, V), and the last state.

    cut: q, k, v, a, b and log_decay, as `whole_chunks` returns them.

    Decays within a chunk are taken to and from its middle, which halves the largest exponent.
    """
    q, k, v, a, b, log_decay = cut
    size = q.shape[3]
    total = log_decay.cumsum(3)
    middle, end = total[..., size // 2, None, :], total[..., -1:, :]
    from_middle, to_middle = (total - middle).exp(), (middle - total).exp()
    looked = a * (total - log_decay - middle).exp()  # a_i reads the state before step i decays it
    read, done, written = q * from_middle, b * to_middle, k * to_middle
    rows = torch.cat([looked, read], 3)  # (B, m, H, 2 c, K)
    by_done, by_written = rows @ done.mT, rows @ written.mT
    inverse = _inverse(by_done[..., :size, :].tril(-1))
    start = middle.exp()  # from the state before the chunk to its middle
    seen = rows * start
    own = inverse @ (by_written[..., :size, :].tril(-1) @ v)
    pushed = inverse @ seen[..., :size, :]
    last = (end - middle).exp()
    leave_done, leave_written, whole = (done * last).mT, (written * last).mT @ v, end.exp().mT
    states, found = [], []
    for push, u, leave, add, decay in zip(
        *(x.unbind(1) for x in (pushed, own, leave_done, leave_written, whole)), strict=True
    ):
        states.append(state)
        found.append(torch.matmul(push, state) + u)
        state = decay * state + leave @ found[-1] + add
    y = seen[..., size:, :] @ torch.stack(states, 1)
    y = y + by_done[..., size:, :].tril() @ torch.stack(found, 1) + by_written[..., size:, :].tril() @ v
    return y, state


def _inverse(below: Tensor) -> Tensor:
    """(I - below)^{-1} of strictly lower triangular matrices (..., c, c)."""
    eye = torch.eye(below.shape[-1], dtype=below.dtype, device=below.device)
    return torch.linalg.solve_triangular(eye - below, eye.expand_as(below), upper=False, unitriangular=True)
