"""Applies a block-diagonal matrix, which maps each few channels by themselves.

    by_blocks(x, weight)            # x: (..., n i), weight: (n, o, i) -> (..., n o)

Products of small matrices are slow, and a product with the whole matrix is mostly zeros. So a few neighbouring blocks
are joined into one, about as wide as a product needs to be fast.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHANNELS = 32  # input channels of a joined block


def by_blocks(x: Tensor, weight: Tensor) -> Tensor:
    """Maps x, (..., n i), by weight, (n, o, i), to (..., n o). Block b maps channels b i to b i + i - 1."""
    number, outputs, inputs = weight.shape
    joined = next(g for g in range(max(1, min(number, CHANNELS // inputs)), 0, -1) if number % g == 0)
    # (n / g, g, o, i) -> (n / g, g o, g i) with the g blocks on the diagonal
    wide = torch.diag_embed(weight.view(-1, joined, outputs, inputs).permute(0, 2, 3, 1)).permute(0, 3, 1, 4, 2)
    rows = x.reshape(-1, number // joined, joined * inputs).transpose(0, 1)
    y = torch.bmm(rows, wide.flatten(3, 4).flatten(1, 2).mT)
    return y.transpose(0, 1).reshape(*x.shape[:-1], number * outputs)
