"""SPADE joins a state-space layer for long range to softmax attention for short range, in the bottom layer only.

    y = linear([norm(S4(x)), norm(attention over a window or a chunk)])        S4: kernel and skip, no output map
    y = attention over a window or a chunk                                     `state=0`: the layers above it

The layer is that of Zuo et al. (2022), section 3. The whole network is a pattern, the first layer with a state and the
others without:

    Model(mixers=(SPADE(heads=8, window=128), *(SPADE(state=0, heads=8, window=128),) * 5), depth=6, width=256)

Positions are a bias for each bucket of distances, as in T5 (Raffel et al. 2020). Letters: B batch, T steps, D width, H
heads, N conjugate pairs (state / 2), K copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._checks import check_width
from levelfield.mixers._s4 import StateSpace
from levelfield.ops.attention.windowed_bias import attend_table, chunk_table, distances, window_table
from levelfield.ops.conv.fft import fft_conv
from levelfield.ops.layers.heads import split_heads
from levelfield.ops.layers.init import embedding, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.ssm.hippo import legs_nplr
from levelfield.spec import MixerConfig, ParamRule, UserError

BLOCK = 128  # queries of a window that are taken at once


@dataclass(frozen=True)
class SPADE(MixerConfig):
    """SPADE of zuo2022, section 3, as its code has it ("concat").

    state, copies, dt_min, dt_max, lr: of the state-space layer, as S4's; state=0 leaves it out; frozen: all of it stays
    as it starts (amos2025 on SPADE). near: a step sees the steps less than `window` away, or those of its own chunk of
    `window` steps. buckets: of distances with a bias of their own, the farthest `max_distance` (0: no positions).
    """

    state: int = 64
    heads: int = 8
    near: Literal["window", "chunk"] = "window"
    window: int = 128
    buckets: int = 32
    max_distance: int = 128
    copies: int = 1
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    lr: float | None = 1e-3
    frozen: bool = False

    label: ClassVar[str] = "spade"
    paper: ClassVar[str] = "zuo2022"
    complexity: ClassVar[str] = "T log T D + T D (state + window)"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.state < 0 or self.state % 2:
            raise UserError(f"SPADE's state is a number of conjugate pairs: choose an even one or 0, not {self.state}.")
        check_width("SPADE", width, self.heads)
        if self.window < 1:
            raise UserError(f"SPADE(window={self.window}) looks at nothing: give a number of steps.")
        if self.copies < 1 or width % self.copies:
            raise UserError(f"SPADE cannot share {self.copies} copies among {width} features: choose a divisor of it.")
        if not 0 < self.dt_min <= self.dt_max:
            raise UserError(f"SPADE needs 0 < dt_min <= dt_max, not {self.dt_min} and {self.dt_max}.")
        if self.buckets and (self.buckets < 4 or self.buckets % 4 or self.max_distance <= self.buckets // 2):
            raise UserError("SPADE's buckets are a multiple of 4, or 0, and max_distance is more than half of them.")
        return SPADELayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the state, and the keys and values that the next step sees."""
        return width * (self.state + 2 * self.kept(length))

    def kept(self, length: int) -> int:
        """How many of `length` steps the attention of the step after them sees."""
        return min(length, self.window - 1) if self.near == "window" else length % self.window

    @property
    def receptive_field(self) -> int | None:
        return None if self.state else 2 * self.window - 1

    @property
    def equivariant(self) -> bool:
        return self.near != "chunk"

    def param_rules(self) -> Mapping[str, ParamRule]:
        own = ParamRule(lr=self.lr, weight_decay=0.0)
        rules = dict.fromkeys(("log_decay", "frequency", "drive", "low_rank"), own)
        return (rules | {"log_dt": ParamRule(weight_decay=0.0)}) if self.state else {}

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor | None:
        """The state-space layer's kernel over the past, (D, length), or None where there is no such layer."""
        assert isinstance(layer, SPADELayer)
        return None if layer.far is None else layer.far.kernel(length)[0]


EXAMPLES = (
    SPADE(state=6, heads=2, window=5, buckets=8, max_distance=12),
    SPADE(state=4, heads=4, near="chunk", window=7, buckets=0, copies=2, frozen=True),
    SPADE(state=0, heads=2, window=4, buckets=4, max_distance=6),
)


class SPADELayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). Padded steps count as zero for the state, and attention does not see them."""

    def __init__(self, config: SPADE, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.near = NearAttention(config, width, causal, generator)
        self.far = None
        if config.state:
            start, dt = legs_nplr(config.state), (config.dt_min, config.dt_max)
            self.far = FarState(width, causal, start, generator, copies=config.copies, dt=dt)
            self.far.requires_grad_(not config.frozen)
            self.norm_far, self.norm_near = nn.LayerNorm(width), nn.LayerNorm(width)
            self.join = linear(2 * width, width, generator)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        near = self.near(x, mask)
        return near if self.far is None else self._joined(self.far(x, mask), near)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the `state`, real parts before imaginary ones, and the `keys` and `values` that the next step sees."""
        near, kept = self.near.step(x, state)
        if self.far is None:
            return near, kept
        far, kept["state"] = self.far.step(x, None if state is None else state["state"])
        return self._joined(far, near), kept

    def _joined(self, far: Tensor, near: Tensor) -> Tensor:
        near = near.to(far.dtype)  # float32 even under autocast: a CPU sums a norm's gradients in the type of its input
        return self.join(torch.cat([self.norm_far(far), self.norm_near(near)], -1))


class NearAttention(nn.Module):
    """Softmax attention over a window or a chunk, without biases of its maps: (B, T, D) -> (B, T, D).

    In the causal direction padding comes after the real steps, where none of them sees it, and the mask is not needed.
    """

    shape: Tensor
    bucket: Tensor

    def __init__(self, config: SPADE, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        self.qkv = linear(width, 3 * width, generator, bias=False)
        self.out = linear(width, width, generator, bias=False)
        with torch.no_grad():
            for part in self.qkv.weight.chunk(3):
                nn.init.xavier_uniform_(part, 0.5**0.5, generator)
            nn.init.xavier_uniform_(self.out.weight, 1.0, generator)
        block, self.before, after = config.window, 0, 0
        if config.near == "window":
            block, self.before = max(1, min(config.window, BLOCK)), config.window - 1
            after = 0 if causal else self.before
            table = window_table(config.window, causal, block)
        else:
            table = chunk_table(config.window, causal)
        self.register_buffer("shape", table, persistent=False)  # 0, or -inf where not to look
        self.bias = None
        if config.buckets:
            self.bias = embedding(config.buckets, config.heads, generator)
            away = bucket_of(distances(block, self.before, after), config.buckets, config.max_distance, causal)
            self.register_buffer("bucket", away, persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = split_heads(x, self.qkv, self.config.heads)
        y = attend_table(q, k, v, self._table(), None if self.causal else mask, before=self.before)
        return self.out(y.transpose(1, 2).flatten(2))

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps `keys` and `values`, (B, H, steps, d). The first one kept is the first of a block."""
        q, k, v = split_heads(x, self.qkv, self.config.heads)
        if state is not None:
            k, v = torch.cat([state["keys"], k], 2), torch.cat([state["values"], v], 2)
        first = k.shape[2] - self.config.kept(k.shape[2])
        y = attend_table(q, k, v, self._table(), None, before=self.before)
        return self.out(y.transpose(1, 2).flatten(2)), {"keys": k[:, :, first:], "values": v[:, :, first:]}

    def _table(self) -> Tensor:
        """Biases by block row and key, (H or 1, block, keys); -inf where a step must not look."""
        return self.shape[None] if self.bias is None else self.bias(self.bucket).permute(2, 0, 1) + self.shape


class FarState(StateSpace):
    """S4's kernel and skip, from HiPPO-LegS: k * x + d x, (B, T, D) -> (B, T, D)."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0)
        # In float32: bfloat16 has no number between 0.996 and 1, where decays of long memories lie.
        with torch.autocast(x.device.type, enabled=False):
            taps = self.kernel(x.shape[1])
            taps[0, :, 0] += self.skip  # a tap at lag 0
            y = fft_conv(x.transpose(1, 2), *(way.T for way in taps.transpose(1, 2).unbind(0)))
        return y.transpose(1, 2)

    def step(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        y, after = self.step_on(x, before)
        return y.transpose(1, 2), after


def bucket_of(away: Tensor, buckets: int, farthest: int, causal: bool) -> Tensor:
    """The bucket of each distance, int64 shaped as `away`, as in T5 (raffel2020, section 2.1).

    away: numbers of keys less those of queries. Half of the buckets hold one distance each, the others are logarithmic
    up to `farthest`, beyond which all distances share the last; in two directions either sign has half of the buckets.
    In a causal table, keys after the query fall where distance 0 does.
    """
    first = torch.zeros_like(away)
    if causal:
        away = (-away).clamp(min=0)
    else:
        buckets //= 2
        first, away = (away > 0) * buckets, away.abs()
    exact = buckets // 2
    part = torch.log(away.clamp(min=1) / exact) / math.log(farthest / exact)
    coarse = (exact + (part * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(away < exact, away, coarse)
