"""DeltaNet keeps a matrix of memory per head, in which each step replaces what its key recalls, by the delta rule.

    q, k, v = silu(causal convolution of three linear maps of x);     q, k scaled to unit length
    beta = sigmoid(W x)
    S_t = S_{t-1} + beta_t k_t (v_t - k_t S_{t-1})^T,     o_t = q_t S_t / sqrt(K)              S: (K, V) per head
    out = W_out (rmsnorm(o) weight),     the norm per head

The layer is that of Yang et al. (2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length"),
sections 2.2 and 3. Plain linear attention adds k v^T and lets keys pile up; here beta = 1 overwrites what was stored
under k_t, and beta = 0 leaves it. The recurrence is computed a chunk at a time (`ops/linear_attention/delta.py`).

    DeltaNet(heads=4)
    DeltaNet(heads=4, negative=True)       # beta in (0, 2): a step may also flip what it finds

Letters: B batch, T steps, D width, H heads, K and V channels of a head's keys and values, W taps.
"""

from __future__ import annotations

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
from levelfield.ops.linear_attention.delta import delta_rule


@dataclass(frozen=True)
class DeltaNet(DeltaMemory):
    """DeltaNet of yang2024delta, sections 2.2 and 3, with the layer of its code (flash-linear-attention, `DeltaNet`).

    expand_k, expand_v: channels of keys and of values, as multiples of the width. conv: taps of the short convolutions.
    negative: beta is twice the sigmoid, so that the memory's transitions reach negative eigenvalues (grazzi2024).
    """

    heads: int = 4
    expand_k: float = 1.0
    expand_v: float = 1.0
    conv: int = 4
    negative: bool = False

    label: ClassVar[str] = "deltanet"
    paper: ClassVar[str] = "yang2024delta"
    complexity: ClassVar[str] = "T D^2 expand_k expand_v / heads"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_channels("DeltaNet", *self.channels(width), self.heads)
        check_taps("DeltaNet", self.conv)
        return DeltaNetLayer(self, width, generator)


EXAMPLES = (DeltaNet(heads=2), DeltaNet(heads=1, expand_k=0.5, expand_v=2.0, conv=2, negative=True), DeltaNet(conv=1))


class DeltaNetLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of flash-linear-attention's checkpoints.
    """

    def __init__(self, config: DeltaNet, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        keys, values = config.channels(width)
        self.q_proj = linear(width, keys, generator, bias=False)
        self.k_proj = linear(width, keys, generator, bias=False)
        self.v_proj = linear(width, values, generator, bias=False)
        self.b_proj = linear(width, config.heads, generator, bias=False)
        self.q_conv1d, self.k_conv1d, self.v_conv1d = short_convs(keys, values, config.conv, generator)
        self.o_norm = NormWeight(values // config.heads)
        self.o_proj = linear(values, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `memory`, (B, H, K, V), and the convolutions' last inputs `q`, `k` and `v`, (B, W - 1, H X) each."""
        kept = state or {}
        maps = ((self.q_proj, self.q_conv1d), (self.k_proj, self.k_conv1d), (self.v_proj, self.v_conv1d))
        (query, key, value), tails = query_key_value(x, maps, self.config.heads, kept)
        # In float32: a memory is a sum over all steps, to which bfloat16 would soon add nothing.
        with torch.autocast(x.device.type, enabled=False):
            query, key = unit(query) * query.shape[-1] ** -0.5, unit(key)
            beta = self.b_proj(x).to(key.dtype).sigmoid() * (2 if self.config.negative else 1)
            y, memory = delta_rule(
                *(part.transpose(1, 2) for part in (query, key, value, beta)), state=kept.get("memory")
            )
            y = F.rms_norm(y.transpose(1, 2), y.shape[-1:], self.o_norm.weight.to(y.dtype), 1e-5)
        return self.o_proj(y.flatten(-2).to(x.dtype)), {"memory": memory, **tails}
