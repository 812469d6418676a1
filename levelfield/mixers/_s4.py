"""Holds the state-space layer that S4 and SPADE share: S4's parameters, its convolution kernel and its recurrence.

    x' = A x + b u,   y = Re(c x) + d u,   stepped by dt

Letters: B batch, T steps, D width, N conjugate pairs, K copies.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from levelfield.ops.ssm.dplr import bilinear, dplr_kernel
from levelfield.ops.ssm.step import dense, step_dense

RANDOM_SCALE = 0.1  # amos2025's random start: the published code redraws every parameter from N(0, 0.1^2)
Start = tuple[Tensor, Tensor | None, Tensor]
"""Poles, p (None: A is diagonal) and b of one copy, (N,) complex128 each: one of every conjugate pair."""


class StateSpace(nn.Module):
    """The parameters of S4's state space, each in continuous time or per step. They are never in 16 bits.

    dt: dt_min and dt_max, between which dt is drawn log-uniformly.
    """

    def __init__(
        self, width: int, causal: bool, start: Start, generator: Generator, *, copies: int, dt: tuple[float, float]
    ) -> None:
        super().__init__()
        poles, low_rank, drive = start
        self.log_decay = nn.Parameter((-poles.real).log().float().repeat(copies, 1))  # (K, N)
        self.frequency = nn.Parameter(poles.imag.float().repeat(copies, 1))  # (K, N)
        self.drive = nn.Parameter(_as_real(drive).repeat(copies, 1, 1))  # (K, N, 2): b
        p = None if low_rank is None else nn.Parameter(_as_real(low_rank).repeat(copies, 1, 1))
        self.low_rank = p  # (K, N, 2)
        log_dt = torch.empty(width).uniform_(math.log(dt[0]), math.log(dt[1]), generator=generator)
        self.log_dt = nn.Parameter(log_dt)  # (D,)
        # Complex standard normal: variance 1/2 for each part.
        readout = torch.empty(1 if causal else 2, width, len(poles), 2).normal_(0, 0.5**0.5, generator=generator)
        self.readout = nn.Parameter(readout)  # (1 or 2, D, N, 2): c
        self.skip = nn.Parameter(torch.empty(width).normal_(generator=generator))  # (D,): d

    def kernel(self, length: int) -> Tensor:
        """Returns the kernels, (1 or 2, D, length): forwards from lag 0, and backwards from lag -1."""
        poles, drive, low_rank, dt = self.continuous()
        assert low_rank is not None
        return dplr_kernel(poles, low_rank, drive, 2 * torch.view_as_complex(self.readout), dt, length=length)

    def advance(self, u: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns Re(c x), (B, D, T), for u of that shape, and the state after it, real parts before imaginary ones."""
        poles, drive, low_rank, dt = self.continuous()
        assert low_rank is not None
        readout = 2 * torch.view_as_complex(self.readout[0])  # a pair counts twice
        *parts, start = (part.to(u.dtype) for part in bilinear(poles, low_rank, drive, dt))
        return step_dense(dense(*parts), start, torch.cat([readout.real, -readout.imag], -1), u, before)

    def step_on(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns y, (B, D, T), for x: (B, T, D), and the state after it."""
        # In float32: bfloat16 has no number between 0.996 and 1, where decays of long memories lie.
        with torch.autocast(x.device.type, enabled=False):
            u = x.transpose(1, 2).to(self.skip.dtype)
            y, after = self.advance(u, before)
            return y + self.skip.unsqueeze(-1) * u, after

    def continuous(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Returns poles, b and p (None where A is diagonal), (D, N) complex each, and dt, (D, 1).

        The few parameters are taken to float64, so that steps far out keep their phase.
        """
        repeats = self.log_dt.shape[0] // self.log_decay.shape[0]
        poles = torch.complex(-self.log_decay.double().exp(), self.frequency.double()).repeat(repeats, 1)
        drive = torch.view_as_complex(self.drive.double()).repeat(repeats, 1)
        low_rank = None
        if self.low_rank is not None:
            low_rank = torch.view_as_complex(self.low_rank.double()).repeat(repeats, 1)
        return poles, drive, low_rank, self.log_dt.double().exp().unsqueeze(-1)


def _as_real(z: Tensor) -> Tensor:
    return torch.view_as_real(z).float()
