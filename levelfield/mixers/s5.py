"""S5 is one diagonal state-space model with many inputs and outputs, whose states all features share.

    h[t] = exp(dt lambda) h[t - 1] + (exp(dt lambda) - 1) / lambda  B x[t],     y = 2 Re(C h) + d x
    g = gelu(y),    out = g sigmoid(W g)

The layer is that of Smith et al. (2023), section 4. Where S4 gives every feature a model of its own and mixes features
afterwards, B and C mix them on the way into the states and out of them. lambda starts at the eigenvalues of HiPPO's
normal part, in `blocks` copies of a smaller matrix. In two directions the same states run both ways and a second C
reads the second way.

    S5(state=384, blocks=3, clip=True)                                        # LRA Image in smith2023
    S5(state=192, blocks=12, activation="half_glu2")                          # LRA Text
    S5(state=256, blocks=16, readout_init="complex_normal", dt_min=1e-4)      # LRA Path-X

Letters: B batch, T steps, D width, P state, N = P / 2 conjugate pairs, R = P / blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.ops.layers.autocast import working_type
from levelfield.ops.layers.glu import gelu_glu
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.ssm.hippo import normal_legs
from levelfield.ops.ssm.mimo import mimo
from levelfield.spec import MixerConfig, ParamRule, UserError

LEAST_DECAY = 1e-4  # of lambda's real part, where it is clipped


@dataclass(frozen=True)
class S5(MixerConfig):
    """S5 of smith2023, section 4 and appendix B, as in its code; exact GELU instead of its tanh approximation.

    state: real numbers of state, twice the conjugate pairs. dt is drawn log-uniformly from [dt_min, dt_max] for every
    pair. readout_init: how C is drawn, by the code's names: "lecun_normal" has variance 1 / (P D), and
    "trunc_standard_normal", despite its name, 1 / P. clip: lambda's real part stays below -1e-4. activation: "gelu",
    "half_glu1" (above), "half_glu2" (y sigmoid(W gelu(y))), or "full_glu" (GLU(W gelu(y))). lr: the rate of lambda and
    dt, which have no weight decay, and with drive_follows=False of B too; None follows the recipe.
    """

    state: int = 64
    blocks: int = 1
    activation: Literal["gelu", "half_glu1", "half_glu2", "full_glu"] = "half_glu1"
    readout_init: Literal["lecun_normal", "trunc_standard_normal", "complex_normal"] = "lecun_normal"
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    clip: bool = False
    lr: float | None = 1e-3
    drive_follows: bool = False

    label: ClassVar[str] = "s5"
    paper: ClassVar[str] = "smith2023"
    complexity: ClassVar[str] = "T D state"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.blocks < 1 or self.state < 2 or self.state % (2 * self.blocks):
            raise UserError(
                f"S5's blocks hold whole conjugate pairs: state {self.state} is no multiple of twice {self.blocks}."
            )
        if not 0 < self.dt_min <= self.dt_max:
            raise UserError(f"S5 needs 0 < dt_min <= dt_max, not {self.dt_min} and {self.dt_max}.")
        return S5Layer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        return self.state

    def param_rules(self) -> Mapping[str, ParamRule]:
        own = ParamRule(lr=self.lr, weight_decay=0.0)
        return dict.fromkeys(("decay", "frequency", "log_dt", *(() if self.drive_follows else ("drive",))), own)


EXAMPLES = (
    S5(state=8),
    S5(state=12, blocks=3, activation="half_glu2", readout_init="trunc_standard_normal", clip=True),
    S5(state=4, blocks=2, activation="full_glu", readout_init="complex_normal", drive_follows=True),
    S5(state=4, activation="gelu"),
)


class S5Layer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). Padded steps count as zero, in both directions."""

    def __init__(self, config: S5, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.config = config
        poles, basis = normal_legs(config.state // config.blocks)
        poles, pairs = poles.repeat(config.blocks), config.state // 2
        self.decay = nn.Parameter(poles.real.float())  # (N,): lambda's real part
        self.frequency = nn.Parameter(poles.imag.float())  # (N,)
        log_dt = torch.empty(pairs).uniform_(math.log(config.dt_min), math.log(config.dt_max), generator=generator)
        self.log_dt = nn.Parameter(log_dt)  # (N,)
        self.drive = nn.Parameter(_initial_drive(config, width, basis, generator))  # (N, D, 2): B
        readouts = [_initial_readout(config, width, basis, generator) for _ in range(1 if causal else 2)]
        self.readout = nn.Parameter(torch.stack(readouts))  # (1 or 2, D, N, 2): C
        self.skip = nn.Parameter(torch.empty(width).normal_(generator=generator))  # (D,): d
        if config.activation != "gelu":
            self.gate = linear(width, 2 * width if config.activation == "full_glu" else width, generator)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0)
        return self._activated(self.states_and_output(x, None)[0]).to(working_type(x))

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps N complex numbers as `state`."""
        y, last = self.states_and_output(x, None if state is None else state["state"])
        return self._activated(y).to(working_type(x)), {"state": last}

    def states_and_output(self, x: Tensor, initial: Tensor | None) -> tuple[Tensor, Tensor]:
        """What comes before the activation, (B, T, D), and the last state, (B, N) complex."""
        # In float32: bfloat16 has no number between 0.996 and 1, where decays of long memories lie.
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(self.skip.dtype)
            a, drive = self.stepped()
            y, last = mimo(x, a, drive, 2 * torch.view_as_complex(self.readout), initial)
            return y.addcmul(x, self.skip), last

    def stepped(self) -> tuple[Tensor, Tensor]:
        """The discrete lambda and B by zero-order hold, (N,) and (N, D) complex.

        The exponent is taken in float64, for its phase.
        """
        decay = self.decay.clamp(max=-LEAST_DECAY) if self.config.clip else self.decay
        poles, drive = torch.complex(decay.double(), self.frequency.double()), torch.view_as_complex(self.drive)
        exponents = self.log_dt.double().exp() * poles
        gain = torch.expm1(exponents) / poles
        return torch.exp(exponents).to(drive.dtype), gain.to(drive.dtype).unsqueeze(1) * drive

    def _activated(self, y: Tensor) -> Tensor:
        match self.config.activation:
            case "gelu":
                return F.gelu(y)
            case "half_glu1":
                y = F.gelu(y)
                return y * torch.sigmoid(self.gate(y))
            case "half_glu2":
                return y * torch.sigmoid(self.gate(F.gelu(y)))
            case "full_glu":
                return gelu_glu(y.transpose(1, 2), self.gate.weight, self.gate.bias)


def _initial_drive(config: S5, width: int, basis: Tensor, generator: Generator) -> Tensor:
    """V^-1 B with B real of variance 1 / P, (N, D, 2); V is block-diagonal with `basis`, (R, R / 2)."""
    real = _lecun((config.blocks, config.state // config.blocks, width), config.state, generator)
    return torch.view_as_real((basis.mH @ real.to(basis.dtype)).flatten(0, 1)).float()


def _initial_readout(config: S5, width: int, basis: Tensor, generator: Generator) -> Tensor:
    """One direction's C, (D, N, 2): complex normal, or C V with complex C."""
    if config.readout_init == "complex_normal":
        return torch.empty(width, config.state // 2, 2).normal_(0, 0.5**0.5, generator=generator)
    fan_in = config.state * (width if config.readout_init == "lecun_normal" else 1)
    parts = _lecun((width, config.blocks, config.state // config.blocks, 2), fan_in, generator)
    return torch.view_as_real((torch.view_as_complex(parts).unsqueeze(2) @ basis).flatten(1)).float()


def _lecun(shape: tuple[int, ...], fan_in: int, generator: Generator) -> Tensor:
    """A normal draw of variance 1 / fan_in in float64, truncated at two standard deviations of the untruncated one."""
    values = torch.empty(shape, dtype=torch.float64)
    # A standard normal cut at two has the standard deviation 0.8796.
    nn.init.trunc_normal_(values, 0, 1, -2, 2, generator=generator)
    return values / (0.87962566103423978 * math.sqrt(fan_in))
