"""What layers that keep a matrix of memory per head share: DeltaNet, Gated DeltaNet and, but for the convolutions, GLA.

    q, k, v = silu(causal convolution of three linear maps of x)        query_key_value
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
    """Raise UserError where the short convolutions would have no tap."""
    if taps < 1:
        raise UserError(f"{name}'s convolutions have at least one tap, not {taps}.")


def state_size(keys: int, values: int, heads: int, taps: int = 1) -> int:
    """Numbers carried from step to step by one sequence: H memories (K, V), and W - 1 inputs of three convolutions.

    keys, values: channels of all heads.
    """
    return keys * values // heads + (taps - 1) * (2 * keys + values)


class HeadNorm(nn.Module):
    """The weight of a norm that every head shares, (V,)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))


def short_convs(keys: int, values: int, taps: int, generator: Generator) -> tuple[nn.Conv1d, nn.Conv1d, nn.Conv1d]:
    """Of queries, keys and values, drawn in this order: weights (channels, 1, W), no bias."""
    query, key, value = (conv1d(n, n, taps, generator, groups=n, bias=False) for n in (keys, keys, values))
    return query, key, value


def query_key_value(
    x: Tensor, maps: Sequence[tuple[nn.Linear, nn.Conv1d]], heads: int, state: Mapping[str, Tensor]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """x: (B, T, D); maps: of queries, keys and values -> those, (B, T, H, K) or (B, T, H, V), and the last inputs.

    The last inputs, `q`, `k` and `v`, are (B, W - 1, H K) or (B, W - 1, H V); those of before are in the state, or
    are zeros where it is empty.
    """
    parts, tails = [], {}
    for name, (project, conv) in zip("qkv", maps, strict=True):
        part, tails[name] = short_conv(project(x), conv.weight, None, state.get(name))
        parts.append(part.unflatten(-1, (heads, -1)))
    return parts, tails
