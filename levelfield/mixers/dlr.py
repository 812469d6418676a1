"""DLR is a diagonal linear recurrence without discretisation, whose eigenvalues all features share.

    k[h, t] = Re sum_n w[h, n] exp(lambda_n t),   lambda_n = -r_n^2 + i omega_n;   out = GLU(W gelu(k * u + d u))

The layer is that of Gupta et al. (2022), in the form of Amos et al. (2025), equation 3. It is the plainest state-space
model: no HiPPO, no b, no dt. Trained from scratch it trails S4; Amos et al. (section 3.3, figure 2) find that
self-pretraining closes most of that gap, from a random start too.

    DLR(state=1024)                       # amos2025's: frequencies spread over the circle, slow decays
    DLR(state=1024, init="random")        # every parameter of the layer from N(0, 0.1^2)

Letters: B batch, T steps, D width, N states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._s4 import RANDOM_SCALE
from levelfield.ops.layers.glu import conv_glu, gelu_glu
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.ssm.diagonal import shared_kernel
from levelfield.ops.ssm.step import step_diagonal
from levelfield.spec import MixerConfig, ParamRule, UserError


@dataclass(frozen=True)
class DLR(MixerConfig):
    """DLR of gupta2022, as in amos2025, equation 3, and its code.

    state: complex states N. At first each decays by dt_n / 2 a step, with dt_n log-uniform in [dt_min, dt_max]. lr: the
    rate of lambda and w, which have no weight decay; None follows the recipe.
    """

    state: int = 1024
    init: Literal["structured", "random"] = "structured"
    dt_min: float = 1e-4
    dt_max: float = 1e-1
    lr: float | None = 1e-4

    label: ClassVar[str] = "dlr"
    paper: ClassVar[str] = "gupta2022"
    complexity: ClassVar[str] = "T log T D + T D state"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.state < 1:
            raise UserError(f"DLR needs at least one state, not {self.state}.")
        if not 0 < self.dt_min <= self.dt_max:
            raise UserError(f"DLR needs 0 < dt_min <= dt_max, not {self.dt_min} and {self.dt_max}.")
        return DLRLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts real and imaginary parts of N states for every feature: lambda is shared, what is
        remembered is not.
        """
        return 2 * width * self.state

    def param_rules(self) -> Mapping[str, ParamRule]:
        own = ParamRule(lr=self.lr, weight_decay=0.0)
        return dict.fromkeys(("root_decay", "frequency", "readout"), own)

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor:
        """The kernel over the past, (D, length)."""
        assert isinstance(layer, DLRLayer)
        return layer.kernel(length)[0]


EXAMPLES = (DLR(state=16), DLR(state=8, init="random"))


class DLRLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). Padded steps count as zero, in both directions."""

    def __init__(self, config: DLR, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        states, directions = config.state, 1 if causal else 2
        log_dt = torch.empty(states).uniform_(math.log(config.dt_min), math.log(config.dt_max), generator=generator)
        self.root_decay = nn.Parameter((log_dt.exp() / 2).sqrt())  # (N,): r
        self.frequency = nn.Parameter(2 * math.pi * torch.arange(states) / states)  # (N,): omega
        readout = torch.empty(directions, width, states, 2).normal_(generator=generator) / states
        self.readout = nn.Parameter(readout)  # (1 or 2, D, N, 2): w, both parts N(0, 1) / N
        self.skip = nn.Parameter(torch.empty(width).normal_(generator=generator))  # (D,): d
        self.output = linear(width, 2 * width, generator)
        if config.init == "random":
            for parameter in self.parameters():
                nn.init.normal_(parameter, 0, RANDOM_SCALE, generator=generator)

    def kernel(self, length: int) -> Tensor:
        """The convolution kernels, (1 or 2, D, length): forwards from lag 0, and backwards from lag -1."""
        return shared_kernel(self._exponents(), torch.view_as_complex(self.readout), length)

    def _exponents(self) -> Tensor:
        """The exponents lambda, (N,) in float64, so that steps far out keep their phase."""
        return torch.complex(-(self.root_decay.double() ** 2), self.frequency.double())

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        return conv_glu(x, mask, self.kernel, self.skip, self.output)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps N complex numbers for every feature as `state`, real and imaginary parts."""
        before = None if state is None else state["state"]
        # In float32: bfloat16 has no number between 0.996 and 1, where decays of long memories lie.
        with torch.autocast(x.device.type, enabled=False):
            u = x.transpose(1, 2).to(self.skip.dtype)
            y, after = step_diagonal(self._exponents(), torch.view_as_complex(self.readout[0]), u, before)
            y = y + self.skip.unsqueeze(-1) * u
        return gelu_glu(y, self.output.weight, self.output.bias), {"state": after}
