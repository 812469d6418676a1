"""Computes RWKV's token shift: every step also reads the input before it, with a weight for each channel.

    x:      x_0  x_1  x_2  x_3            step_back(x)_t = x_{t-1} - x_t,     x_{-1} = 0
    before:  0   x_0  x_1  x_2            a channel reads x_t + mix (x_{t-1} - x_t)

    back, last = step_back(x)                # last: the input that the step after these reads
    back, last = step_back(later, last)

Initial mixes are graded over the channels and over the depth of the model by `graded` and `depth_of`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


def step_back(x: Tensor, last: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Each step's previous input less its own, (B, T, D), and the last step of x, (B, D).

    x: (B, T, D); last: the input before the first step, (B, D), or None for zeros.
    """
    before = F.pad(x, (0, 0, 1, -1)) if last is None else torch.cat([last.unsqueeze(1), x[:, :-1]], 1)
    return before - x, x[:, -1]


@dataclass(frozen=True)
class Depth:
    """A layer's depth: `up` grows from 0 at the first layer to 1 at the last, `down` falls from 1 to 1 / layers."""

    up: float
    down: float
    height: float  # (1 + index) / layers


def depth_of(block: int, layers: int, blocks: int) -> Depth:
    """The depth of the layer that residual block `block` belongs to, in a model of layers with `blocks` blocks each.

    Layers beyond the declared number count as the last.
    """
    index = min(block // blocks, layers - 1)
    return Depth(index / max(1, layers - 1), 1 - index / layers, (1 + index) / layers)


def graded(width: int, power: float) -> Tensor:
    """An initial mix of the token shift, 1 - (i / D)^power over the channels i: (1, 1, D) float32."""
    return (1 - (torch.arange(width, dtype=torch.float64) / width).pow(power)).float().view(1, 1, width)
