"""PaTH is softmax attention whose positions are learned: every step that is read turns the keys of all steps before it.

    q, k, v = three linear maps of x;     w = silu(causal convolution of W_2 W_1 x), of unit length per head
    beta = 2 sigmoid(W_b x + b), per head;     H_t = I - beta_t w_t w_t^T
    s_ij = q_i . (H_i .. H_{j+1} k_j) / sqrt(D / heads),     y_i = sum_{j <= i} softmax_j(s_i) v_j,     out = W_out y

The layer is that of Yang et al. (2025), "PaTH Attention: Position Encoding via Accumulating Householder
Transformations". Rotary positions multiply a key by one and the same rotation for each step of its distance; here the
steps between say by what. The factors are those that DeltaNet's memory goes through, reflections among them: a key can
be swapped with another, so that one layer follows a permutation over any number of steps.

    PaTH(heads=4)
    PaTH(heads=4, rank=None, conv=1)          # w by one map of the step alone

The paper's combination with FoX's forget gates is not here. Letters: B batch, T steps, D width, H heads, d = D / H
channels of a head, W taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._checks import check_taps, check_width
from levelfield.ops.attention.turned import Past, Steps, attend_turned
from levelfield.ops.conv.short import short_conv
from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.layers.unit_norm import unit
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class PaTH(MixerConfig):
    """PaTH attention of yang2025path, with the layer of its code (flash-linear-attention, `PaTHAttention`).

    rank: channels of the bottleneck that w comes through (None: one map without it). conv: taps of the convolution.
    """

    heads: int = 4
    rank: int | None = 32
    conv: int = 3

    label: ClassVar[str] = "path"
    paper: ClassVar[str] = "yang2025path"
    complexity: ClassVar[str] = "T^2 D"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("PaTH", width, self.heads)
        check_taps("PaTH", self.conv)
        if self.rank is not None and self.rank < 1:
            raise UserError(f"PaTH's bottleneck has at least one channel, not {self.rank}; None leaves it out.")
        return PaTHLayer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the keys and values of all steps, and the last inputs of the convolution."""
        return 2 * width * length + (self.conv - 1) * width


EXAMPLES = (PaTH(heads=2, rank=3), PaTH(heads=4, rank=None, conv=1))


class PaTHLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of flash-linear-attention's checkpoints.
    """

    def __init__(self, config: PaTH, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        self.q_proj, self.k_proj, self.v_proj = (linear(width, width, generator, bias=False) for _ in range(3))
        sizes = (width, width) if config.rank is None else (width, config.rank, width)
        maps = [linear(a, b, generator, bias=False) for a, b in pairwise(sizes)]
        self.w_proj = maps[0] if config.rank is None else nn.Sequential(*maps)
        self.w_conv1d = conv1d(width, width, config.conv, generator, groups=width, bias=False)
        self.bt_proj = linear(width, config.heads, generator)
        self.o_proj = linear(width, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `keys` of all steps as they stand at the last one, `values`, (B, H, T, d) each, and the convolution's
        last inputs, `tail`, (B, W - 1, D)."""
        kept, wide = state or {}, self.bt_proj.weight.dtype
        w, tail = short_conv(self.w_proj(x), self.w_conv1d.weight, None, kept.get("tail"))
        parts, rate = (self.q_proj(x), self.k_proj(x), self.v_proj(x), w), self.bt_proj(x)
        # In float32: keys are turned at every step, and errors of all turns add up.
        with torch.autocast(x.device.type, enabled=False):
            heads = (part.to(wide).unflatten(-1, (self.config.heads, -1)).transpose(1, 2) for part in parts)
            q, k, v, w = heads
            beta = 2 * rate.to(wide).sigmoid().mT
            past = Past(kept["keys"], kept["values"]) if kept else None
            y, keys = attend_turned(Steps(q, k, v, unit(w), beta), past)
            values = v if past is None else torch.cat([past.values, v], 2)
        return self.o_proj(y.transpose(1, 2).flatten(2).to(x.dtype)), {"keys": keys, "values": values, "tail": tail}
