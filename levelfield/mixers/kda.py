"""KDA keeps a matrix of memory per head that follows the delta rule and whose key channels decay each at its own rate.

    q, k, v = silu(causal convolution of three linear maps of x);     q, k scaled to unit length
    alpha = exp(-exp(A_log) softplus(W_f2 W_f1 x + dt_bias)), per key channel,     beta = sigmoid(W_b x), per head
    S_t = (I - beta_t k_t k_t^T) diag(alpha_t) S_{t-1} + beta_t k_t v_t^T,     o_t = q_t S_t / sqrt(K)      S: (K, V)
    out = W_out (rmsnorm(o) weight * sigmoid(W_g2 W_g1 x + b)),     the norm per head

The layer is Kimi Delta Attention of the Kimi Team (2025), "Kimi Linear", sections 3 and 4. It refines Gated DeltaNet,
whose heads decay as a whole: here a head forgets some channels and keeps others, as in GLA. Decays and the gate come
through a bottleneck. The paper's model has three such layers to one of attention without positions.

    KDA(heads=4)                                       # keys and values of the width
    KDA(heads=4, negative=True)                        # with negative eigenvalues

The recurrence is computed a chunk at a time (`ops/linear_attention/delta_decayed.py`).
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
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.layers.unit_norm import unit
from levelfield.ops.linear_attention.delta_decayed import decayed_delta_rule
from levelfield.ops.ssm.selective import step_bias
from levelfield.spec import ParamRule, UserError

DT_MIN, DT_MAX = 1e-3, 1e-1  # softplus(dt_bias) is log-uniform between them at first
A_MIN, A_MAX = 1.0, 16.0  # and exp(A_log) uniform between these


@dataclass(frozen=True)
class KDA(DeltaMemory):
    """KDA of kimi2025, section 4, with the layer of flash-linear-attention, `KimiDeltaAttention`, and its first values.

    expand_k, expand_v: channels of keys and of values, as multiples of the width. conv: taps of the short convolutions.
    rank: channels of the bottlenecks of decays and of the gate (None: as many as a head's values have). negative: beta
    is twice the sigmoid, so that the memory's transitions reach negative eigenvalues (grazzi2024).
    """

    heads: int = 4
    expand_k: float = 1.0
    expand_v: float = 1.0
    conv: int = 4
    rank: int | None = None
    negative: bool = False

    label: ClassVar[str] = "kda"
    paper: ClassVar[str] = "kimi2025"
    complexity: ClassVar[str] = "T D^2 expand_k expand_v / heads"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_channels("KDA", *self.channels(width), self.heads)
        check_taps("KDA", self.conv)
        if self.rank is not None and self.rank < 1:
            raise UserError(f"KDA's bottlenecks have at least one channel, not {self.rank}; None is a head's values.")
        return KDALayer(self, width, generator)

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("A_log", "dt_bias"), ParamRule(weight_decay=0.0))


EXAMPLES = (KDA(heads=2), KDA(heads=1, expand_k=0.5, expand_v=2.0, conv=2, rank=3, negative=True))


class KDALayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of flash-linear-attention's checkpoints.
    """

    def __init__(self, config: KDA, width: int, generator: Generator) -> None:
        super().__init__()
        self.config, heads = config, config.heads
        keys, values = config.channels(width)
        rank = config.rank or values // heads
        self.q_proj, self.k_proj, self.v_proj = (linear(width, n, generator, bias=False) for n in (keys, keys, values))
        self.q_conv1d, self.k_conv1d, self.v_conv1d = short_convs(keys, values, config.conv, generator)
        self.f_proj = nn.Sequential(
            linear(width, rank, generator, bias=False), linear(rank, keys, generator, bias=False)
        )
        self.b_proj = linear(width, heads, generator, bias=False)
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(A_MIN, A_MAX, generator=generator).log())
        self.dt_bias = nn.Parameter(step_bias(keys, DT_MIN, DT_MAX, generator))
        self.g_proj = nn.Sequential(linear(width, rank, generator, bias=False), linear(rank, values, generator))
        self.o_norm = NormWeight(values // heads)
        self.o_proj = linear(values, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `memory`, (B, H, K, V), and the convolutions' last inputs `q`, `k` and `v`, (B, W - 1, H X) each."""
        kept, heads = state or {}, self.config.heads
        maps = ((self.q_proj, self.q_conv1d), (self.k_proj, self.k_conv1d), (self.v_proj, self.v_conv1d))
        (query, key, value), tails = query_key_value(x, maps, heads, kept)
        rate, beta, gate = self.f_proj(x), self.b_proj(x), self.g_proj(x)
        # In float32: states are sums over all steps, and bfloat16 has no decay between 0.996 and 1.
        with torch.autocast(x.device.type, enabled=False):
            query, key = unit(query) * query.shape[-1] ** -0.5, unit(key)
            beta = beta.to(key.dtype).sigmoid() * (2 if self.config.negative else 1)
            pace = F.softplus(rate.to(self.dt_bias.dtype) + self.dt_bias).unflatten(-1, (heads, -1))
            decay = -self.A_log.exp().unsqueeze(-1) * pace
            y, memory = decayed_delta_rule(query, key, value, beta, log_decay=decay, state=kept.get("memory"))
            y = F.rms_norm(y, y.shape[-1:], self.o_norm.weight.to(y.dtype), 1e-5)
            y = y.flatten(-2) * gate.to(y.dtype).sigmoid()
        return self.o_proj(y.to(x.dtype)), {"memory": memory, **tails}
