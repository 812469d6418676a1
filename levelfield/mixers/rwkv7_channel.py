"""RWKV-7's channel mix is a feed-forward that sees the step before, with squared ReLU.

    out = W_v relu(W_k (x + (x_before - x) mu))^2

It is that of Peng et al. (2025), and takes the place of `Block`'s feed-forward, which sees one step alone. As a mixer
of its own it alternates with the time mix, in blocks without a feed-forward:

    Model(mixers=(RWKV7(blocks=2), RWKV7Channel(blocks=2)), depth=2 * 12, width=768, causal=True, block=Block())

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
class RWKV7Channel(MixerConfig):
    """The channel mix of peng2025, with the initial values of the authors' code (RWKV-LM, x070).

    hidden: inner channels; 0 is 4 times the width. layers, blocks: as in `RWKV7`.
    """

    hidden: int = 0
    layers: int = 12
    blocks: int = 1

    label: ClassVar[str] = "rwkv7_channel"
    paper: ClassVar[str] = "peng2025"
    complexity: ClassVar[str] = "T D hidden"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.hidden < 0 or min(self.layers, self.blocks) < 1:
            raise UserError("RWKV7Channel's layers and blocks are at least 1, and its hidden at least 0.")
        return RWKV7ChannelMix(self, width, layer, generator)

    def state_size(self, width: int, length: int) -> int:
        return width

    @property
    def receptive_field(self) -> int:
        return 2

    def param_rules(self) -> Mapping[str, ParamRule]:
        return {"x_k": ParamRule(weight_decay=0.0)}


EXAMPLES = (RWKV7Channel(hidden=12, layers=2), RWKV7Channel(layers=3, blocks=2))


class RWKV7ChannelMix(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: RWKV7Channel, width: int, layer: int, generator: Generator) -> None:
        super().__init__()
        hidden = config.hidden or 4 * width
        self.x_k = nn.Parameter(graded(width, depth_of(layer, config.layers, config.blocks).down ** 4))
        self.key = orthogonal_linear(width, hidden, generator)
        self.value = zero_linear(hidden, width)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the `last` input, (B, D)."""
        back, last = step_back(x, None if state is None else state["last"])
        return self.value(torch.relu(self.key(torch.addcmul(x, back, self.x_k))).square()), {"last": last}
