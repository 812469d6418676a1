"""Gated DeltaNet keeps a matrix of memory per head that follows the delta rule and decays at a rate the input sets.

    q, k, v = silu(causal convolution of three linear maps of x);     q, k scaled to unit length
    a = exp(-exp(A_log) softplus(W_a x + dt_bias)),     beta = sigmoid(W_b x)
    S_t = a_t S_{t-1} + beta_t k_t (v_t - a_t k_t S_{t-1})^T,     o_t = q_t S_t / sqrt(K)      S: (K, V) per head
    out = W_out (rmsnorm(o) weight * silu(W_g x)),     the norm per head

The layer is that of Yang et al. (2025), section 3. The decay, Mamba-2's, clears the whole memory quickly; the delta
rule, DeltaNet's, replaces one entry and leaves the others as they are. The recurrence is computed a chunk at a time
(`ops/linear_attention/delta.py`).

    GatedDeltaNet(heads=4)                              # about 6 D^2 parameters, as the published layer has
    GatedDeltaNet(heads=16, expand_k=1, expand_v=1)     # with narrower values

Letters: B batch, T steps, D width, H heads, K and V channels of a head's keys and values, W taps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_channels, check_taps
from levelfield.mixers._memory import DeltaMemory, NormWeight, query_key_value, short_convs
from levelfield.ops.layers.gated_norm import gated_norm
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.layers.unit_norm import unit
from levelfield.ops.linear_attention.delta import delta_rule
from levelfield.ops.ssm.selective import step_bias
from levelfield.spec import ParamRule, UserError


@dataclass(frozen=True)
class GatedDeltaNet(DeltaMemory):
    """Gated DeltaNet of yang2025, section 3, with the layer of its code (flash-linear-attention, `GatedDeltaNet`).

    expand_k, expand_v: channels of keys and of values, as multiples of the width. conv: taps of the short convolutions.
    At first softplus(dt_bias) is log-uniform in [dt_min, dt_max] and exp(A_log) uniform in [0, a_max]. negative: beta
    is twice the sigmoid, so that the memory's transitions reach negative eigenvalues (grazzi2024).
    """

    heads: int = 4
    expand_k: float = 0.75
    expand_v: float = 1.5
    conv: int = 4
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    a_max: float = 16.0
    negative: bool = False

    label: ClassVar[str] = "gated_deltanet"
    paper: ClassVar[str] = "yang2025"
    complexity: ClassVar[str] = "T D^2 expand_k expand_v / heads"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_channels("GatedDeltaNet", *self.channels(width), self.heads)
        check_taps("GatedDeltaNet", self.conv)
        if not (0 < self.dt_min <= self.dt_max and self.a_max > 0):
            raise UserError("GatedDeltaNet needs 0 < dt_min <= dt_max and a positive a_max.")
        return GatedDeltaNetLayer(self, width, generator)

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("A_log", "dt_bias"), ParamRule(weight_decay=0.0))


EXAMPLES = (GatedDeltaNet(heads=2), GatedDeltaNet(heads=1, expand_k=0.5, expand_v=0.5, conv=2, negative=True))


class GatedDeltaNetLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of flash-linear-attention's checkpoints.
    """

    def __init__(self, config: GatedDeltaNet, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        keys, values = config.channels(width)
        self.q_proj = linear(width, keys, generator, bias=False)
        self.k_proj = linear(width, keys, generator, bias=False)
        self.v_proj = linear(width, values, generator, bias=False)
        self.a_proj = linear(width, config.heads, generator, bias=False)
        self.b_proj = linear(width, config.heads, generator, bias=False)
        # At least one rounding above 0, so that the logarithm is finite.
        a = torch.empty(config.heads).uniform_(0, config.a_max, generator=generator).clamp(min=2**-24)
        self.A_log = nn.Parameter(a.log())
        self.dt_bias = nn.Parameter(step_bias(config.heads, config.dt_min, config.dt_max, generator))
        self.q_conv1d, self.k_conv1d, self.v_conv1d = short_convs(keys, values, config.conv, generator)
        self.g_proj = linear(width, values, generator, bias=False)
        self.o_norm = NormWeight(values // config.heads)
        self.o_proj = linear(values, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `memory`, (B, H, K, V), and the convolutions' last inputs `q`, `k` and `v`, (B, W - 1, H X) each."""
        kept = state or {}
        maps = ((self.q_proj, self.q_conv1d), (self.k_proj, self.k_conv1d), (self.v_proj, self.v_conv1d))
        (query, key, value), tails = query_key_value(x, maps, self.config.heads, kept)
        a, b, gate = self.a_proj(x), self.b_proj(x), self.g_proj(x).unflatten(-1, (self.config.heads, -1))
        # In float32: states are sums over all steps, and bfloat16 has no decay between 0.996 and 1.
        with torch.autocast(x.device.type, enabled=False):
            query, key = unit(query) * query.shape[-1] ** -0.5, unit(key)
            beta = b.to(key.dtype).sigmoid() * (2 if self.config.negative else 1)
            decay = -self.A_log.exp() * F.softplus(a.to(self.dt_bias.dtype) + self.dt_bias)
            parts = (query, key, value, beta, decay)
            y, memory = delta_rule(*(part.transpose(1, 2) for part in parts), state=kept.get("memory"))
        y = gated_norm(y.transpose(1, 2), gate, self.o_norm.weight, first=False)
        return self.o_proj(y.flatten(-2).to(x.dtype)), {"memory": memory, **tails}
