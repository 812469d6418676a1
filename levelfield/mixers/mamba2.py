"""Mamba-2 is a selective state-space model with one decay per head, computed as attention with decay (SSD).

    z, x, B, C, dt = W_in u;     x, B, C = silu(causal convolution of each channel);     dt = softplus(dt + bias)
    S_t = exp(-dt_t exp(A_log)) S_{t-1} + dt_t B_t x_t^T,     y_t = C_t S_t + D x_t         S: (N, P) per head
    out = W_out (rmsnorm(y silu(z)) weight)

The layer is that of Dao and Gu (2024), section 7. How long a head remembers depends on what it reads: dt near 0 keeps
the state, a large dt forgets it for x_t.

    Mamba2(state=128, head=64)                # state-spaces/mamba2-2.7b: width 2560, 80 heads

Names and shapes of the parameters are those of the authors' code, so that its weights load as they are. Letters: B
batch, T steps, D width, E = expand D inner channels, H heads of P channels, G groups, N state, W taps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._memory import NormWeight
from levelfield.ops.conv.short import short_conv
from levelfield.ops.layers.gated_norm import gated_norm
from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.ssm.selective import step_bias
from levelfield.spec import MixerConfig, ParamRule, UserError


@dataclass(frozen=True)
class Mamba2(MixerConfig):
    """Mamba-2 of dao2024, section 7, with the defaults and initial values of its code (mamba_ssm, `Mamba2`).

    state: N, how many numbers a channel remembers. expand: inner channels over the width. head: channels with one
    decay. groups: heads in a group share B and C, and are normed together. conv: taps of the short convolution. At
    first softplus of dt's bias is log-uniform in [dt_min, dt_max] and exp(A_log) uniform in [a_min, a_max].
    """

    state: int = 128
    expand: int = 2
    head: int = 64
    groups: int = 1
    conv: int = 4
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    a_min: float = 1.0
    a_max: float = 16.0

    label: ClassVar[str] = "mamba2"
    paper: ClassVar[str] = "dao2024"
    complexity: ClassVar[str] = "T D expand state"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if min(self.state, self.expand, self.head, self.groups, self.conv) < 1:
            raise UserError("Mamba2's state, expand, head, groups and conv are all at least 1.")
        if self.expand * width % self.head:
            raise UserError(
                f"Mamba2 cannot split {self.expand} x {width} inner channels into heads of {self.head}: "
                "choose a divisor of them."
            )
        if self.expand * width // self.head % self.groups:
            raise UserError(
                f"Mamba2 cannot split {self.expand * width // self.head} heads into {self.groups} groups: "
                "choose a divisor of them."
            )
        if not (0 < self.dt_min <= self.dt_max and 0 < self.a_min <= self.a_max):
            raise UserError("Mamba2 needs 0 < dt_min <= dt_max and 0 < a_min <= a_max.")
        return Mamba2Layer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the last inputs of the convolution, and N numbers for every inner channel."""
        inner = self.expand * width
        return (self.conv - 1) * (inner + 2 * self.groups * self.state) + inner * self.state

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("A_log", "D", "dt_bias"), ParamRule(weight_decay=0.0))


EXAMPLES = (
    Mamba2(state=4, head=8),
    Mamba2(state=3, expand=1, head=2, groups=2, conv=2),
    Mamba2(state=2, head=4, conv=1),
)


class Mamba2Layer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: Mamba2, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        inner, shared = config.expand * width, 2 * config.groups * config.state
        self.heads = inner // config.head
        self.sizes = (inner, inner + shared, self.heads)  # z; x, B and C; dt
        self.in_proj = linear(width, sum(self.sizes), generator, bias=False)
        self.conv1d = conv1d(inner + shared, inner + shared, config.conv, generator, groups=inner + shared)
        self.dt_bias = nn.Parameter(step_bias(self.heads, config.dt_min, config.dt_max, generator))
        a = torch.empty(self.heads).uniform_(config.a_min, config.a_max, generator=generator)
        self.A_log = nn.Parameter(a.log())
        self.D = nn.Parameter(torch.ones(self.heads))
        self.norm = NormWeight(inner)
        self.out_proj = linear(inner, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `tail`, the convolution's last inputs, (B, W - 1, E + 2 G N), and `memory`, (B, H, N, P)."""
        c, kept = self.config, state or {}
        gate, mixed, dt = self.in_proj(x).split(self.sizes, dim=-1)
        mixed, tail = short_conv(mixed, self.conv1d.weight, self.conv1d.bias, kept.get("tail"))
        value, key, query = mixed.split((self.sizes[0], c.groups * c.state, c.groups * c.state), dim=-1)
        value = value.unflatten(-1, (self.heads, c.head))
        key, query = (part.unflatten(-1, (c.groups, c.state)).transpose(1, 2) for part in (key, query))
        # In float32: states are sums over all steps, and bfloat16 has no decay between 0.996 and 1.
        with torch.autocast(x.device.type, enabled=False):
            dt = F.softplus(dt.to(self.dt_bias.dtype) + self.dt_bias)  # (B, T, H)
            entering = (value * dt.unsqueeze(-1)).transpose(1, 2)
            decay = (-dt * self.A_log.exp()).transpose(1, 2)
            y, memory = decayed_attention(query, key, entering, decay, kept.get("memory"))
            y = torch.addcmul(y.transpose(1, 2), value.to(y.dtype), self.D.unsqueeze(-1))  # (B, T, H, P)
        y = gated_norm(*(part.reshape(*x.shape[:2], c.groups, -1) for part in (y, gate)), self._weight(), first=True)
        return self.out_proj(y.flatten(-2).to(x.dtype)), {"tail": tail, "memory": memory}

    def _weight(self) -> Tensor:
        return self.norm.weight.view(self.config.groups, -1)
