"""RWKV-6 (Finch) keeps a matrix of memory per head, whose decay and whose view of the step before depend on the input.

    x_i = x + (x_before - x) (mu_i + tanh((x + (x_before - x) mu_x) A_i) B_i),    i in w, k, v, r, g       (ddlerp)
    r, k, v = linear maps of x_r, x_k, x_v;     w = exp(-exp(w0 + tanh(x_w C) E))
    y_t = r_t (S_{t-1} + diag(u) k_t^T v_t),    S_t = diag(w_t) S_{t-1} + k_t^T v_t               S: (K, K) per head
    out = W_out (groupnorm(y) * silu(W_g x_g)),    the norm per head

The layer is the time mix of Peng et al. (2024), "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic
Recurrence".

    RWKV6()                                     # the paper's heads of 64 channels
    Model(mixers=(RWKV6(blocks=2), RWKV6Channel(blocks=2)), depth=2 * 12, ...)      # the model of the paper

Parameters have the names and shapes of the authors' checkpoints (`blocks.0.att.time_decay` is `time_decay` here).
Letters: B batch, T steps, D width, H heads, K channels of a head, R rank of the shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.ops.layers.head_norm import head_norm
from levelfield.ops.layers.init import orthogonal_linear, zero_linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.layers.token_shift import depth_of, graded, step_back
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.spec import MixerConfig, ParamRule, UserError

EPS = 64e-5  # of the norm, whatever the head: the authors' 1e-5 times 8^2
FASTEST = 10.0  # exp(-exp(10)) is 0 in every precision, and exp(10) is finite in every precision


@dataclass(frozen=True)
class RWKV6(MixerConfig):
    """The time mix of peng2024's Finch, with the initial values of the authors' code (RWKV-LM, x060).

    head: channels of a head. mix_rank, decay_rank: bottlenecks that the shift's mixes and the decays come through.
    layers: layers of the model over which initial values are graded; a mixer does not know the depth, so say it (deeper
    ones start like the last). blocks: residual blocks of one such layer, 2 where channel mixes are blocks of their own.
    decay_lr: learning rate of `time_decay`, for which the authors take twice the model's; None is the recipe's.
    """

    head: int = 64
    mix_rank: int = 32
    decay_rank: int = 64
    layers: int = 12
    blocks: int = 1
    decay_lr: float | None = None

    label: ClassVar[str] = "rwkv6"
    paper: ClassVar[str] = "peng2024"
    complexity: ClassVar[str] = "T D head"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if min(self.head, self.mix_rank, self.decay_rank, self.layers, self.blocks) < 1:
            raise UserError("RWKV6's head, mix_rank, decay_rank, layers and blocks are all at least 1.")
        if width % self.head:
            raise UserError(f"RWKV6 cannot split a width of {width} into heads of {self.head}: choose a divisor.")
        return RWKV6TimeMix(self, width, layer, generator)

    def state_size(self, width: int, length: int) -> int:
        return width + width * self.head

    def param_rules(self) -> Mapping[str, ParamRule]:
        """Only the five large maps have weight decay."""
        small = [*(f"time_maa_{name}" for name in "xwkvrg"), "time_maa_w1", "time_maa_w2", "time_decay_w1"]
        names = (*small, "time_decay_w2", "time_faaaa", "ln_x.weight", "ln_x.bias")
        decay = ParamRule(lr=self.decay_lr, weight_decay=0.0)
        return {**dict.fromkeys(names, ParamRule(weight_decay=0.0)), "time_decay": decay}


EXAMPLES = (
    RWKV6(head=4, mix_rank=2, decay_rank=3, layers=2),
    RWKV6(head=8, mix_rank=3, decay_rank=2, layers=3, blocks=2, decay_lr=1e-3),
)


class RWKV6TimeMix(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: RWKV6, width: int, layer: int, generator: Generator) -> None:
        super().__init__()
        self.head = config.head
        self._shift(config, width, layer, generator)
        self._decay(config, width, layer, generator)
        self.receptance = orthogonal_linear(width, width, generator)
        self.key = orthogonal_linear(width, width, generator, gain=0.1)
        self.value = orthogonal_linear(width, width, generator)
        self.gate = orthogonal_linear(width, width, generator, gain=0.1)
        self.output = zero_linear(width, width)
        self.ln_x = nn.GroupNorm(width // config.head, width, eps=EPS)
        nn.init.constant_(self.ln_x.weight, depth_of(layer, config.layers, config.blocks).height ** 0.7)

    def _shift(self, config: RWKV6, width: int, layer: int, generator: Generator) -> None:
        depth = depth_of(layer, config.layers, config.blocks)
        whole, half = graded(width, depth.down), graded(width, 0.5 * depth.down)
        self.time_maa_x, self.time_maa_w = nn.Parameter(whole.clone()), nn.Parameter(whole.clone())
        self.time_maa_k, self.time_maa_v = nn.Parameter(whole.clone()), nn.Parameter(whole - 0.3 * depth.up)
        self.time_maa_r, self.time_maa_g = nn.Parameter(half.clone()), nn.Parameter(half.clone())
        self.time_maa_w1 = nn.Parameter(torch.zeros(width, 5 * config.mix_rank))
        self.time_maa_w2 = nn.Parameter(_small((5, config.mix_rank, width), generator))

    def _decay(self, config: RWKV6, width: int, layer: int, generator: Generator) -> None:
        up = depth_of(layer, config.layers, config.blocks).up
        along = torch.linspace(0, 1, width)
        self.time_decay = nn.Parameter((-6 + 5 * along ** (0.7 + 1.3 * up)).view(1, 1, width))
        self.time_decay_w1 = nn.Parameter(torch.zeros(width, config.decay_rank))
        self.time_decay_w2 = nn.Parameter(_small((config.decay_rank, width), generator))
        zigzag = 0.1 * ((torch.arange(width) + 1) % 3 - 1)
        self.time_faaaa = nn.Parameter((up * (1 - along) + zigzag).view(-1, config.head))

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the `last` input, (B, D), and the `memory`, (B, H, K, K), keys first."""
        kept = state or {}
        back, last = step_back(x, kept.get("last"))
        for_decay, for_key, for_value, for_read, for_gate = self._mixed(x, back)
        shift = torch.tanh(for_decay @ self.time_decay_w1) @ self.time_decay_w2
        decay = -(self.time_decay + shift).clamp(max=FASTEST).exp()
        parts = (self.receptance(for_read), self.key(for_key), self.value(for_value), decay)
        read, key, value, decay = (part.unflatten(-1, (-1, self.head)).transpose(1, 2) for part in parts)
        y, memory = decayed_attention(read, key, value, decay, kept.get("memory"), bonus=self.time_faaaa)
        y = head_norm(y.transpose(1, 2), self.ln_x) * F.silu(self.gate(for_gate))
        return self.output(y.to(x.dtype)), {"last": last, "memory": memory}

    def _mixed(self, x: Tensor, back: Tensor) -> list[Tensor]:
        """What decay, key, value, receptance and gate see of x and the step before it: five of (B, T, D)."""
        low = torch.tanh(torch.addcmul(x, back, self.time_maa_x) @ self.time_maa_w1).chunk(5, dim=-1)
        first = (self.time_maa_w, self.time_maa_k, self.time_maa_v, self.time_maa_r, self.time_maa_g)
        parts = zip(low, self.time_maa_w2, first, strict=True)
        return [torch.addcmul(x, back, F.linear(a, b.T, mu.flatten()).to(x.dtype)) for a, b, mu in parts]


def _small(shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.empty(shape).uniform_(-0.01, 0.01, generator=generator)
