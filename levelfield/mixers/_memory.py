"""Holds what layers of the delta rule share, which keep a matrix of memory for each head, and the weight of a norm.

    q, k, v = silu(causal convolution of three linear maps of x)        query_key_value
    S: (K, V) of each of H heads, and the convolutions' last inputs     DeltaMemory
    y = x / root mean square of x * weight                              NormWeight, which other layers have as well

Letters: B batch, T steps, D width, H heads, K and V channels of a head's keys and values, W taps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Generator, Tensor, nn

from levelfield.ops.conv.short import short_conv
from levelfield.ops.layers.init import conv1d
from levelfield.spec import MixerConfig


class DeltaMemory(MixerConfig):
    """What configs of the delta rule share. Each declares these settings itself, as their order decides ids of runs."""

    heads: int
    expand_k: float
    expand_v: float
    conv: int

    def channels(self, width: int) -> tuple[int, int]:
        """Channels of all heads' keys, and of all heads' values; of one factor, where a step has several."""
        return int(width * self.expand_k), int(width * self.expand_v)

    def state_size(self, width: int, length: int) -> int:
        """Counts the memories, and the last inputs of three convolutions."""
        keys, values = self.channels(width)
        return keys * values // self.heads + (self.conv - 1) * (2 * keys + values)


class NormWeight(nn.Module):
    """The weight, (C,), of a root-mean-square norm, under the name that checkpoints give it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))


def short_convs(keys: int, values: int, taps: int, generator: Generator) -> tuple[nn.Conv1d, nn.Conv1d, nn.Conv1d]:
    """The convolutions of queries, keys and values, drawn in this order: weights (channels, 1, W), no bias."""
    query, key, value = (conv1d(n, n, taps, generator, groups=n, bias=False) for n in (keys, keys, values))
    return query, key, value


def query_key_value(
    x: Tensor, maps: Sequence[tuple[nn.Linear, nn.Conv1d]], heads: int, state: Mapping[str, Tensor]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Queries, keys and values of x: (B, T, D), as (B, T, H, K) or (B, T, H, V), and the convolutions' last inputs.

    maps: the linear map and the convolution of each. state: the last inputs of the steps before, `q`, `k` and `v` of
    shape (B, W - 1, H K) or (B, W - 1, H V); where it is empty, they are zeros. The second result is their successor.
    """
    parts, tails = [], {}
    for name, (project, conv) in zip("qkv", maps, strict=True):
        part, tails[name] = short_conv(project(x), conv.weight, None, state.get(name))
        parts.append(part.unflatten(-1, (heads, -1)))
    return parts, tails
