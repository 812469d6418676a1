"""Mamba-3 is a selective state-space model with rotating states, whose steps are integrated by a trapezoidal rule.

    z, x, B, C, dt, A, s, phi = W_in u;     B, C = rmsnorm(B) weight + bias, rmsnorm(C) weight + bias
    dt = softplus(dt + bias),     a = exp(-dt softplus(A)),     s = sigmoid(s),     all three per head
    theta_t = theta_{t-1} + dt_t pi tanh(phi_t);     pairs of channels of B_t and C_t are turned by theta_t
    S_t = a_t S_{t-1} + (1 - s_t) dt_t a_t B_{t-1} x_{t-1}^T + s_t dt_t B_t x_t^T,     y_t = C_t S_t + D x_t
    out = W_out (y silu(z))                                                           S: (N, P) per head

The layer is that of Lahoti et al. (2026), "Mamba-3", section 3, with one input and one output (SISO). Turning B and C
by angles that the input sets is the same as a state of complex numbers that rotates as it decays, so that a layer can
count modulo a number, which Mamba-2's positive decays cannot. There is no short convolution: biases and the share of
the step before take its place.

    Mamba3(state=128, head=64)                # the paper's sizes
    Mamba3(rates="heavy", norm=True)          # with the authors' later choices

Its form with several inputs and outputs (MIMO) is not here. Letters: B batch, T steps, D width, E = expand D inner
channels, H heads of P channels, G groups, N state, R angles of a head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._memory import NormWeight
from levelfield.ops.layers.gated_norm import gated_norm
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.linear_attention.trapezoidal import Past, Steps, trapezoidal
from levelfield.ops.ssm.selective import step_bias
from levelfield.spec import MixerConfig, ParamRule, UserError

LEAST_RATE = 1e-4  # of decay, before it is multiplied by dt
EPS = 1e-5  # of the norms


@dataclass(frozen=True)
class Mamba3(MixerConfig):
    """Mamba-3 of lahoti2026, section 3, with the defaults and initial values of its code (mamba_ssm, `Mamba3`).

    state: N, how many numbers a channel remembers. expand: inner channels over the width. head: channels with one
    decay. groups: heads in a group share B and C, but for their biases. rotated: which part of the N channels turns,
    the first ones. rates: what makes decay rates positive, the release's softplus, or `heavy`, 1 + A above 0 and
    1 / (1 - A) below, which its code has had since June 2026 for high learning rates. norm: each head's output is
    normed before its gate. At first softplus of dt's bias is log-uniform in [dt_min, dt_max].
    """

    state: int = 128
    expand: int = 2
    head: int = 64
    groups: int = 1
    rotated: float = 0.5
    rates: Literal["softplus", "heavy"] = "softplus"
    norm: bool = False
    dt_min: float = 1e-3
    dt_max: float = 1e-1

    label: ClassVar[str] = "mamba3"
    paper: ClassVar[str] = "lahoti2026"
    complexity: ClassVar[str] = "T D expand state"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if min(self.state, self.expand, self.head, self.groups) < 1:
            raise UserError("Mamba3's state, expand, head and groups are all at least 1.")
        inner = self.expand * width
        if inner % self.head or inner // self.head % self.groups:
            raise UserError(
                f"Mamba3 cannot split {inner} inner channels into heads of {self.head} in {self.groups} groups: "
                "choose divisors."
            )
        if not 0 < self.rotated <= 1 or self.angles < 1:
            raise UserError(f"Mamba3 turns pairs of its {self.state} states: choose more, or rotated up to 1.")
        if not 0 < self.dt_min <= self.dt_max:
            raise UserError(f"Mamba3 needs 0 < dt_min <= dt_max, not {self.dt_min} and {self.dt_max}.")
        return Mamba3Layer(self, width, generator)

    @property
    def angles(self) -> int:
        """R, the pairs of channels that turn."""
        return int(self.state * self.rotated) // 2

    def state_size(self, width: int, length: int) -> int:
        """Counts N numbers for every inner channel, and the last step's turned B, x and angles of every head."""
        inner = self.expand * width
        return inner * self.state + inner // self.head * (self.state + self.head + self.angles)

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("D", "dt_bias"), ParamRule(weight_decay=0.0))


EXAMPLES = (
    Mamba3(state=4, head=8),
    Mamba3(state=5, expand=1, head=4, groups=2, rotated=1.0, rates="heavy", norm=True),
)


class Mamba3Layer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of the authors' code.
    """

    def __init__(self, config: Mamba3, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        inner, shared = config.expand * width, config.groups * config.state
        self.heads = inner // config.head
        self.sizes = (inner, inner, shared, shared, self.heads, self.heads, self.heads, config.angles)
        self.in_proj = linear(width, sum(self.sizes), generator, bias=False)
        self.dt_bias = nn.Parameter(step_bias(self.heads, config.dt_min, config.dt_max, generator))
        self.B_bias, self.C_bias = (nn.Parameter(torch.ones(self.heads, 1, config.state)) for _ in range(2))
        self.B_norm, self.C_norm = (NormWeight(config.state) for _ in range(2))
        self.D = nn.Parameter(torch.ones(self.heads))
        self.norm = NormWeight(inner) if config.norm else None
        self.out_proj = linear(inner, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `memory`, (B, H, N, P), and of the last step `key`, (B, H, N), `value`, (B, H, P), and `angle`,
        (B, H, R), less whole turns."""
        wide, many = self.dt_bias.dtype, sum(self.sizes[:4])
        parts = F.linear(x, self.in_proj.weight[:many]).split(self.sizes[:4], -1)
        # In float32: states and angles are sums over all steps, and bfloat16 has no decay between 0.996 and 1.
        with torch.autocast(x.device.type, enabled=False):
            gate, value, key, query = (part.to(wide) for part in parts)
            paces = F.linear(x.to(wide), self.in_proj.weight[many:])
            dt, rate, share, turn = paces.split(self.sizes[4:], -1)
            dt = F.softplus(dt + self.dt_bias)  # (B, T, H)
            angle = self._angles(dt, turn, None if state is None else state["angle"])
            gate, value = (part.unflatten(-1, (self.heads, -1)) for part in (gate, value))
            key = _turned(self._normed(key, self.B_norm, self.B_bias), angle)
            query = _turned(self._normed(query, self.C_norm, self.C_bias), angle)
            past = None if state is None else Past(state["memory"], state["key"], state["value"])
            steps = Steps(query, key, value, log_decay=-dt * self._rates(rate), dt=dt, share=share.sigmoid())
            y, past = trapezoidal(steps, past)
            y = self._gated(torch.addcmul(y, value, self.D.unsqueeze(-1)), gate)
        return self.out_proj(y.flatten(-2).to(x.dtype)), {**past._asdict(), "angle": angle[:, -1]}

    def _rates(self, rate: Tensor) -> Tensor:
        """How fast states decay, in a step with dt 1: (B, T, H) -> the same shape, at least LEAST_RATE."""
        if self.config.rates == "softplus":
            return F.softplus(rate).clamp_min(LEAST_RATE)
        # Chosen, not added: at 0, where a step of zeros is, both clamps would pass the gradient on, and it count twice.
        return torch.where(rate > 0, 1 + rate, (1 - rate.clamp_max(0)).reciprocal()).clamp_min(LEAST_RATE)

    def _angles(self, dt: Tensor, turn: Tensor, start: Tensor | None) -> Tensor:
        """Sums of the turns, each head's at its own dt, less whole turns: (B, T, H, R). start: (B, H, R) or None."""
        steps = math.pi * torch.tanh(turn).unsqueeze(2) * dt.unsqueeze(-1)
        # In float64: sums grow with T, and only what they are beyond whole turns matters.
        total = steps.double().cumsum(1)
        if start is not None:
            total = total + start.unsqueeze(1)
        return (total - 2 * math.pi * (total / (2 * math.pi)).floor()).to(dt.dtype)

    def _normed(self, part: Tensor, norm: NormWeight, bias: Tensor) -> Tensor:
        """B or C, (B, T, G N), normed within groups, for all heads: (B, T, H, N)."""
        groups = part.unflatten(-1, (self.config.groups, -1))
        normed = F.rms_norm(groups, groups.shape[-1:], norm.weight, EPS)
        return normed.repeat_interleave(self.heads // self.config.groups, 2) + bias.squeeze(1)

    def _gated(self, y: Tensor, gate: Tensor) -> Tensor:
        """The output of each head, y, times its gate, both (B, T, H, P): the same shape."""
        if self.norm is None:
            return y * F.silu(gate)
        return gated_norm(y, gate, self.norm.weight.view(self.heads, -1), first=False, eps=EPS)


def _turned(x: Tensor, angle: Tensor) -> Tensor:
    """The first R neighbouring pairs of channels, (..., N), each turned by its angle, (..., R): the same shape as x."""
    pairs = x[..., : 2 * angle.shape[-1]].unflatten(-1, (-1, 2))
    (a, b), cos, sin = pairs.unbind(-1), angle.cos(), angle.sin()
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([turned, x[..., 2 * angle.shape[-1] :]], -1)
