"""Holds what DeltaNet, Gated DeltaNet and GLA share: layers that keep a matrix of memory for each head.

    q, k, v = silu(causal convolution of three linear maps of x)        query_key_value; not in GLA
    S: (K, V) of each of H heads, and the convolutions' last inputs     state_size

Letters: B batch, T steps, D width, H heads, K and V channels of a head's keys and values, W taps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Generator, Tensor, nn

from levelfield.ops.conv.short import short_conv
from levelfield.ops.layers.init import conv1d
from levelfield.spec import UserError


def check_taps(name: str, taps: int) -> None:
    """Raises UserError where the short convolutions would have no tap."""
    if taps < 1:
        raise UserError(f"{name}'s convolutions have at least one tap, not {taps}.")


def state_size(keys: int, values: int, heads: int, taps: int = 1) -> int:
    """Numbers carried from step to step by one sequence: H memories (K, V), and W - 1 inputs of three convolutions.

    keys, values: channels of all heads.
    """
    return keys * values // heads + (taps - 1) * (2 * keys + values)


class HeadNorm(nn.Module):
    """The weight, (V,), of a norm that every head shares."""

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
