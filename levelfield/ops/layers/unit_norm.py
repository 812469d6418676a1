"""Scales vectors to unit length over the last axis.

unit(x)                     # x / sqrt(|x|^2 + 1e-6)
"""

from __future__ import annotations

import torch
from torch import Tensor


def unit(x: Tensor) -> Tensor:
    """The unit vectors, of the same shape as x, (..., X), in float32 or wider. A zero vector stays zero."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return x * torch.linalg.vecdot(x, x).add(1e-6).rsqrt().unsqueeze(-1)
