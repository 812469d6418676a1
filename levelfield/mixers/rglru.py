"""RG-LRU is the recurrent block of Griffin and RecurrentGemma, a recurrence whose decay is gated by its input.

    u = conv4(W_x x),    r = sigmoid(W_a u),    i = sigmoid(W_i u),    a = exp(-8 softplus(Lambda) r)
    h[0] = i[0] u[0],    h[t] = a[t] h[t - 1] + sqrt(1 - a[t]^2) (i[t] u[t]),    out = W_o (gelu(W_y x) h)

The layer is that of De et al. (2024), sections 2.3 and 2.4; the first step enters with weight one, as in the released
code. W_a and W_i are block-diagonal, a block for each head. A step that closes the gate r keeps its state whole and
takes in nothing; the root keeps the size of the states. Huang (2024) runs RecurrentGemma-2B, in which two of three
layers are this block and the third is attention to a window of 2,048 steps.

    RGLRU(heads=4)
    RGLRU(heads=10)            # at width 2560, RecurrentGemma-2B's: its weights load by name

Letters: B batch, T steps, D width, W hidden, H heads, w = W / H.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.ops.conv.depthwise import causal_depthwise_conv
from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.ssm.rglru import gated_scan
from levelfield.spec import MixerConfig, ParamRule, UserError

SHARPNESS = 8.0  # c of the paper
CONV_VARIANCE = 0.01  # of the taps' sum


@dataclass(frozen=True)
class RGLRU(MixerConfig):
    """The RG-LRU block of de2024 (Griffin), sections 2.3 and 2.4 and appendix A, with the details of the released code.

    hidden: W; None is the width. kernel: taps of the convolution. Lambda starts so that exp(-8 softplus(Lambda)), the
    decay with an open gate, is uniform in [decay_min, decay_max] as the paper says; the released code draws it without
    the 8. out_scale: variance of W_o times W, for which RecurrentGemma takes 2 / depth. Lambda has no weight decay.
    """

    heads: int = 4
    hidden: int | None = None
    kernel: int = 4
    decay_min: float = 0.9
    decay_max: float = 0.999
    out_scale: float = 1.0

    label: ClassVar[str] = "rglru"
    paper: ClassVar[str] = "de2024"
    complexity: ClassVar[str] = "T hidden"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        hidden = self.hidden or width
        if self.heads < 1 or hidden % self.heads:
            raise UserError(f"RGLRU cannot split {hidden} channels into {self.heads} heads: choose a divisor of them.")
        if self.kernel < 1:
            raise UserError(f"RGLRU's convolution has at least one tap, not {self.kernel}.")
        if not 0 < self.decay_min < self.decay_max < 1:
            raise UserError(f"RGLRU needs 0 < decay_min < decay_max < 1, not {self.decay_min} and {self.decay_max}.")
        return RGLRULayer(self, width, hidden, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the recurrence's state, and the inputs that the convolution still needs."""
        return (self.hidden or width) * self.kernel

    def param_rules(self) -> Mapping[str, ParamRule]:
        return {"recurrent_param": ParamRule(weight_decay=0.0)}


EXAMPLES = (RGLRU(), RGLRU(heads=1, hidden=24, kernel=2, decay_min=0.5), RGLRU(heads=2, kernel=1))


class RGLRULayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters are named and laid out as in the `temporal_block` of transformers' RecurrentGemma.
    """

    def __init__(self, config: RGLRU, width: int, hidden: int, generator: Generator) -> None:
        super().__init__()
        self.linear_y, self.linear_x = linear(width, hidden, generator), linear(width, hidden, generator)
        self.conv_1d = conv1d(hidden, hidden, config.kernel, generator, groups=hidden)
        self.rg_lru = _Gates(config, hidden, generator)
        self.linear_out = linear(hidden, width, generator)
        for layer, variance in (
            (self.linear_y, 1 / width),
            (self.linear_x, 1 / width),
            (self.conv_1d, CONV_VARIANCE / config.kernel),
            (self.linear_out, config.out_scale / hidden),
        ):
            nn.init.normal_(layer.weight, 0, math.sqrt(variance), generator=generator)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the recurrence's `state`, (B, W), and the convolution's last `inputs`, (B, kernel - 1, W)."""
        gate, u = F.gelu(self.linear_y(x), approximate="tanh"), self.linear_x(x)
        # In float32: bfloat16 has no number between 0.996 and 1, where decays of long memories lie.
        with torch.autocast(x.device.type, enabled=False):
            u = u.to(self.rg_lru.recurrent_param.dtype)
            if state is None:
                v, h = self._convolved(u), None
            else:
                v, h = self._convolved(torch.cat([state["inputs"], u], 1))[:, -x.shape[1] :], state["state"]
            states = self.rg_lru(v, h)
        return self.linear_out(gate * states.to(gate.dtype)), {
            "state": states[:, -1],
            "inputs": self._last_inputs(u, state),
        }

    def _convolved(self, u: Tensor) -> Tensor:
        assert self.conv_1d.bias is not None
        return causal_depthwise_conv(u, self.conv_1d.weight[:, 0], self.conv_1d.bias)

    def _last_inputs(self, u: Tensor, state: dict[str, Tensor] | None) -> Tensor:
        reach = self.conv_1d.kernel_size[0] - 1
        before = u.new_zeros(u.shape[0], reach, u.shape[2]) if state is None else state["inputs"]
        joined = torch.cat([before, u[:, max(0, u.shape[1] - reach) :]], 1)
        return joined[:, joined.shape[1] - reach :]


class _Gates(nn.Module):
    """The gated recurrence, (B, T, W) -> (B, T, W)."""

    def __init__(self, config: RGLRU, hidden: int, generator: Generator) -> None:
        super().__init__()
        size = hidden // config.heads
        decay = torch.empty(hidden).uniform_(config.decay_min, config.decay_max, generator=generator)
        # softplus(Lambda) = -log(decay) / 8
        self.recurrent_param = nn.Parameter(torch.expm1(-decay.log() / SHARPNESS).log())  # (W,): Lambda
        self.input_gate_weight, self.recurrent_gate_weight = (  # (H, w, w): from, to
            nn.Parameter(torch.empty(config.heads, size, size).normal_(0, size**-0.5, generator=generator))
            for _ in range(2)
        )
        self.input_gate_bias, self.recurrent_gate_bias = (
            nn.Parameter(torch.zeros(config.heads, size)) for _ in range(2)
        )

    def forward(self, u: Tensor, initial: Tensor | None) -> Tensor:
        gates = (
            _by_heads(u, self.input_gate_weight, self.input_gate_bias),
            _by_heads(u, self.recurrent_gate_weight, self.recurrent_gate_bias),
        )
        return gated_scan(u, *gates, SHARPNESS * F.softplus(self.recurrent_param), initial)


def _by_heads(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear map of each head by itself: u: (B, T, W), weight: (H, w, w), bias: (H, w) -> (B, T, W)."""
    heads, size = bias.shape
    rows = u.reshape(-1, heads, size).transpose(0, 1)  # (H, B T, w)
    return torch.baddbmm(bias.unsqueeze(1), rows, weight).transpose(0, 1).reshape(u.shape)
