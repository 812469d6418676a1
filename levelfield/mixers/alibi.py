"""ALiBi is softmax attention whose scores fall linearly with distance, at a slope for each head.

    y = linear(softmax(q k^T / sqrt(D / heads) - slope |i - j|) v)       per head, query i, key j
    slope of head h of H: 2^(-8 h / H), h = 1 .. H

    Alibi(heads=8)              # slopes 1/2, 1/4, ..., 1/256

The layer is that of Press et al. (2022), section 3. It has no other sense of position, and its biases are the same at
every length, which is why the paper proposes it for sequences longer than those of training. Letters: B batch, T steps,
D width, H heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._checks import check_width
from levelfield.ops.attention.softmax import attend_alibi
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig


@dataclass(frozen=True)
class Alibi(MixerConfig):
    """ALiBi of press2022, section 3. In two directions, keys after the query count as far as keys before it."""

    heads: int = 4
    bias: bool = True  # of the four linear maps

    label: ClassVar[str] = "alibi"
    paper: ClassVar[str] = "press2022"
    complexity: ClassVar[str] = "T^2 D"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("Alibi", width, self.heads)
        return AlibiLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the keys and values of all steps."""
        return 2 * width * length


EXAMPLES = (Alibi(heads=2), Alibi(heads=4, bias=False))


def slopes(heads: int) -> Tensor:
    """The slopes, (H,).

    Where H is no power of two, they are those of the largest power below it, and then every second slope of twice that
    power, as in the authors' code.
    """
    whole = 2 ** int(math.log2(heads))
    first = [2.0 ** (-8 * h / whole) for h in range(1, whole + 1)]
    between = [2.0 ** (-4 * h / whole) for h in range(1, 2 * whole, 2)]
    return torch.tensor((first + between)[:heads])


class AlibiLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). A causal layer needs no mask: no real step sees the padding after it."""

    slopes: Tensor

    def __init__(self, config: Alibi, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.heads, self.causal = config.heads, causal
        self.qkv = linear(width, 3 * width, generator, config.bias)
        self.out = linear(width, width, generator, config.bias)
        self.register_buffer("slopes", slopes(config.heads), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        q, k, v = self.qkv(x).chunk(3, -1)
        return self._attended(q, k, v, None if self.causal else mask)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `keys` and `values` of all steps so far, (B, T, D) each."""
        q, k, v = self.qkv(x).chunk(3, -1)
        if state is not None:
            k, v = torch.cat([state["keys"], k], 1), torch.cat([state["values"], v], 1)
        return self._attended(q, k, v, None), {"keys": k, "values": v}

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Returns (B, Q, D) for q: (B, Q, D); k, v: (B, K, D); mask: (B, K) bool, or None."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        y = attend_alibi(q, k, v, mask, causal=self.causal, slopes=self.slopes)
        return self.out(y.transpose(1, 2).flatten(2))
