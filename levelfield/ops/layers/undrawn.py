"""Builds layers without drawing their weights, where only their shapes are asked for or others replace them.

with Undrawn():
    layer = nn.Linear(64, 64)       # its weights mean nothing
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

FILLS = (nn.init.kaiming_uniform_, nn.init.uniform_, nn.init.normal_)
DRAWS = (Tensor.uniform_, Tensor.normal_)


class Undrawn(TorchFunctionMode):
    """Leaves weights as the memory is, gives zeros for numbers that a layer draws and may try until they fit, and for
    an orthogonal basis what it would be made of."""

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.linalg.qr:
            return args[0], args[0][: args[0].shape[1]]
        if func in FILLS:
            return args[0] if args else (kwargs or {})["tensor"]
        if func in DRAWS:
            with torch.no_grad():
                return args[0].zero_()
        return func(*args, **(kwargs or {}))
