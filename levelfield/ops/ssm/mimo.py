"""Computes a diagonal linear recurrence whose states all channels share: N states between two matrix products.

    h[t] = a h[t - 1] + B x[t],     y[t] = Re(C h[t])

Since all channels share the states, no channel needs a convolution of its own. The products take most of the time, and
the scan between them takes as long as reading the states once. Real and imaginary parts lie side by side, so that
complex B and C are real matrices of 2N rows or columns, at half the cost of complex products.

In two directions the same recurrence also runs from the last step to the first, and a second C reads it (smith2023).
Both directions include the step itself.

    y, last = mimo(x, a, drive, readout)                         # drive: (N, D), readout: (1 or 2, D', N)
    more, last = mimo(later, a, drive, readout, initial=last)    # continues, in one direction

Letters: B batch, T steps, D channels, N states, S directions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from levelfield.ops.opaque import opaque
from levelfield.ops.ssm.scan import naive_scan, scan


@opaque
def mimo(x: Tensor, a: Tensor, drive: Tensor, readout: Tensor, initial: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The outputs, (B, T, D') real, and the state after the last step, (B, N) complex.

    x: (B, T, D) real; a: (N,), drive: (N, D), readout: (S, D', N) and initial: (B, N), all complex, with S 1 or 2.
    Equal to `naive_mimo`.
    """
    inward = torch.view_as_real(drive.resolve_conj()).transpose(1, 2).flatten(0, 1)  # (2N, D)
    driven = torch.view_as_complex(F.linear(x, inward).unflatten(-1, (-1, 2)))
    outward = torch.view_as_real(readout.conj().resolve_conj()).flatten(2)  # Re(c h) = Re c Re h - Im c Im h
    states = scan(a, driven, initial)
    y = F.linear(torch.view_as_real(states).flatten(2), outward[0])
    if len(outward) == 2:
        y = y + F.linear(torch.view_as_real(scan(a, driven, reverse=True)).flatten(2), outward[1])
    return y, states[:, -1]


def naive_mimo(
    x: Tensor, a: Tensor, drive: Tensor, readout: Tensor, initial: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`mimo` in complex numbers, step by step. Arguments and results have the same shapes."""
    driven = x.to(drive.dtype) @ drive.T
    states = naive_scan(a, driven, initial)
    y = (states @ readout[0].T).real
    if len(readout) == 2:
        y = y + (naive_scan(a, driven, reverse=True) @ readout[1].T).real
    return y, states[:, -1]
