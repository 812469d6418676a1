"""The type of a layer's output where parts of it run wider than autocast: that of a linear map of the same input.

with torch.autocast("cpu", torch.bfloat16):
    working_type(torch.zeros(3))      # torch.bfloat16; without autocast torch.float32
"""

from __future__ import annotations

import torch
from torch import Tensor


def working_type(x: Tensor) -> torch.dtype:
    """Autocast's type where it is on for x's device, else x's own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
