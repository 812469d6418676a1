"""Thresholds below which numbers are taken as zero, so that a CPU never computes with subnormal ones.

Decays multiply up to factors as small as e^-1000. Such a factor changes no sum, but on its way to zero it becomes a
subnormal number (below 1e-38 in float32), on which many CPUs are about a hundred times slower. The thresholds leave
room for a product of two such numbers.

    factor = decay_factor(log_decay.cumsum(1), torch.float32)      # exp, of at least e^-60
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG_UNDERFLOW = -60.0
"""Exponents of decays are clamped here: e^-60 is negligible beside any other term of a sum."""

UNDERFLOW = 1e-19
"""Entries of states and of powers below it are set to zero: the product of two of them would be subnormal."""

LOG_FACTOR_UNDERFLOW = -43.0
"""Logarithm below which a factor is set to zero: that of UNDERFLOW, rounded up."""


def decay_factor(exponent: Tensor, dtype: torch.dtype) -> Tensor:
    """The decay of sums of log-decays, none above 0, in `dtype` and of the same shape; at least e^LOG_UNDERFLOW."""
    return exponent.to(dtype).clamp(min=LOG_UNDERFLOW).exp_()


def forgets_all(log_decay: Tensor) -> Tensor:
    """True where a single step's decay is below the type's rounding: bool of the same shape as `log_decay`.

    There nothing that a gradient could measure is left of the past, and what is computed for it is rounding alone.
    """
    return log_decay < math.log(torch.finfo(log_decay.dtype).eps)
