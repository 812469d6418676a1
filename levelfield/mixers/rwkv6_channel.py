"""RWKV-6's channel mix is a feed-forward that sees the step before, with squared ReLU and a gate of its own.

    x_i = x + (x_before - x) mu_i,   i in k, r;     out = sigmoid(W_r x_r) * W_v relu(W_k x_k)^2

It is that of Peng et al. (2024), and takes the place of `Block`'s feed-forward, which sees one step alone. As a mixer
of its own it alternates with the time mix, in blocks without a feed-forward:

    Model(mixers=(RWKV6(blocks=2), RWKV6Channel(blocks=2)), depth=2 * 12, width=768, causal=True, block=Block())

Parameters have the names and shapes of the authors' checkpoints (`blocks.0.ffn.key.weight` is `key.weight` here).
Letters: B batch, T steps, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.ops.layers.init import orthogonal_linear, zero_linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.layers.token_shift import depth_of, graded, step_back
from levelfield.spec import MixerConfig, ParamRule, UserError


@dataclass(frozen=True)
class RWKV6Channel(MixerConfig):
    """The channel mix of peng2024's Finch, with the initial values of the authors' code (RWKV-LM, x060).

    hidden: inner channels; 0 is 3.5 times the width, rounded down to a multiple of 32. layers, blocks: as in `RWKV6`.
    """

    hidden: int = 0
    layers: int = 12
    blocks: int = 1

    label: ClassVar[str] = "rwkv6_channel"
    paper: ClassVar[str] = "peng2024"
    complexity: ClassVar[str] = "T D hidden"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.hidden < 0 or min(self.layers, self.blocks) < 1:
            raise UserError("RWKV6Channel's layers and blocks are at least 1, and its hidden at least 0.")
        return RWKV6ChannelMix(self, width, layer, generator)

    def inner(self, width: int) -> int:
        """Channels between the two maps."""
        return self.hidden or max(32, int(3.5 * width) // 32 * 32)

    def state_size(self, width: int, length: int) -> int:
        return width

    @property
    def receptive_field(self) -> int:
        return 2

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("time_maa_k", "time_maa_r"), ParamRule(weight_decay=0.0))


EXAMPLES = (RWKV6Channel(hidden=12, layers=2), RWKV6Channel(layers=3, blocks=2))


class RWKV6ChannelMix(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: RWKV6Channel, width: int, layer: int, generator: Generator) -> None:
        super().__init__()
        mix = graded(width, depth_of(layer, config.layers, config.blocks).down)
        self.time_maa_k, self.time_maa_r = nn.Parameter(mix.clone()), nn.Parameter(mix.clone())
        self.key = orthogonal_linear(width, config.inner(width), generator)
        self.receptance = zero_linear(width, width)
        self.value = zero_linear(config.inner(width), width)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the `last` input, (B, D)."""
        back, last = step_back(x, None if state is None else state["last"])
        hidden = torch.relu(self.key(torch.addcmul(x, back, self.time_maa_k))).square()
        gate = torch.sigmoid(self.receptance(torch.addcmul(x, back, self.time_maa_r)))
        return gate * self.value(hidden), {"last": last}
