"""Mamba is a selective state-space model with N decays per channel, whose step and weights depend on the input.

    x, z = W_in u;     x = silu(causal convolution of each channel)
    r, B, C = W_x x;     dt = softplus(W_dt r + bias)
    h_t = exp(-dt_t exp(A_log)) h_{t-1} + dt_t x_t B_t,     y_t = h_t C_t + D x_t           h: (E, N)
    out = W_out (y silu(z))

The layer is that of Gu and Dao (2023), section 3. As dt, B and C depend on what is read, the state keeps what matters
and lets the rest pass.

    Mamba(state=16)                # gu2023: expand 2, four taps, dt through width / 16 channels

Names and shapes of the parameters are those of the authors' code, so that its weights load as they are. Letters: B
batch, T steps, D width, E = expand D inner channels, N states, R rank of dt, W taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.ops.conv.short import short_conv
from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.ssm.selective import selective_scan, step_bias
from levelfield.spec import MixerConfig, ParamRule, UserError


@dataclass(frozen=True)
class Mamba(MixerConfig):
    """Mamba of gu2023, section 3, with the defaults and initial values of its code (mamba_ssm, `Mamba`).

    state: N, how many numbers a channel remembers. expand: inner channels over the width. conv: taps of the short
    convolution. rank: channels that dt is made from; None is width / 16, rounded up. At first softplus of dt's bias is
    log-uniform in [dt_min, dt_max], and the decay rates of a channel are 1, 2, ..., N.
    """

    state: int = 16
    expand: int = 2
    conv: int = 4
    rank: int | None = None
    dt_min: float = 1e-3
    dt_max: float = 1e-1

    label: ClassVar[str] = "mamba"
    paper: ClassVar[str] = "gu2023"
    complexity: ClassVar[str] = "T D expand state"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if min(self.state, self.expand, self.conv, self.inner_rank(width)) < 1:
            raise UserError("Mamba's state, expand, conv and rank are all at least 1.")
        if not 0 < self.dt_min <= self.dt_max:
            raise UserError(f"Mamba needs 0 < dt_min <= dt_max, not {self.dt_min} and {self.dt_max}.")
        return MambaLayer(self, width, generator)

    def inner_rank(self, width: int) -> int:
        """R, the channels that dt is made from."""
        return math.ceil(width / 16) if self.rank is None else self.rank

    def state_size(self, width: int, length: int) -> int:
        """Counts the last inputs of the convolution, and N numbers for every inner channel."""
        return self.expand * width * (self.conv - 1 + self.state)

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("A_log", "D", "dt_proj.bias"), ParamRule(weight_decay=0.0))


EXAMPLES = (Mamba(state=3), Mamba(state=2, expand=1, conv=2, rank=3))


class MambaLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: Mamba, width: int, generator: Generator) -> None:
        super().__init__()
        inner, rank = config.expand * width, config.inner_rank(width)
        self.sizes = (rank, config.state, config.state)
        self.in_proj = linear(width, 2 * inner, generator, bias=False)
        self.conv1d = conv1d(inner, inner, config.conv, generator, groups=inner)
        self.x_proj = linear(inner, sum(self.sizes), generator, bias=False)
        self.dt_proj = linear(rank, inner, generator)
        with torch.no_grad():
            self.dt_proj.weight.uniform_(-(rank**-0.5), rank**-0.5, generator=generator)
            self.dt_proj.bias.copy_(step_bias(inner, config.dt_min, config.dt_max, generator))
        self.A_log = nn.Parameter(torch.arange(1.0, config.state + 1).log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = linear(inner, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `tail`, the convolution's last inputs, (B, W - 1, E), and `memory`, (B, E, N)."""
        kept = state or {}
        inner, gate = self.in_proj(x).chunk(2, dim=-1)
        inner, tail = short_conv(inner, self.conv1d.weight, self.conv1d.bias, kept.get("tail"))
        low, b, c = self.x_proj(inner).split(self.sizes, dim=-1)
        # In float32: states are sums over all steps, and bfloat16 has no decay between 0.996 and 1.
        with torch.autocast(x.device.type, enabled=False):
            kind = self.A_log.dtype
            dt = F.softplus(F.linear(low.to(kind), self.dt_proj.weight, self.dt_proj.bias))
            y, memory = selective_scan(inner, dt, -self.A_log.exp(), b, c, state=kept.get("memory"))
            y = torch.addcmul(y, inner.to(kind), self.D)
        return self.out_proj(y.to(x.dtype) * F.silu(gate)), {"tail": tail, "memory": memory}
