"""DeltaProduct applies the delta rule several times at every step of the sequence, each time with a key of its own.

    q, k_1..k_n, v_1..v_n = silu(causal convolution of linear maps of x);     q and all k scaled to unit length
    beta_j = 2 sigmoid(W_j x)
    S <- S + beta_j k_j (v_j - k_j S)^T     for j = 1..n,     o = q S / sqrt(K)             S: (K, V) per head
    out = W_out (rmsnorm(o) weight),     the norm per head

The layer is that of Siems et al. (2025), section 3. The transition of a step is the product of n generalised
Householder matrices I - beta_j k_j k_j^T. One of them is a reflection at most (DeltaNet); two are any rotation of a
plane, and n any orthogonal map that leaves all but n dimensions alone. Permutations of five places take up to four.
Factors are laid out one after the other, as steps of a longer sequence, over which the delta rule is computed a chunk
at a time (`ops/linear_attention/delta.py`).

    DeltaProduct(heads=4)                          # two Householder matrices a step
    DeltaProduct(heads=4, householder=4, gated=True)   # four, and the gates of Gated DeltaNet

Letters: B batch, T steps, D width, H heads, K and V channels of a head's keys and values, W taps, n factors of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_channels, check_taps
from levelfield.mixers._memory import DeltaMemory, NormWeight, query_key_value
from levelfield.ops.layers.gated_norm import gated_norm
from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.layers.unit_norm import unit
from levelfield.ops.linear_attention.delta import delta_rule
from levelfield.ops.ssm.selective import step_bias
from levelfield.spec import ParamRule, UserError

DT_MIN, DT_MAX, A_MAX = 1e-3, 1e-1, 16.0  # of the decay's first values, as in Gated DeltaNet


@dataclass(frozen=True)
class DeltaProduct(DeltaMemory):
    """DeltaProduct of siems2025, section 3, with the layer of its code (flash-linear-attention, `GatedDeltaProduct`).

    householder: n, the factors of a transition. negative: beta is twice the sigmoid, so that a factor may reflect
    (grazzi2024). gated: Gated DeltaNet's decay, once a step before the factors, and its gate of the output. expand_k,
    expand_v: channels of keys and of values, as multiples of the width. conv: taps of the short convolutions.
    """

    heads: int = 4
    householder: int = 2
    negative: bool = True
    gated: bool = False
    expand_k: float = 1.0
    expand_v: float = 1.0
    conv: int = 4

    label: ClassVar[str] = "deltaproduct"
    paper: ClassVar[str] = "siems2025"
    complexity: ClassVar[str] = "T D^2 householder expand_k expand_v / heads"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_channels("DeltaProduct", *self.channels(width), self.heads)
        check_taps("DeltaProduct", self.conv)
        if self.householder < 1:
            raise UserError(f"DeltaProduct takes at least one Householder factor a step, not {self.householder}.")
        return DeltaProductLayer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the memory, and the last inputs of the convolutions."""
        keys, values = self.channels(width)
        return keys * values // self.heads + (self.conv - 1) * (keys + self.householder * (keys + values))

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("A_log", "dt_bias"), ParamRule(weight_decay=0.0)) if self.gated else {}


EXAMPLES = (
    DeltaProduct(heads=2),
    DeltaProduct(heads=1, householder=3, gated=True, expand_k=0.5, expand_v=2.0, conv=2),
)


class DeltaProductLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of flash-linear-attention's checkpoints.
    """

    def __init__(self, config: DeltaProduct, width: int, generator: Generator) -> None:
        super().__init__()
        self.config, n, heads = config, config.householder, config.heads
        keys, values = config.channels(width)
        self.q_proj = linear(width, keys, generator, bias=False)
        self.k_proj = linear(width, n * keys, generator, bias=False)
        self.v_proj = linear(width, n * values, generator, bias=False)
        self.b_proj = linear(width, n * heads, generator, bias=False)
        self.q_conv1d, self.k_conv1d, self.v_conv1d = (
            conv1d(size, size, config.conv, generator, groups=size, bias=False) for size in (keys, n * keys, n * values)
        )
        if config.gated:
            self.a_proj = linear(width, heads, generator, bias=False)
            # At least one rounding above 0, so that the logarithm is finite.
            a = torch.empty(heads).uniform_(0, A_MAX, generator=generator).clamp(min=2**-24)
            self.A_log = nn.Parameter(a.log())
            self.dt_bias = nn.Parameter(step_bias(heads, DT_MIN, DT_MAX, generator))
            self.g_proj = linear(width, values, generator, bias=False)
        self.o_norm = NormWeight(values // heads)
        self.o_proj = linear(values, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `memory`, (B, H, K, V), and the convolutions' last inputs `q`, `k` and `v`, (B, W - 1, C) each, with
        H K, n H K or n H V channels C."""
        kept, n = state or {}, self.config.householder
        maps = ((self.q_proj, self.q_conv1d), (self.k_proj, self.k_conv1d), (self.v_proj, self.v_conv1d))
        parts, tails = query_key_value(x, maps, 1, kept)
        shapes = ((count, self.config.heads, -1) for count in (1, n, n))
        query, key, value = (part.flatten(2).unflatten(-1, shape) for part, shape in zip(parts, shapes, strict=True))
        # In float32: a memory is a sum over all steps, to which bfloat16 would soon add nothing.
        with torch.autocast(x.device.type, enabled=False):
            query, key = unit(query) * query.shape[-1] ** -0.5, unit(key)
            beta = self.b_proj(x).to(key.dtype).sigmoid() * (2 if self.config.negative else 1)
            query = F.pad(query, (0, 0, 0, 0, n - 1, 0))  # asked after the last factor alone
            factors = (query, key, value, beta.unflatten(-1, (n, -1)))
            rows = (part.flatten(1, 2).transpose(1, 2) for part in factors)  # (B, H, T n, X) and (B, H, T n)
            y, memory = delta_rule(*rows, log_decay=self._log_decay(x), state=kept.get("memory"))
            y = y.transpose(1, 2)[:, n - 1 :: n]
        return self._joined(y, x), {"memory": memory, **tails}

    def _log_decay(self, x: Tensor) -> Tensor | None:
        """The logarithms of the decays, (B, H, T n): of each step before its first factor, and 0 before the others."""
        if not self.config.gated:
            return None
        step = F.softplus(self.a_proj(x).to(self.dt_bias.dtype) + self.dt_bias)
        first = (-self.A_log.exp() * step).unsqueeze(2)  # (B, T, 1, H)
        return F.pad(first, (0, 0, 0, self.config.householder - 1)).flatten(1, 2).transpose(1, 2)

    def _joined(self, y: Tensor, x: Tensor) -> Tensor:
        """The layer's output, (B, T, D), for what was recalled, (B, T, H, V), and its input, (B, T, D)."""
        if self.config.gated:
            gate = self.g_proj(x).unflatten(-1, (self.config.heads, -1))
            y = gated_norm(y, gate, self.o_norm.weight, first=False)
        else:
            # In float32: the mean of squares is a sum over all channels of a head, as in every other norm.
            with torch.autocast(x.device.type, enabled=False):
                y = F.rms_norm(y, y.shape[-1:], self.o_norm.weight.to(y.dtype), 1e-5)
        return self.o_proj(y.flatten(-2).to(x.dtype))
