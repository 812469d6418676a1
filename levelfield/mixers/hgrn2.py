"""HGRN2 keeps a matrix of memory per head, into which each key channel takes the share of the input that it forgets.

    q = silu(W_q x),   v = W_v x,   f = bound + (1 - bound) sigmoid(W_f x),   k = 1 - f
    S_t = diag(f_t) S_{t-1} + k_t v_t^T,     o_t = q_t S_t                          S: (K, K) per head, K = D / heads
    out = W_out (rmsnorm(o) weight),     the norm over all heads

The layer is that of Qin et al. (2024), "HGRN2: Gated Linear RNNs with State Expansion", section 3. With K = 1 it is
HGRN, a recurrence of one number for each channel; an outer product with the key makes K of each at no parameters more.
Forget gates have a lower bound that rises from layer to layer, so that upper layers remember longer. In the paper the
bounds of all L layers come from one table, cumulated softmax(table), which starts at l / L in layer l = 0 .. L - 1. A
mixer sees one layer only: here each layer learns the bounds of its own channels, from l / L on; the first has none.

    HGRN2(heads=4, layers=6)            # for a model of six layers

The recurrence is GLA's (`ops/linear_attention/decayed.py`).
Letters: B batch, T steps, D width, H heads, K channels of a head, L layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_width
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class HGRN2(MixerConfig):
    """HGRN2 of qin2024, section 3, with flash-linear-attention's layer, `HGRN2Attention`: RMS norm, no convolution.

    layers: L, layers of the model over which the lower bounds of forget gates rise; a mixer does not know the depth, so
    say it (deeper ones start like the last). With 1 no layer has bounds.
    """

    heads: int = 4
    layers: int = 12

    label: ClassVar[str] = "hgrn2"
    paper: ClassVar[str] = "qin2024"
    complexity: ClassVar[str] = "T D^2 / heads"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("HGRN2", width, self.heads)
        if self.layers < 1:
            raise UserError(f"HGRN2's bounds rise over at least one layer, not {self.layers}.")
        return HGRN2Layer(self, width, layer, generator)

    def state_size(self, width: int, length: int) -> int:
        return width * width // self.heads


EXAMPLES = (HGRN2(heads=2), HGRN2(heads=1, layers=1))


class HGRN2Layer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    `bound` holds the logits of the lower bounds, (D,); the first layer has None.
    """

    def __init__(self, config: HGRN2, width: int, layer: int, generator: Generator) -> None:
        super().__init__()
        self.config, start = config, min(layer, config.layers - 1) / config.layers
        self.q_proj = linear(width, width, generator, bias=False)
        self.f_proj = linear(width, width, generator, bias=False)
        self.i_proj = linear(width, width, generator, bias=False)
        self.bound = nn.Parameter(torch.full((width,), math.log(start / (1 - start)))) if start else None
        self.norm_weight = nn.Parameter(torch.ones(width))
        self.o_proj = linear(width, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `memory`, (B, H, K, K)."""
        key, log_forget = self._gates(self.f_proj(x).to(self.norm_weight.dtype))
        parts = (F.silu(self.q_proj(x)), key, self.i_proj(x), log_forget)
        heads = (part.unflatten(-1, (self.config.heads, -1)).transpose(1, 2) for part in parts)
        y, memory = decayed_attention(*heads, state=None if state is None else state["memory"])
        # In float32: the mean of squares is a sum over all channels, as in every other norm.
        with torch.autocast(x.device.type, enabled=False):
            y = F.rms_norm(y.transpose(1, 2).flatten(-2), x.shape[-1:], self.norm_weight.to(y.dtype), 1e-5)
        return self.o_proj(y.to(x.dtype)), {"memory": memory}

    def _gates(self, given: Tensor) -> tuple[Tensor, Tensor]:
        """The keys 1 - f and log f for what the gates are given, (B, T, D) each, with the digits of small ones."""
        if self.bound is None:
            return torch.sigmoid(-given), F.logsigmoid(given)
        above = torch.sigmoid(-self.bound) * torch.sigmoid(-given)
        log_forget = torch.logaddexp(F.logsigmoid(self.bound), F.logsigmoid(-self.bound) + F.logsigmoid(given))
        return above, log_forget.clamp(max=0)  # a gate that is open may be rounded above 1
