"""S4 is a linear state-space model for each feature, trained as one long convolution, followed by a gated linear map.

    x' = A x + b u,   y = Re(c x) + d u,   stepped by dt;   out = GLU(W gelu(y))

The layer is that of Gu, Goel and Ré (2022), section 3, and Gu, Gupta, Goel and Ré (2022, S4D). A is diagonal plus low
rank (`form="dplr"`, S4) or diagonal (`form="diagonal"`, S4D). What it starts from decides how much it remembers: the
HiPPO-LegS matrix ("legs") projects the past on Legendre polynomials, and Amos et al. (2025, section 3.3, figure 2) ask
how much of that prior self-pretraining can learn from a random start ("random") instead.

    S4(state=64, copies=2)                              # LRA Image in amos2025: two A, b, p for all features
    S4(form="diagonal", init="lin")                     # S4D-Lin
    S4(init="random")                                   # every parameter of the layer from N(0, 0.1^2)

Everything is learned in continuous time or per step, and so is c itself (not the c (I - A^T) of the published code): a
layer knows no training length. Letters: B batch, T steps, D width, N conjugate pairs (state / 2), K copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._s4 import RANDOM_SCALE, Start, StateSpace
from levelfield.ops.layers.glu import conv_glu, gelu_glu
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.ssm.diagonal import diagonal_kernel
from levelfield.ops.ssm.hippo import legs_nplr
from levelfield.ops.ssm.step import step_diagonal
from levelfield.spec import MixerConfig, ParamRule, UserError


@dataclass(frozen=True)
class S4(MixerConfig):
    """S4 and S4D of gu2022 and gu2022b, with the settings of amos2025's code.

    state: real numbers of state per feature, twice the conjugate pairs. copies: features h and h + copies share A, b
    and p (dt, c and d are each feature's own). dt is drawn log-uniformly from [dt_min, dt_max]. lr: the rate of A, p
    and b, which have no weight decay; None follows the recipe. dt_lr: the rate of dt, which has no weight decay either;
    None follows the recipe.
    """

    state: int = 64
    form: Literal["dplr", "diagonal"] = "dplr"
    init: Literal["legs", "lin", "inv", "real", "random"] = "legs"
    copies: int = 1
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    lr: float | None = 1e-3
    discretisation: Literal["bilinear", "zoh"] = "bilinear"
    dt_lr: float | None = field(default=None, metadata={"added": True})

    label: ClassVar[str] = "s4"
    paper: ClassVar[str] = "gu2022"
    complexity: ClassVar[str] = "T log T D + T D state"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.state < 2 or self.state % 2:
            raise UserError(
                f"S4's state counts real numbers, two a conjugate pair: choose an even state >= 2, not {self.state}."
            )
        if self.copies < 1 or width % self.copies:
            raise UserError(f"S4 cannot share {self.copies} copies among {width} features: choose a divisor of it.")
        if not 0 < self.dt_min <= self.dt_max:
            raise UserError(f"S4 needs 0 < dt_min <= dt_max, not {self.dt_min} and {self.dt_max}.")
        if self.form == "dplr" and self.init not in ("legs", "random"):
            raise UserError(f"S4's init '{self.init}' is of the diagonal form: add form='diagonal'.")
        if self.form == "dplr" and self.discretisation != "bilinear":
            raise UserError("S4's dplr form is stepped bilinearly: leave discretisation, or take form='diagonal'.")
        return S4Layer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        return width * self.state

    def param_rules(self) -> Mapping[str, ParamRule]:
        own = ParamRule(lr=self.lr, weight_decay=0.0)
        names = ("log_decay", "frequency", "drive", "low_rank")[: 4 if self.form == "dplr" else 3]
        return dict.fromkeys(names, own) | {"log_dt": ParamRule(lr=self.dt_lr, weight_decay=0.0)}

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor:
        """The kernel over the past, (D, length)."""
        assert isinstance(layer, S4Layer)
        return layer.kernel(length)[0]


EXAMPLES = (
    S4(state=8),
    S4(state=6, copies=2, init="random"),
    S4(state=8, form="diagonal", init="lin", discretisation="zoh"),
    S4(state=4, form="diagonal", init="real"),
)


class S4Layer(StateSpace, RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). Padded steps count as zero, in both directions."""

    def __init__(self, config: S4, width: int, causal: bool, generator: Generator) -> None:
        start, dt = starting_point(config), (config.dt_min, config.dt_max)
        super().__init__(width, causal, start, generator, copies=config.copies, dt=dt)
        self.config = config
        self.output = linear(width, 2 * width, generator)
        if config.init == "random":
            for parameter in self.parameters():
                nn.init.normal_(parameter, 0, RANDOM_SCALE, generator=generator)

    def kernel(self, length: int) -> Tensor:
        """Returns the kernels, (1 or 2, D, length): forwards from lag 0, and backwards from lag -1."""
        if self.config.form == "dplr":
            return super().kernel(length)
        return diagonal_kernel(*self._diagonal(self.readout), length)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the state itself as `state`.

        In the dplr form, real parts come before imaginary ones; in the diagonal form the state is without b, which is
        then a factor of c.
        """
        y, after = self.step_on(x, None if state is None else state["state"])
        return gelu_glu(y, self.output.weight, self.output.bias), {"state": after}

    def advance(self, u: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.config.form == "dplr":
            return super().advance(u, before)
        return step_diagonal(*self._diagonal(self.readout[0]), u, before)

    def _diagonal(self, readout: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the logarithms of the discrete poles, (D, N), and c times b, shaped as the readout is but complex."""
        poles, drive, _, dt = self.continuous()
        log_a, gain = discretise(poles, dt, self.config.discretisation)
        factor = 2 * torch.view_as_complex(readout)  # a pair counts twice
        return log_a, factor * (gain * drive).to(factor.dtype)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        return conv_glu(x, mask, self.kernel, self.skip, self.output)


def starting_point(config: S4) -> Start:
    """Returns what one copy starts from.

    "legs" is HiPPO-LegS; its diagonal form drops p and halves b, which keeps the kernel for many states (gu2022b,
    theorem 3). "lin", "inv" and "real" are S4D's (gu2022b, section 4), with b = 1.
    """
    pairs = config.state // 2
    n = torch.arange(pairs, dtype=torch.float64)
    if config.init in ("legs", "random"):  # "random" is redrawn afterwards
        poles, low_rank, drive = legs_nplr(config.state)
        return (poles, low_rank, drive) if config.form == "dplr" else (poles, None, drive / 2)
    frequency = {
        "lin": math.pi * n,
        "inv": config.state / math.pi * (config.state / (2 * n + 1) - 1),
        "real": torch.zeros_like(n),
    }[config.init]
    decay = n + 1 if config.init == "real" else torch.full_like(n, 0.5)
    return torch.complex(-decay, frequency), None, torch.ones_like(n) + 0j


def discretise(poles: Tensor, dt: Tensor, discretisation: Literal["bilinear", "zoh"]) -> tuple[Tensor, Tensor]:
    """The logarithm of the discrete poles and the factor of b, shaped as poles (gu2022b, section 2).

    poles: (states, N) complex; dt: (states, 1).
    """
    if discretisation == "zoh":
        return dt * poles, torch.expm1(dt * poles) / poles
    inverse = 1 / (1 - dt / 2 * poles)
    return torch.log(2 * inverse - 1), dt * inverse
