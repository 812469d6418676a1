"""MesaNet answers every query by the linear map that best fits all keys and values so far, solved anew at each step.

    q, k = silu(causal convolution of two linear maps of x), scaled to unit length;     v = W_v x
    a = sigmoid(W_a x + b),     beta = sigmoid(W_b x + b),     r = least + softplus(lambda), per key channel
    G_t = a_t G_{t-1} + beta_t k_t k_t^T,     S_t = a_t S_{t-1} + beta_t k_t v_t^T           G, S: (d, d) per head
    o_t = ((G_t + diag(r))^-1 q_t) S_t,     out = W_out rmsnorm(o) weight,     the norm per head

The layer is that of von Oswald et al. (2025), "MesaNet: Sequence Modeling by Locally Optimal Test-Time Training".
DeltaNet and TTT-Linear take a step of gradient descent towards such a map at each step of the sequence; here it is the
minimum itself, of squared errors that decay with age and of a penalty r. Linear attention is what is left where r is so
large that G does not count. The system is solved for all steps at once by `rounds` rounds of conjugate gradients, each
of which costs what a layer of linear attention does, and as many once more for gradients.

    MesaNet(heads=4)                     # the authors' 30 rounds
    MesaNet(heads=4, rounds=10)          # a third of the work, less exactly

Letters: B batch, T steps, D width, H heads, d = D / H channels of a head, W taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_taps, check_width
from levelfield.mixers._memory import NormWeight
from levelfield.ops.conv.short import short_conv
from levelfield.ops.layers.gated_norm import gated_norm
from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.layers.unit_norm import unit
from levelfield.ops.linear_attention.least_squares import Past, Steps, least_squares
from levelfield.spec import MixerConfig, ParamRule, UserError


@dataclass(frozen=True)
class MesaNet(MixerConfig):
    """MesaNet's layer of vonoswald2025, with the settings and first values of its code (flash-linear-attention).

    conv: taps of the short convolutions. least: what the penalty r never falls below; it is 1 at first. rounds: of
    conjugate gradients. gate: the output is multiplied by silu(W_g x), too.
    """

    heads: int = 4
    conv: int = 4
    least: float = 0.25
    rounds: int = 30
    gate: bool = False

    label: ClassVar[str] = "mesanet"
    paper: ClassVar[str] = "vonoswald2025"
    complexity: ClassVar[str] = "T D^2 rounds / heads"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("MesaNet", width, self.heads)
        check_taps("MesaNet", self.conv)
        if not 0 < self.least < 1 or self.rounds < 1:
            raise UserError(
                f"MesaNet needs a least penalty between 0 and 1 and a round, not {self.least} and {self.rounds}."
            )
        return MesaNetLayer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts both matrices of each head, and the last inputs of two convolutions."""
        return 2 * width * (width // self.heads) + 2 * (self.conv - 1) * width

    def param_rules(self) -> Mapping[str, ParamRule]:
        return {"lambda_params": ParamRule(weight_decay=0.0)}


EXAMPLES = (MesaNet(heads=2, rounds=12), MesaNet(heads=4, conv=1, least=0.5, rounds=6, gate=True))


class MesaNetLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of flash-linear-attention's checkpoints.
    """

    def __init__(self, config: MesaNet, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        self.q_proj, self.k_proj, self.v_proj = (linear(width, width, generator, bias=False) for _ in range(3))
        self.a_proj, self.b_proj = (linear(width, config.heads, generator) for _ in range(2))
        self.q_conv1d, self.k_conv1d = (
            conv1d(width, width, config.conv, generator, groups=width, bias=False) for _ in range(2)
        )
        self.lambda_params = nn.Parameter(torch.full((width,), math.log(math.expm1(1 - config.least))))
        self.g_proj = linear(width, width, generator, bias=False) if config.gate else None
        self.o_norm = NormWeight(width // config.heads)
        self.o_proj = linear(width, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `gram` and `memory`, (B, H, d, d) each, and the convolutions' last inputs `q` and `k`,
        (B, W - 1, D) each."""
        kept, heads, wide = state or {}, self.config.heads, self.lambda_params.dtype
        query, tail_q = short_conv(self.q_proj(x), self.q_conv1d.weight, None, kept.get("q"))
        key, tail_k = short_conv(self.k_proj(x), self.k_conv1d.weight, None, kept.get("k"))
        parts, a, b = (query, key, self.v_proj(x)), self.a_proj(x), self.b_proj(x)
        # In float32: matrices are sums over all steps, and a solution is as wrong as they are.
        with torch.autocast(x.device.type, enabled=False):
            query, key, value = (part.to(wide).unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
            ridge = (F.softplus(self.lambda_params) + self.config.least).view(heads, -1)
            steps = Steps(unit(query), unit(key), value, b.to(wide).sigmoid().mT, F.logsigmoid(a.to(wide)).mT)
            past = Past(kept["gram"], kept["memory"]) if kept else None
            y, past = least_squares(steps, ridge, past, self.config.rounds)
        y = self._normed(y.transpose(1, 2), x).flatten(2)
        return self.o_proj(y.to(x.dtype)), {**past._asdict(), "q": tail_q, "k": tail_k}

    def _normed(self, y: Tensor, x: Tensor) -> Tensor:
        """The outputs, (B, T, H, d), normed and, with a gate, multiplied by it: the same shape, float32 or wider."""
        if self.g_proj is None:
            return F.rms_norm(y, y.shape[-1:], self.o_norm.weight.to(y.dtype), 1e-5)
        return gated_norm(y, self.g_proj(x).unflatten(-1, (self.config.heads, -1)), self.o_norm.weight, first=False)
