"""LRU is a diagonal complex recurrence, whose eigenvalues start on a ring in the unit circle and cannot leave the
circle.

    h[t] = lambda h[t - 1] + exp(gamma) B x[t],     y = Re(C h) + d x,     out = GLU(W gelu(y))
    lambda = exp(-exp(nu) + i exp(theta))

The layer is that of Orvieto et al. (2023), section 3. It has no continuous time and no HiPPO: the paper asks what of a
state-space model a plain recurrence needs. The answer has three parts: the double exponential, which keeps |lambda| <
1; the ring from which lambda starts; and gamma, which starts at sqrt(1 - |lambda|^2), so that white input makes states
of one size.

    LRU(state=128)
    LRU(state=256, radius_min=0.999, radius_max=0.9999, max_phase=0.314)      # long memories, slow: as for Path-X

Letters: B batch, T steps, D width, N complex states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.ops.layers.glu import gelu_glu
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.ssm.mimo import mimo
from levelfield.spec import MixerConfig, ParamRule, UserError


@dataclass(frozen=True)
class LRU(MixerConfig):
    """LRU of orvieto2023, section 3 and appendix A.

    In two directions a second C reads the same recurrence run backwards, as in smith2023. state: complex states N. At
    the start |lambda|^2 is uniform between the squares of radius_min and radius_max (so lambda is uniform on the ring
    between them) and its phase uniform in [0, max_phase]. lr: the rate of lambda, gamma and B, which have no weight
    decay; None follows the recipe (the paper takes a half or a quarter of the recipe's rate).
    """

    state: int = 64
    radius_min: float = 0.0
    radius_max: float = 1.0
    max_phase: float = 2 * math.pi
    lr: float | None = 1e-3

    label: ClassVar[str] = "lru"
    paper: ClassVar[str] = "orvieto2023"
    complexity: ClassVar[str] = "T D state"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.state < 1:
            raise UserError(f"LRU needs at least one state, not {self.state}.")
        if not 0 <= self.radius_min < self.radius_max <= 1:
            raise UserError(
                f"LRU starts on a ring inside the unit circle: 0 <= radius_min < radius_max <= 1, not "
                f"{self.radius_min} and {self.radius_max}."
            )
        if not 0 < self.max_phase <= 2 * math.pi:
            raise UserError(f"LRU's phases start in [0, max_phase]: at most a turn, 2 pi, not {self.max_phase}.")
        return LRULayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        return 2 * self.state

    def param_rules(self) -> Mapping[str, ParamRule]:
        own = ParamRule(lr=self.lr, weight_decay=0.0)
        return dict.fromkeys(("log_decay", "log_phase", "log_gain", "drive"), own)


EXAMPLES = (LRU(state=8), LRU(state=5, radius_min=0.9, radius_max=0.999, max_phase=0.5))


class LRULayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). Padded steps count as zero, in both directions."""

    def __init__(self, config: LRU, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        states, directions = config.state, 1 if causal else 2
        least, most = config.radius_min**2, config.radius_max**2
        # At least one rounding of float32 from 0 and 1, so that the logarithms are finite.
        square = torch.empty(states).uniform_(least, most, generator=generator).clamp(2**-24, 1 - 2**-24)
        phase = torch.empty(states).uniform_(0, config.max_phase, generator=generator).clamp(min=2**-24)
        self.log_decay = nn.Parameter((-0.5 * square.log()).log())  # (N,): nu
        self.log_phase = nn.Parameter(phase.log())  # (N,): theta
        self.log_gain = nn.Parameter(0.5 * torch.log1p(-square))  # (N,): gamma
        drive = torch.empty(states, width, 2).normal_(0, (2 * width) ** -0.5, generator=generator)
        self.drive = nn.Parameter(drive)  # (N, D, 2): B
        readout = torch.empty(directions, width, states, 2).normal_(0, states**-0.5, generator=generator)
        self.readout = nn.Parameter(readout)  # (1 or 2, D, N, 2): C
        self.skip = nn.Parameter(torch.empty(width).normal_(generator=generator))  # (D,): d
        self.output = linear(width, 2 * width, generator)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0)
        y, _ = self.states_and_output(x, None)
        return gelu_glu(y.transpose(1, 2), self.output.weight, self.output.bias)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps N complex numbers as `state`."""
        y, last = self.states_and_output(x, None if state is None else state["state"])
        return gelu_glu(y.transpose(1, 2), self.output.weight, self.output.bias), {"state": last}

    def states_and_output(self, x: Tensor, initial: Tensor | None) -> tuple[Tensor, Tensor]:
        """What comes before the GLU, (B, T, D), and the last state, (B, N) complex."""
        # In float32: bfloat16 has no number between 0.996 and 1, where decays of long memories lie.
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(self.skip.dtype)
            drive = torch.view_as_complex(self.drive) * self.log_gain.exp().unsqueeze(1)
            # The phase is formed in float64: a rounding of it would add up over the steps.
            a = torch.exp(torch.complex(-self.log_decay.double().exp(), self.log_phase.double().exp()))
            y, last = mimo(x, a.to(drive.dtype), drive, torch.view_as_complex(self.readout), initial)
            return y.addcmul(x, self.skip), last
