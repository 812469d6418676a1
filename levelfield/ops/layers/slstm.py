"""Computes the recurrence of sLSTM: scalar memories with exponential gates that see the last output of their head.

    z = tanh(z~),   i = exp(i~),   f = sigmoid(f~),   o = sigmoid(o~),     each x~_t = given_t + R_x h_{t-1}, per head
    c_t = f c_{t-1} + i z,    n_t = f n_{t-1} + i,    h_t = o c_t / n_t

i is unbounded, so c and n are kept divided by exp(m), where m_t = max(log f + m_{t-1}, i~) is the largest logarithm of
any weight so far (beck2024, equations 15 to 17). h does not depend on m, which therefore needs no gradient, and n is at
least 1: the weight exp(m) is in the sum. Each step needs the output of the step before, so there is no parallel form.

    h, state = slstm(gates, recurrent)
    more, state = slstm(later, recurrent, state)         # goes on where it stopped

Letters: B batch, T steps, H heads, K channels of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from levelfield.ops.opaque import opaque


class State(NamedTuple):
    """What is carried from step to step, each (B, H, K): the output h, and c, n and m as they are kept."""

    output: Tensor
    cell: Tensor
    norm: Tensor
    peak: Tensor


@opaque
def slstm(gates: Tensor, recurrent: Tensor, state: State | None = None) -> tuple[Tensor, State]:
    """The outputs h, (B, T, H, K), and the state after the last step.

    gates: what is added to R h before the nonlinearities, (B, T, 4, H, K), in the order i, f, z, o; recurrent: R,
    (H, 4 K, K), to and from, of the gates in that order. All are float32 or all float64. The result does not depend on
    how far m is from what it could be, but is exact only where m is the maximum above.
    """
    batch, _, _, heads, channels = gates.shape
    if state is None:
        zero = gates.new_zeros(batch, heads, channels)
        state = State(zero, zero, zero, torch.full_like(zero, -torch.inf))
    output, cell, norm, peak = state
    steps, back = [], recurrent.mT  # (H, K, 4 K)
    for given in gates.unbind(1):
        fed = torch.bmm(output.transpose(0, 1), back).unflatten(-1, (4, channels))  # (H, B, 4, K)
        log_in, forget, z, o = (given + fed.permute(1, 2, 0, 3)).unbind(1)
        log_keep = F.logsigmoid(forget)
        higher = torch.maximum((log_keep + peak).detach(), log_in.detach())
        keep, enter = torch.exp(log_keep + (peak - higher)), torch.exp(log_in - higher)
        cell, norm, peak = keep * cell + enter * torch.tanh(z), keep * norm + enter, higher
        output = torch.sigmoid(o) * cell / norm
        steps.append(output)
    return torch.stack(steps, 1), State(output, cell, norm, peak)
