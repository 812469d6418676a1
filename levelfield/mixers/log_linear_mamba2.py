"""Log-linear Mamba-2 keeps a memory for each power of two of its past, where Mamba-2 keeps one for all of it.

    z, x, B, C, dt, l = W_in u;     x, B, C = silu(causal convolution of each channel);     dt = softplus(dt + bias)
    w = softplus(L l),  one weight for each head and level;     log a_t = -dt_t exp(A_log)
    y_t = sum_{s <= t} w_t[level(t, s)] a_t .. a_{s+1} (C_t . B_s) dt_s x_s + D x_t           per head
    out = W_out (rmsnorm(y silu(z)) weight)

The layer is that of Guo et al. (2025), "Log-Linear Attention", section 3. A step is at level 0 of itself, the one
before it at level 1 or in a larger block, and so on: blocks of 1, 2, 4 .. steps, the larger the further away, about
log2 T of them. Every step weighs them anew, so that what is near can count for more than what is far, or less. Where
all weights are 1 it is Mamba-2. State and work for each step grow with log T.

    LogLinearMamba2(state=128, head=64)       # the authors' sizes, with weights for 16,384 steps

Levels from the last weight on share it, so that sequences may be of any length. Letters: B batch, T steps, D width,
E = expand D inner channels, H heads of P channels, G groups, N state, W taps, L levels with weights of their own.
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
from levelfield.ops.linear_attention.levels import Past, Steps, level_attention
from levelfield.ops.ssm.selective import step_bias
from levelfield.spec import MixerConfig, ParamRule, UserError

DT_MIN, DT_MAX = 1e-3, 1e-1  # softplus(dt_bias) is log-uniform between them at first


@dataclass(frozen=True)
class LogLinearMamba2(MixerConfig):
    """Log-linear Mamba-2 of guo2025, section 3, with its code's initial values (flash-linear-attention's layer).

    state: N, how many numbers a channel remembers at each level. expand: inner channels over the width. head: channels
    with one decay and one set of weights. groups: heads in a group share B and C, and are normed together. conv: taps
    of the short convolution. levels: L, of which sequences of T steps reach 1 + log2 T.
    """

    state: int = 128
    expand: int = 2
    head: int = 64
    groups: int = 1
    conv: int = 4
    levels: int = 15

    label: ClassVar[str] = "log_linear_mamba2"
    paper: ClassVar[str] = "guo2025"
    complexity: ClassVar[str] = "T log T D expand state"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if min(self.state, self.expand, self.head, self.groups, self.conv, self.levels) < 1:
            raise UserError("LogLinearMamba2's state, expand, head, groups, conv and levels are all at least 1.")
        inner = self.expand * width
        if inner % self.head or inner // self.head % self.groups:
            raise UserError(
                f"LogLinearMamba2 cannot split {inner} inner channels into heads of {self.head} in {self.groups} "
                "groups: choose divisors."
            )
        return LogLinearMamba2Layer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the last inputs of the convolution, and for each bit of T N numbers for every inner channel."""
        inner = self.expand * width
        return (self.conv - 1) * (inner + 2 * self.groups * self.state) + length.bit_length() * inner * self.state

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("A_log", "D", "L", "dt_bias"), ParamRule(weight_decay=0.0))


EXAMPLES = (
    LogLinearMamba2(state=4, head=8),
    LogLinearMamba2(state=3, expand=1, head=2, groups=2, conv=1, levels=3),
)


class LogLinearMamba2Layer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of the authors' code.
    """

    def __init__(self, config: LogLinearMamba2, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        inner, shared = config.expand * width, 2 * config.groups * config.state
        self.heads = inner // config.head
        self.sizes = (inner, inner + shared, self.heads, self.heads * config.levels)  # z; x, B and C; dt; l
        self.in_proj = linear(width, sum(self.sizes), generator, bias=False)
        self.conv1d = conv1d(inner + shared, inner + shared, config.conv, generator, groups=inner + shared)
        self.dt_bias = nn.Parameter(step_bias(self.heads, DT_MIN, DT_MAX, generator))
        self.A_log = nn.Parameter(torch.arange(1.0, self.heads + 1).log())
        self.L = nn.Parameter(torch.ones(self.heads, config.levels))
        self.D = nn.Parameter(torch.ones(self.heads))
        self.norm = NormWeight(inner)
        self.out_proj = linear(inner, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `tail`, the convolution's last inputs, (B, W - 1, E + 2 G N), and `memory`, (B, bits, H, N, P), for
        each bit of the number of steps n, which is the length of `steps`, (B, n, 0), that holds nothing else."""
        c, kept = self.config, state or {}
        gate, mixed, dt, scale = self.in_proj(x).split(self.sizes, dim=-1)
        mixed, tail = short_conv(mixed, self.conv1d.weight, self.conv1d.bias, kept.get("tail"))
        value, key, query = mixed.split((self.sizes[0], c.groups * c.state, c.groups * c.state), dim=-1)
        value = value.unflatten(-1, (self.heads, c.head))
        key, query = (part.unflatten(-1, (c.groups, c.state)) for part in (key, query))
        # In float32: states are sums over all steps, and bfloat16 has no decay between 0.996 and 1.
        with torch.autocast(x.device.type, enabled=False):
            dt = F.softplus(dt.to(self.dt_bias.dtype) + self.dt_bias)  # (B, T, H)
            weights = F.softplus(self.L * scale.unflatten(-1, (self.heads, c.levels)))
            past = None if state is None else Past(state["memory"], state["steps"].shape[1])
            steps = Steps(query, key, value * dt.unsqueeze(-1), log_decay=-dt * self.A_log.exp(), weights=weights)
            y, past = level_attention(steps, past)
            y = torch.addcmul(y, value.to(y.dtype), self.D.unsqueeze(-1))  # (B, T, H, P)
        y, gate = (part.reshape(*x.shape[:2], c.groups, -1) for part in (y, gate))
        y = gated_norm(y, gate, self.norm.weight.view(c.groups, -1), first=True)
        after = {"tail": tail, "memory": past.memory, "steps": x.new_empty(x.shape[0], past.steps, 0)}
        return self.out_proj(y.flatten(-2).to(x.dtype)), after
