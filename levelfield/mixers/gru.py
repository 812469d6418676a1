"""The GRU is a recurrent network whose gates see its last output, so that its states can be any function of the past.

    r = sigmoid(W_r x_t + U_r h + b_r),     u = sigmoid(W_u x_t + U_u h + b_u)
    h_t = (1 - u) tanh(W_h x_t + b_h + r (U_h h + c_h)) + u h,      h = h_{t-1},     y_t = W_o h_t

The layer is that of Cho et al. (2014), section 2.3, with torch's place of the reset gate, behind the product. What a
linear recurrence carries on is a linear map of its state; here every step applies a nonlinear one, which makes it a
sequential computation, and lets a few channels follow any finite automaton. It is the reference for state tracking.

    GRU()
    GRU(hidden=128)

Letters: B batch, T steps, D width, N hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.ops.layers.init import gru, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class GRU(MixerConfig):
    """The gated recurrent unit of cho2014, section 2.3, as `torch.nn.GRU` computes it, and a linear map of its states.

    hidden: N, the numbers of its state; None is the width.
    """

    hidden: int | None = None

    label: ClassVar[str] = "gru"
    paper: ClassVar[str] = "cho2014"
    complexity: ClassVar[str] = "T hidden^2"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.hidden is not None and self.hidden < 1:
            raise UserError(f"GRU needs at least one hidden channel, not {self.hidden}.")
        return GRULayer(width, self.hidden or width, generator)

    def state_size(self, width: int, length: int) -> int:
        return self.hidden or width


EXAMPLES = (GRU(), GRU(hidden=5))


class GRULayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, width: int, hidden: int, generator: Generator) -> None:
        super().__init__()
        self.gru = gru(width, hidden, generator)
        self.out = linear(hidden, width, generator)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `hidden`, (B, N)."""
        # In float32: a rounded state would be rounded again at every step.
        with torch.autocast(x.device.type, enabled=False):
            before = None if state is None else state["hidden"].unsqueeze(0)
            states, last = self.gru(x.to(self.out.weight.dtype), before)
        return self.out(states.to(x.dtype)), {"hidden": last[0]}
