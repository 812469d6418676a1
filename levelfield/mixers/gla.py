"""Gated linear attention keeps a matrix of memory per head, whose key channels decay at rates that the input sets.

    q, k, v = three linear maps of x;     log alpha = logsigmoid(W2 W1 x + b) / 16
    S_t = diag(alpha_t) S_{t-1} + k_t v_t^T,     o_t = q_t S_t / sqrt(K)                    S: (K, V) per head
    out = W_out (rmsnorm(o) weight * silu(W_gate x)),     the norm per head

The layer is that of Yang et al. (2024, "Gated Linear Attention Transformers with Hardware-Efficient Training"), section
4.

    GLA(heads=4)                # the paper's: keys of half the width, values of the width

Letters: B batch, T steps, D width, H heads, K and V channels of a head's keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_channels
from levelfield.ops.layers.gated_norm import gated_norm
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class GLA(MixerConfig):
    """GLA of yang2024, section 4 (equations 3, 5 and 6), with the layer of its code: RMS norm, no short convolution.

    expand_k, expand_v: channels of keys and of values, as multiples of the width. gate_rank: channels of the bottleneck
    that the decays come through. gate_divisor: tau of equation 4, which keeps decays near 1.
    """

    heads: int = 4
    expand_k: float = 0.5
    expand_v: float = 1.0
    gate_rank: int = 16
    gate_divisor: float = 16.0

    label: ClassVar[str] = "gla"
    paper: ClassVar[str] = "yang2024"
    complexity: ClassVar[str] = "T D^2 expand_k expand_v / heads"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_channels("GLA", *self.channels(width), self.heads)
        if self.gate_rank < 1 or self.gate_divisor <= 0:
            raise UserError("GLA needs a gate_rank of at least 1 and a positive gate_divisor.")
        return GLALayer(self, width, generator)

    def channels(self, width: int) -> tuple[int, int]:
        """Channels of all heads' keys, and of all heads' values."""
        return int(width * self.expand_k), int(width * self.expand_v)

    def state_size(self, width: int, length: int) -> int:
        keys, values = self.channels(width)
        return keys * values // self.heads


EXAMPLES = (GLA(heads=2), GLA(heads=1, expand_k=1.0, expand_v=2.0, gate_rank=3, gate_divisor=1.0))


class GLALayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: GLA, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        keys, values = config.channels(width)
        self.sizes = (keys, keys, values, values, config.gate_rank)
        self.q_proj = linear(width, keys, generator, bias=False)
        self.k_proj = linear(width, keys, generator, bias=False)
        self.v_proj = linear(width, values, generator, bias=False)
        self.g_proj = linear(width, values, generator, bias=False)
        self.gk_proj = nn.Sequential(
            linear(width, config.gate_rank, generator, bias=False), linear(config.gate_rank, keys, generator)
        )
        self.norm_weight = nn.Parameter(torch.ones(values // config.heads))
        self.o_proj = linear(values, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `memory`, (B, H, K, V)."""
        decay = F.logsigmoid(self.gk_proj(x).to(self.norm_weight.dtype)) / self.config.gate_divisor
        parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x), decay)
        query, key, value, decay = (part.unflatten(-1, (self.config.heads, -1)).transpose(1, 2) for part in parts)
        y, memory = decayed_attention(
            query * query.shape[-1] ** -0.5, key, value, decay, None if state is None else state["memory"]
        )
        gate = self.g_proj(x).unflatten(-1, (self.config.heads, -1))
        y = gated_norm(y.transpose(1, 2), gate, self.norm_weight, first=False)
        return self.o_proj(y.flatten(-2).to(x.dtype)), {"memory": memory}
