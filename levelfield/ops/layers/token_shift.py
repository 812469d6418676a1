"""RWKV's token shift: every step sees the input before its own, and channels choose how much of it.

    x:      x_0  x_1  x_2  x_3            step_back(x)_t = x_{t-1} - x_t,     x_{-1} = 0
    before:  0   x_0  x_1  x_2            a channel reads x_t + mix (x_{t-1} - x_t)

    back, last = step_back(x)                # last: what the step after these will see
    back, last = step_back(later, last)

First mixes are graded over the channels and over the depth of the model: `graded` and `depth_of`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


def step_back(x: Tensor, last: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """x: (B, T, D); last: (B, D), the input before the first, or None for zeros -> (B, T, D) and x's last, (B, D)."""
    before = F.pad(x, (0, 0, 1, -1)) if last is None else torch.cat([last.unsqueeze(1), x[:, :-1]], 1)
    return before - x, x[:, -1]


@dataclass(frozen=True)
class Depth:
    """Where a layer stands: `up` grows from 0 at the first to 1 at the last, `down` falls from 1 to 1 / layers."""

    up: float
    down: float
    height: float  # (1 + index) / layers


def depth_of(block: int, layers: int, blocks: int) -> Depth:
    """Of the layer that residual block `block` belongs to, in a model of so many layers of `blocks` blocks each.

    Layers beyond the declared ones count as the last.
    """
    index = min(block // blocks, layers - 1)
    return Depth(index / max(1, layers - 1), 1 - index / layers, (1 + index) / layers)


def graded(width: int, power: float) -> Tensor:
    """(1, 1, D) float32: 1 - (i / D)^power over the channels i, a first mix of the token shift."""
    return (1 - (torch.arange(width, dtype=torch.float64) / width).pow(power)).float().view(1, 1, width)
