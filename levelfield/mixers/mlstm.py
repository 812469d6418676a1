"""The mLSTM is xLSTM's matrix memory with exponential gates, in the block that the paper puts around it.

    u, z = two linear maps of x, expand times as wide;     c = silu(causal convolution of u)
    q, k = maps of c, v = map of u, each of few channels at a time;     i~, f~ = maps of [q, k, v], one of each a head
    C_t = f_t C_{t-1} + i_t k_t v_t^T / sqrt(K),   n_t = f_t n_{t-1} + i_t k_t / sqrt(K),   i = exp(i~), f = sigmoid(f~)
    h_t = q_t C_t / max(|q_t . n_t|, 1),     out = W_out ((headnorm(h) + skip * c) * silu(z))        C: (K, K) per head

The layer is that of Beck et al. (2024), section 2.3. An input gate without bound lets a late step outweigh everything
before it; a stabiliser keeps the numbers in range (`ops/linear_attention/mlstm.py`).

    MLSTM(heads=4)
    MLSTM(heads=4, layers=6)          # of six layers: W_out starts as in the authors' models of that depth

Letters: B batch, T steps, D width, E = expand D inner channels, H heads of K = E / H channels, W taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._xlstm import Blocks, Convolution, HeadNorm
from levelfield.ops.conv.short import short_conv
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.linear_attention.mlstm import mlstm
from levelfield.spec import MixerConfig, ParamRule, UserError

FORGET_FIRST, FORGET_LAST = 3.0, 6.0  # f~ at the start, from the first head to the last
INPUT_SPREAD = 0.1  # of i~ at the start


@dataclass(frozen=True)
class MLSTM(MixerConfig):
    """The mLSTM of beck2024, section 2.3 (equations 19 to 27) and figure 11, with the initial values of its code.

    expand: inner channels over the width (the code rounds these up to a multiple of 64). conv: taps of the convolution.
    block: channels that a block of the q, k and v maps reads and writes. forget: f is the sigmoid of f~, or its
    exponential, which starts at the same values. layers: depth of the model, by which W_out's start is divided.
    """

    heads: int = 4
    expand: float = 2.0
    conv: int = 4
    block: int = 4
    forget: Literal["sigmoid", "exponential"] = "sigmoid"
    layers: int = 1

    label: ClassVar[str] = "mlstm"
    paper: ClassVar[str] = "beck2024"
    complexity: ClassVar[str] = "T D^2 expand^2 / heads"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        inner = self.inner(width)
        if min(self.heads, self.block, inner) < 1 or inner % self.heads or inner % self.block:
            raise UserError(
                f"MLSTM cannot split {inner} inner channels into {self.heads} heads and into blocks of {self.block}: "
                "choose divisors of them."
            )
        if self.conv < 1 or self.layers < 1:
            raise UserError("MLSTM's conv and layers are at least 1.")
        return MLSTMLayer(self, width, generator)

    def inner(self, width: int) -> int:
        """E, the inner channels."""
        return int(self.expand * width)

    def state_size(self, width: int, length: int) -> int:
        """Counts memory, normaliser and stabiliser of each head, and the last inputs of the convolution."""
        inner = self.inner(width)
        return inner * (inner // self.heads + 1) + self.heads + (self.conv - 1) * inner

    def param_rules(self) -> Mapping[str, ParamRule]:
        return dict.fromkeys(("learnable_skip", "outnorm.weight"), ParamRule(weight_decay=0.0))


EXAMPLES = (MLSTM(heads=2), MLSTM(heads=1, expand=1.0, conv=1, block=2, forget="exponential", layers=3))


class Cell(nn.Module):
    """Gates, recurrence and norm of a layer."""

    def __init__(self, config: MLSTM, inner: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        self.igate = linear(3 * inner, config.heads, generator)
        self.fgate = linear(3 * inner, config.heads, generator)
        self.outnorm = HeadNorm(inner)
        forget = torch.linspace(FORGET_FIRST, FORGET_LAST, config.heads)
        for gate in (self.igate, self.fgate):
            nn.init.zeros_(gate.weight)
        nn.init.normal_(self.igate.bias, 0, INPUT_SPREAD, generator=generator)
        with torch.no_grad():
            self.fgate.bias.copy_(forget if config.forget == "sigmoid" else F.logsigmoid(forget))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The normed h, (B, T, E), for q, k, v: (B, T, E), and the state of `ops.linear_attention.mlstm.mlstm`."""
        kind, heads = self.igate.weight.dtype, self.config.heads
        weights = torch.cat([self.igate.weight, self.fgate.weight]).chunk(3, dim=1)  # for q, k and v: (2 H, E)
        # In float32: gates add up over all steps before their exponential is taken.
        with torch.autocast(q.device.type, enabled=False):
            bias = torch.cat([self.igate.bias, self.fgate.bias])
            parts = (F.linear(part.to(kind), weight) for part, weight in zip((q, k, v), weights, strict=True))
            log_input, forget = sum(parts, bias).transpose(1, 2).chunk(2, dim=1)  # (B, H, T) each
            log_forget = F.logsigmoid(forget) if self.config.forget == "sigmoid" else forget
            q, k, v = (part.to(kind).unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))
            h, state = mlstm(q * q.shape[-1] ** -0.5, k, v, log_input, log_forget, state=state)
            return self.outnorm(h.transpose(1, 2)), state


class MLSTMLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of the authors' code.
    """

    def __init__(self, config: MLSTM, width: int, generator: Generator) -> None:
        super().__init__()
        inner, spread = config.inner(width), math.sqrt(2 / (5 * width))
        self.proj_up = linear(width, 2 * inner, generator, bias=False)
        self.q_proj, self.k_proj, self.v_proj = (Blocks(inner, config.block, spread, generator) for _ in range(3))
        self.conv1d = Convolution(inner, config.conv, generator)
        self.mlstm_cell = Cell(config, inner, generator)
        self.learnable_skip = nn.Parameter(torch.ones(inner))
        self.proj_down = linear(inner, width, generator, bias=False)
        nn.init.normal_(self.proj_up.weight, 0, spread, generator=generator)
        nn.init.normal_(self.proj_down.weight, 0, 2 / config.layers / math.sqrt(width), generator=generator)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps memory, stabiliser and the last inputs of the convolution.

        State: `memory`, (B, H, K, K + 1), with the normaliser as its last column; `peak`, (B, H), the stabiliser;
        `tail`, (B, W - 1, E).
        """
        up, gate = (F.linear(x, weight) for weight in self.proj_up.weight.chunk(2))
        conv = self.conv1d.conv
        seen, tail = short_conv(up, conv.weight, conv.bias, None if state is None else state["tail"])
        q, k, v = self.q_proj(seen), self.k_proj(seen), self.v_proj(up)
        h, (memory, peak) = self.mlstm_cell(q, k, v, None if state is None else (state["memory"], state["peak"]))
        y = torch.addcmul(h, seen.to(h.dtype), self.learnable_skip) * F.silu(gate)
        return self.proj_down(y.to(x.dtype)), {"memory": memory, "peak": peak, "tail": tail}
