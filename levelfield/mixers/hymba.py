"""Hymba reads every step with attention heads and with a selective state-space model in parallel, and averages the two.

    q, k, v, u, z = W_in x + b;     a = attention(q, k, v), rotated, to all steps or to a window
    u = silu(causal convolution of u);     r, B, C = rmsnorm of each part of W_x u;     dt = softplus(W_dt r + b)
    h_t = exp(-dt_t exp(A_log)) h_{t-1} + dt_t u_t B_t,     m_t = (h_t C_t + D u_t) silu(z_t)           h: (E, N)
    out = W_out (rmsnorm(a) weight + rmsnorm(m) weight) / 2 + b

The layer is that of Dong et al. (2024), "Hymba", section 2.1: attention recalls single steps, the state sums up, and
norms with weights of their own bring both to one scale.

    Hymba(heads=4, window=1024)               # most of the paper's layers; three of 32 have no window

Learned first steps (meta tokens) and keys that layers share belong to a whole model and are not here. Letters: B batch,
T steps, D width, E = expand D inner channels, of queries too, H heads, G heads of keys, N states, R rank of dt, W taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_taps, check_width
from levelfield.mixers._memory import NormWeight
from levelfield.ops.attention.rotary import rotate
from levelfield.ops.attention.softmax import attend, attend_window
from levelfield.ops.conv.short import short_conv
from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.ssm.selective import selective_scan, step_bias
from levelfield.spec import MixerConfig, ParamRule, UserError

EPS = 1e-6  # of the norms
DT_MIN, DT_MAX = 1e-3, 1e-1  # softplus of dt's bias is log-uniform between them at first


@dataclass(frozen=True)
class Hymba(MixerConfig):
    """Hymba's parallel heads, dong2024, section 2.1, with the layer of its code (barebones_hymba).

    heads: of queries. kv_heads: of keys and values, which the heads of queries share (None: as many). window: steps
    that attention sees, a step itself among them (None: all). expand: inner channels over the width, of both halves.
    state: N, how many numbers a channel remembers. conv: taps of the short convolution. rank: channels that dt is made
    from (None: width / 16, rounded up). First values of the state-space half are Mamba's.
    """

    heads: int = 4
    kv_heads: int | None = None
    window: int | None = None
    expand: int = 2
    state: int = 16
    conv: int = 3
    rank: int | None = None

    label: ClassVar[str] = "hymba"
    paper: ClassVar[str] = "dong2024"
    complexity: ClassVar[str] = "T^2 D expand + T D expand state; with window T D expand (window + state)"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if min(self.state, self.expand, self.inner_rank(width), self.window or 1) < 1:
            raise UserError("Hymba's state, expand, rank and window are all at least 1.")
        check_taps("Hymba", self.conv)
        check_width("Hymba", self.expand * width, self.heads)
        if self.kv_heads is not None and (self.kv_heads < 1 or self.heads % self.kv_heads):
            raise UserError(f"Hymba cannot share {self.kv_heads} heads of keys among {self.heads}: choose a divisor.")
        if self.expand * width // self.heads % 2:
            raise UserError(f"Hymba turns pairs of channels, not {self.expand * width // self.heads} per head.")
        return HymbaLayer(self, width, generator)

    def inner_rank(self, width: int) -> int:
        """R, the channels that dt is made from."""
        return math.ceil(width / 16) if self.rank is None else self.rank

    def keys(self, width: int) -> int:
        """Channels of all keys, and of all values."""
        return self.expand * width // self.heads * (self.kv_heads or self.heads)

    def state_size(self, width: int, length: int) -> int:
        """Counts the keys and values that the next step sees, the last inputs of the convolution, and N numbers for
        every inner channel."""
        seen = length if self.window is None else min(length, self.window - 1)
        return 2 * self.keys(width) * seen + self.expand * width * (self.conv - 1 + self.state)

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("A_log", "D", "dt_proj.bias"), ParamRule(weight_decay=0.0))


EXAMPLES = (Hymba(heads=2, state=3, rank=4), Hymba(heads=4, kv_heads=2, window=5, expand=1, state=2, conv=1, rank=3))


class HymbaLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: Hymba, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        inner, keys, rank = config.expand * width, config.keys(width), config.inner_rank(width)
        self.sizes = (inner, keys, keys, inner, inner)  # q, k, v, u, z
        self.in_proj = linear(width, sum(self.sizes), generator)
        self.conv1d = conv1d(inner, inner, config.conv, generator, groups=inner)
        self.x_proj = linear(inner, rank + 2 * config.state, generator, bias=False)
        self.x_norms = nn.ModuleList(NormWeight(size) for size in (rank, config.state, config.state))
        self.dt_proj = linear(rank, inner, generator)
        with torch.no_grad():
            self.dt_proj.weight.uniform_(-(rank**-0.5), rank**-0.5, generator=generator)
            self.dt_proj.bias.copy_(step_bias(inner, DT_MIN, DT_MAX, generator))
        self.A_log = nn.Parameter(torch.arange(1.0, config.state + 1).log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.norms = nn.ModuleList(NormWeight(inner) for _ in range(2))  # of attention, and of the states
        self.out_proj = linear(inner, width, generator)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `keys` and `values` that the next step sees, (B, steps, channels), the convolution's last inputs,
        `tail`, (B, W - 1, E), and `memory`, (B, E, N). Keys in a window are kept as they are, others rotated."""
        query, key, value, inner, gate = self.in_proj(x).split(self.sizes, -1)
        kept = state or {}
        attended, new = self._attended((query, key, value), kept)
        states, rest = self._states(inner, gate, kept)
        # In float32: norms, as everywhere.
        with torch.autocast(x.device.type, enabled=False):
            first, second = (_normed(x, norm) for x, norm in zip((attended, states), self.norms, strict=True))
            y = (first + second) / 2
        return self.out_proj(y.to(x.dtype)), new | rest

    def _attended(
        self, parts: tuple[Tensor, Tensor, Tensor], kept: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What queries, keys and values read, (B, T, E), and which keys and values the next step sees."""
        q, k, v = parts
        c, size = self.config, self.sizes[0] // self.config.heads
        past = kept["keys"].shape[1] if kept else 0
        q, groups = rotate(q, c.heads, start=past), k.shape[-1] // size
        k = k if c.window is not None else rotate(k, groups, start=past)
        if kept:
            k, v = torch.cat([kept["keys"], k], 1), torch.cat([kept["values"], v], 1)
        # Products of rotated queries and keys depend on distances alone, so the first step kept can count as step 0.
        turned = k if c.window is None else rotate(k, groups)
        query, key, value = (part.unflatten(-1, (-1, size)).transpose(1, 2) for part in (q, turned, v))
        if c.window is None:
            y, first = attend(query, key, value, None, causal=True), 0
        else:
            y = attend_window(query, key, value, None, causal=True, window=c.window)
            first = max(0, k.shape[1] - c.window + 1)
        return y.transpose(1, 2).flatten(2), {"keys": k[:, first:], "values": v[:, first:]}

    def _states(self, inner: Tensor, gate: Tensor, kept: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """What the states give, (B, T, E), and the convolution's last inputs and the states after the last step."""
        inner, tail = short_conv(inner, self.conv1d.weight, self.conv1d.bias, kept.get("tail"))
        sizes = [self.dt_proj.in_features, self.config.state, self.config.state]
        parts = self.x_proj(inner).split(sizes, -1)
        # In float32: states are sums over all steps, and bfloat16 has no decay between 0.996 and 1.
        with torch.autocast(inner.device.type, enabled=False):
            low, b, c = (_normed(part, norm) for part, norm in zip(parts, self.x_norms, strict=True))
            dt = F.softplus(F.linear(low, self.dt_proj.weight, self.dt_proj.bias))
            y, memory = selective_scan(inner, dt, -self.A_log.exp(), b, c, state=kept.get("memory"))
            y = torch.addcmul(y, inner.to(y.dtype), self.D) * F.silu(gate.to(y.dtype))
        return y, {"tail": tail, "memory": memory}


def _normed(x: Tensor, norm: nn.Module) -> Tensor:
    """The root-mean-square norm over the last axis, in the type of its weight: (..., C) -> the same shape."""
    assert isinstance(norm, NormWeight)
    return F.rms_norm(x.to(norm.weight.dtype), x.shape[-1:], norm.weight, EPS)
