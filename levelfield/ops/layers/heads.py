"""Computes queries, keys and values of several heads from one linear layer.

q, k, v = split_heads(x, qkv, heads=4)      # qkv: linear(D, 3 D); x: (B, T, D) -> (B, 4, T, D / 4) each
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def split_heads(x: Tensor, qkv: nn.Linear, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of x, (B, T, D): (B, H, T, d) each, which lie as (B, T, H, d) in memory.

    Each has a matrix product of its own, because a single product would leave the three interleaved in memory.
    """
    weights = qkv.weight.chunk(3)
    biases = (None,) * 3 if qkv.bias is None else qkv.bias.chunk(3)
    q, k, v = (
        F.linear(x, weight, bias).unflatten(-1, (heads, -1)).transpose(1, 2)
        for weight, bias in zip(weights, biases, strict=True)
    )
    return q, k, v
