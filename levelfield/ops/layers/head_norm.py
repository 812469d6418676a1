"""Applies group normalisation to a recurrent layer's output, with a group for each head.

head_norm(y, norm)        # y: (B, T, H, V); norm: GroupNorm(H, H V)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def head_norm(y: Tensor, norm: nn.GroupNorm) -> Tensor:
    """Gives each head mean 0 and variance 1, then scales and shifts: (B, T, H, V) -> (B, T, H V), float32 or wider."""
    wide = torch.promote_types(y.dtype, torch.float32)
    with torch.autocast(y.device.type, enabled=False):
        normed = F.layer_norm(y.to(wide), y.shape[-1:], eps=norm.eps).flatten(-2)
        return torch.addcmul(norm.bias.to(wide), normed, norm.weight.to(wide))
