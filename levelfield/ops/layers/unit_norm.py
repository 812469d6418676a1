"""Scales vectors to unit length over the last axis.

unit(x)                     # x / sqrt(|x|^2 + eps)
"""

from __future__ import annotations

import torch
from torch import Tensor


def unit(x: Tensor, eps: float = 1e-6) -> Tensor:
    """The unit vectors, of the same shape as x, (..., X), in float32 or wider. A zero vector stays zero."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return x * torch.linalg.vecdot(x, x).add(eps).rsqrt().unsqueeze(-1)
