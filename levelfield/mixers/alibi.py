"""Softmax attention with linear biases: the farther a key, the lower its score, and no other sense of position.

    y = linear(softmax(q k^T / sqrt(D / heads) - slope |i - j|) v)       per head, query i, key j
    slope of head h of H: 2^(-8 h / H), h = 1 .. H

    Alibi(heads=8)              # slopes 1/2, 1/4, ..., 1/256

The biases are the same at every length, which is why press2022 proposes them for sequences longer than those of
training. Letters: B batch, T steps, D width, H heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._heads import check_width
from levelfield.ops.attention.softmax import attend_sloped
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.recurrent import RecurrentLayer
from levelfield.spec import MixerConfig


@dataclass(frozen=True)
class Alibi(MixerConfig):
    """press2022, section 3. In two directions a key is as far after the query as before it."""

    heads: int = 4
    bias: bool = True  # of the four linear maps

    label: ClassVar[str] = "alibi"
    paper: ClassVar[str] = "press2022"
    complexity: ClassVar[str] = "T^2 D"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("Alibi", width, self.heads)
        return AlibiLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Keys and values of all steps."""
        return 2 * width * length


EXAMPLES = (Alibi(heads=2), Alibi(heads=4, bias=False))


def slopes(heads: int) -> Tensor:
    """(H,). Where H is no power of two: those of the power below it, then every second one of twice that power."""
    whole = 2 ** int(math.log2(heads))
    first = [2.0 ** (-8 * h / whole) for h in range(1, whole + 1)]
    between = [2.0 ** (-4 * h / whole) for h in range(1, 2 * whole, 2)]
    return torch.tensor((first + between)[:heads])


class AlibiLayer(RecurrentLayer):
    """(B, T, D) -> (B, T, D). Causal: padding comes after the real steps, where none of them sees it."""

    slopes: Tensor

    def __init__(self, config: Alibi, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.heads, self.causal = config.heads, causal
        self.qkv = linear(width, 3 * width, generator, config.bias)
        self.out = linear(width, width, generator, config.bias)
        self.register_buffer("slopes", slopes(config.heads), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        q, k, v = self.qkv(x).chunk(3, -1)
        return self._attended(q, k, v, None if self.causal else mask)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `keys` and `values` of all steps so far, (B, T, D) each."""
        q, k, v = self.qkv(x).chunk(3, -1)
        if state is not None:
            k, v = torch.cat([state["keys"], k], 1), torch.cat([state["values"], v], 1)
        return self._attended(q, k, v, None), {"keys": k, "values": v}

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        y = attend_sloped(q, k, v, mask, causal=self.causal, slopes=self.slopes)
        return self.out(y.transpose(1, 2).flatten(2))
