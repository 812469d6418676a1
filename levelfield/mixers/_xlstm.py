"""Holds what the mLSTM and the sLSTM share: parts under the names that checkpoints of the authors' code give them.

    y = Blocks(channels, block, spread, generator)(x)        each few channels mapped by themselves
    y = HeadNorm(channels)(h)                                each head normed by itself
    Convolution(channels, taps, generator).conv              a short convolution's weights

Letters: B batch, T steps, H heads of K channels, C = H K channels.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.ops.layers.block_diagonal import by_blocks
from levelfield.ops.layers.init import conv1d


class Blocks(nn.Module):
    """A linear map of each few channels by themselves, (..., C) -> (..., C): weight (C / block, to, from).

    spread: the standard deviation of the weight's first values.
    """

    def __init__(self, channels: int, block: int, spread: float, generator: Generator) -> None:
        super().__init__()
        weight = torch.empty(channels // block, block, block).normal_(0, spread, generator=generator)
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return by_blocks(x, self.weight.to(x.dtype))


class HeadNorm(nn.Module):
    """Layer norm of each head by itself, then channels scaled by 1 + weight: (B, T, H, K) -> (B, T, C)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]).flatten(-2) * (1 + self.weight)


class Convolution(nn.Module):
    """A short convolution's weights, one filter a channel."""

    def __init__(self, channels: int, taps: int, generator: Generator) -> None:
        super().__init__()
        self.conv = conv1d(channels, channels, taps, generator, groups=channels)
