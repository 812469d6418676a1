"""RWKV-7 (Goose) keeps a matrix of memory per head that decays by channel and is corrected along one direction a step.

    x_i = x + (x_before - x) mu_i,     i in r, w, k, v, a, g
    r, k, v = linear maps of x_r, x_k, x_v;     a = sigmoid(a0 + x_a A1 A2)                       (rate of learning)
    w = exp(-exp(-1/2) sigmoid(w0 + tanh(x_w W1) W2)),     kappa = (k * xi) / |k * xi|,     k~ = k (1 + (a - 1) alpha)
    S_t = (diag(w_t) - kappa_t^T (a_t * kappa_t)) acting on S_{t-1}, + k~_t^T v_t,     y_t = r_t S_t       S: (K, K)
    out = W_out ((groupnorm(y) + (r . (rho * k~)) v) * (sigmoid(x_g G1) G2)),     norm and sums per head

The layer is the time mix of Peng et al. (2025), "RWKV-7 Goose with Expressive Dynamic State Evolution". The published
model also mixes the first layer's values into every later layer's (value residual); a mixer sees one layer only, so
each is like the first here.

    RWKV7()                                     # the paper's heads of 64 channels
    Model(mixers=(RWKV7(blocks=2), RWKV7Channel(blocks=2)), depth=2 * 12, ...)

Other parameters have the names and shapes of the authors' checkpoints. Letters: B batch, T steps, D width, H heads, K
channels of a head.
"""

from __future__ import annotations

import math
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
from levelfield.ops.linear_attention.delta_per_key import delta_by_key
from levelfield.spec import MixerConfig, ParamRule, UserError

EPS = 64e-5  # of the norm, whatever the head
FASTEST = math.exp(-0.5)  # no channel decays by more than exp(-FASTEST) = 0.545 in a step
SHIFTS = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}


@dataclass(frozen=True)
class RWKV7(MixerConfig):
    """The time mix of peng2025, with the initial values of the authors' code (RWKV-LM, x070), less the value residual.

    head: channels of a head. decay_rank, rate_rank, gate_rank: bottlenecks of w, a and the gate; 0 is the authors'
    choice, 2.5, 2.5 and 5 times the root of the width in multiples of 32. layers: layers of the model over which
    initial values are graded; a mixer does not know the depth, so say it (deeper ones start like the last). blocks:
    residual blocks of one such layer, 2 where channel mixes are blocks of their own. decay_lr: learning rate of `w0`,
    for which the authors take twice the model's; None is the recipe's.
    """

    head: int = 64
    decay_rank: int = 0
    rate_rank: int = 0
    gate_rank: int = 0
    layers: int = 12
    blocks: int = 1
    decay_lr: float | None = None

    label: ClassVar[str] = "rwkv7"
    paper: ClassVar[str] = "peng2025"
    complexity: ClassVar[str] = "T D head"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if min(self.layers, self.blocks) < 1 or min(self.decay_rank, self.rate_rank, self.gate_rank) < 0:
            raise UserError("RWKV7's layers and blocks are at least 1, and its ranks at least 0.")
        if self.head < 2 or width % self.head:
            raise UserError(
                f"RWKV7 cannot split a width of {width} into heads of {self.head}: choose a divisor, 2 or up."
            )
        return RWKV7TimeMix(self, width, layer, generator)

    def ranks(self, width: int) -> dict[str, int]:
        """Ranks of the bottlenecks of w, a and g."""
        wanted = {"w": (self.decay_rank, 2.5), "a": (self.rate_rank, 2.5), "g": (self.gate_rank, 5.0)}
        return {name: rank or max(32, round(per * width**0.5 / 32) * 32) for name, (rank, per) in wanted.items()}

    def state_size(self, width: int, length: int) -> int:
        return width + width * self.head

    def param_rules(self) -> Mapping[str, ParamRule]:
        """Only the four large maps have weight decay."""
        small = [f"x_{name}" for name in SHIFTS] + ["w1", "w2", "a0", "a1", "a2", "g1", "g2", "k_k", "k_a", "r_k"]
        rules = dict.fromkeys((*small, "ln_x.weight", "ln_x.bias"), ParamRule(weight_decay=0.0))
        return {**rules, "w0": ParamRule(lr=self.decay_lr, weight_decay=0.0)}


EXAMPLES = (
    RWKV7(head=4, decay_rank=2, rate_rank=3, gate_rank=2, layers=2),
    RWKV7(head=8, layers=3, blocks=2, decay_lr=1e-3),
)


class RWKV7TimeMix(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: RWKV7, width: int, layer: int, generator: Generator) -> None:
        super().__init__()
        self.head = config.head
        depth = depth_of(layer, config.layers, config.blocks)
        shifts = (nn.Parameter(graded(width, power * depth.down)) for power in SHIFTS.values())
        self.x_r, self.x_w, self.x_k, self.x_v, self.x_a, self.x_g = shifts
        self._first(config, width, depth.up)
        ranks = config.ranks(width)
        self.w1, self.w2 = _bottleneck(width, ranks["w"], generator)
        self.a1, self.a2 = _bottleneck(width, ranks["a"], generator)
        self.g1, self.g2 = _bottleneck(width, ranks["g"], generator)
        self.receptance = orthogonal_linear(width, width, generator)
        self.key = orthogonal_linear(width, width, generator, gain=0.1)
        self.value = orthogonal_linear(width, width, generator)
        self.output = zero_linear(width, width)
        self.ln_x = nn.GroupNorm(width // config.head, width, eps=EPS)
        nn.init.constant_(self.ln_x.weight, depth.height**0.7)

    def _first(self, config: RWKV7, width: int, up: float) -> None:
        along = torch.linspace(0, 1, width).view(1, 1, width)
        zigzag = torch.linspace(-1, 1, config.head).repeat(width // config.head).view(1, 1, width)
        zigzag = zigzag * zigzag.abs()
        self.w0 = nn.Parameter(-6 + 6 * along ** (1 + up**0.3) + 0.5 + 2.5 * zigzag)
        self.a0 = nn.Parameter(-0.19 + 0.3 * zigzag + 0.4 * (along - 0.5))
        self.k_k = nn.Parameter(0.71 - 0.1 * (along - 0.5))
        self.k_a = nn.Parameter(torch.full_like(along, 1.02))
        self.r_k = nn.Parameter(torch.full((width // config.head, config.head), -0.04))

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the `last` input, (B, D), and the `memory`, (B, H, K, K), keys first."""
        kept = state or {}
        back, last = step_back(x, kept.get("last"))
        seen = (torch.addcmul(x, back, mu) for mu in (self.x_r, self.x_w, self.x_k, self.x_v, self.x_a, self.x_g))
        for_read, for_decay, for_key, for_value, for_rate, for_gate = seen
        decay = -FASTEST * torch.sigmoid(self.w0 + torch.tanh(for_decay @ self.w1) @ self.w2)
        rate = torch.sigmoid(self.a0 + (for_rate @ self.a1) @ self.a2)
        plain = self.key(for_key)
        key = plain * (1 + (rate - 1) * self.k_a)
        parts = (self.receptance(for_read), key, self.value(for_value), plain * self.k_k, rate, decay)
        read, key, value, removed, rate, decay = (part.unflatten(-1, (-1, self.head)) for part in parts)
        removed = F.normalize(removed.to(torch.promote_types(removed.dtype, torch.float32)), dim=-1)
        y, memory = delta_by_key(
            read, key, value, a=-removed, b=removed * rate, log_decay=decay, state=kept.get("memory")
        )
        bonus = (read * key * self.r_k).sum(-1, keepdim=True) * value
        y = head_norm(y, self.ln_x) + bonus.flatten(-2)
        gate = torch.sigmoid(for_gate @ self.g1) @ self.g2
        return self.output((y * gate).to(x.dtype)), {"last": last, "memory": memory}


def _bottleneck(width: int, rank: int, generator: Generator) -> tuple[nn.Parameter, nn.Parameter]:
    """Two factors: (D, R) of zeros, and (R, D), orthogonal at a tenth of its natural size."""
    up = torch.empty(rank, width)
    nn.init.orthogonal_(up, 0.1 * max(1.0, rank / width) ** 0.5, generator)
    return nn.Parameter(torch.zeros(width, rank)), nn.Parameter(up)
