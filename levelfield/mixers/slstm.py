"""The sLSTM is xLSTM's scalar memory with exponential gates, whose heads see their own last outputs.

    c = silu(causal convolution of x)
    i~, f~ = W_i c, W_f c,   z~, o~ = W_z x, W_o x,   and to each R h_{t-1} + b;   all W and R map each head by itself
    c_t = f_t c_{t-1} + i_t tanh(z~_t),   n_t = f_t n_{t-1} + i_t,   i = exp(i~),   f = sigmoid(f~)
    h_t = sigmoid(o~_t) c_t / n_t,     out = headnorm(h)

The layer is that of Beck et al. (2024), section 2.2. It gives up parallel training for gates that see the state, which
state tracking needs (section 4.1 there); the mLSTM does the reverse. A stabiliser keeps the numbers in range
(`ops/layers/slstm.py`). The block of the paper has a gated feed-forward layer behind it, which is the model's here.

    SLSTM(heads=4)

Letters: B batch, T steps, D width, H heads of K = D / H channels, W taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._checks import check_taps, check_width
from levelfield.mixers._xlstm import Blocks, Convolution, HeadNorm
from levelfield.ops.conv.short import short_conv
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.layers.slstm import State, slstm
from levelfield.spec import MixerConfig, ParamRule

FORGET_FIRST, FORGET_FALL, FORGET_BEND = 5.0, 12.0, 0.3  # f~ at the start: 5 - 12 (channel / last channel)^0.3


@dataclass(frozen=True)
class SLSTM(MixerConfig):
    """The sLSTM of beck2024, section 2.2 (equations 8 to 17) and figure 10, with the initial values of its code.

    conv: taps of the convolution; 0 leaves it out. The forget gates start as in the first block of the authors' models:
    open in the first channel of a head, closed in the last.
    """

    heads: int = 4
    conv: int = 4

    label: ClassVar[str] = "slstm"
    paper: ClassVar[str] = "beck2024"
    complexity: ClassVar[str] = "T D^2 / heads"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("SLSTM", width, self.heads)
        if self.conv:
            check_taps("SLSTM", self.conv)
        return SLSTMLayer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts output, memory, normaliser and stabiliser, and the last inputs of the convolution."""
        return (4 + max(0, self.conv - 1)) * width

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("slstm_cell.bias", "group_norm.weight"), ParamRule(weight_decay=0.0))


EXAMPLES = (SLSTM(heads=2), SLSTM(heads=1, conv=0))


class Cell(nn.Module):
    """The recurrence with its own weights, of the gates i, f, z and o: R (H, 4 K, K), to and from, and b (4, H, K)."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.recurrent = nn.Parameter(torch.zeros(heads, 4 * size, size))
        bias = torch.zeros(4, heads, size)
        bias[1] = FORGET_FIRST - FORGET_FALL * torch.linspace(0, 1, size) ** FORGET_BEND
        self.bias = nn.Parameter(bias)

    def forward(self, given: Tensor, state: State | None) -> tuple[Tensor, State]:
        """The outputs, (B, T, H, K), for given, (B, T, 4, H, K), and the state after them."""
        kind = self.bias.dtype
        # In float32: a memory is a sum over all steps, and gates are fed what was rounded before.
        with torch.autocast(given.device.type, enabled=False):
            return slstm(given.to(kind) + self.bias, self.recurrent, state)


class SLSTMLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parts have the names of the authors' code, and parameters its shapes.
    """

    def __init__(self, config: SLSTM, width: int, generator: Generator) -> None:
        super().__init__()
        self.heads = config.heads
        self.conv1d = Convolution(width, config.conv, generator) if config.conv else None
        block, spread = width // config.heads, math.sqrt(2 / (5 * width))
        self.igate, self.fgate, self.zgate, self.ogate = (Blocks(width, block, spread, generator) for _ in range(4))
        self.slstm_cell = Cell(config.heads, block)
        self.group_norm = HeadNorm(width)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `output`, `cell`, `norm` and `peak`, (B, H, K) each, and the convolution's last inputs `tail`,
        (B, W - 1, D), where there is one."""
        seen, tail = x, {}
        if self.conv1d is not None:
            conv = self.conv1d.conv
            seen, tail["tail"] = short_conv(x, conv.weight, conv.bias, None if state is None else state["tail"])
        parts = (self.igate(seen), self.fgate(seen), self.zgate(x), self.ogate(x))
        given = torch.stack(parts, 2).unflatten(-1, (self.heads, -1))
        before = None if state is None else State(*(state[name] for name in State._fields))
        h, after = self.slstm_cell(given, before)
        return self.group_norm(h).to(parts[0].dtype), {**after._asdict(), **tail}
