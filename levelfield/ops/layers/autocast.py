"""Finds the type that a layer's output should have where parts of the layer run in a wider type than autocast's.

It is the type that a linear map of the same input would return.

    with torch.autocast("cpu", torch.bfloat16):
        working_type(torch.zeros(3))      # torch.bfloat16; without autocast torch.float32
"""

from __future__ import annotations

import torch
from torch import Tensor


def working_type(x: Tensor) -> torch.dtype:
    """The type of autocast if it is enabled for x's device, otherwise that of x, a tensor of any shape."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
