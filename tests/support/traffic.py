"""How many numbers a computation writes: what shows whether its memory and time are linear in the length.

assert growth(layer, 2048) < 1.1       # twice the length, twice the numbers
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Written(TorchDispatchMode):
    """Counts the elements of every tensor that an operation returns, views left out, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in given:
                self.count += x.numel()
        return result


def growth(layer: nn.Module, length: int, mask: bool = False) -> float:
    """Numbers written for twice as many steps, over twice those for `length`. Width 8: 1 for what is linear."""
    counts = []
    for steps in (length, 2 * length):
        x = torch.zeros(1, steps, 8, requires_grad=True)
        with Written() as written:
            layer(x, torch.ones(1, steps, dtype=torch.bool) if mask else None).sum().backward()
        counts.append(written.count)
    return counts[1] / (2 * counts[0])
