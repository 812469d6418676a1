"""Hyena alternates gates and long convolutions, whose kernels a small network computes as a function of time.

    x_1, ..., x_N, v = short_conv(linear(x))                     N = order; 3 taps each
    v <- h_n * (v x_n) + b_n v x_n     for n = N .. 2,           y = linear(x_1 v)
    h(t) = net(features(t)) (exp(-a t) + shift)                  t from 0 to 1 at the bound

The layer is that of Poli et al. (2023), section 3. Its network has sines for activations and sees time as a ramp,
cosines and sines, which are parameters too; every channel decays at a rate a of its own. At order 2 it is (N - 1 = 1)
one long convolution between two gates.

    Hyena(bound=2048)                          # poli2023's language models: 33 features, sines of frequency 14
    Hyena(order=3, features=5, bound=131072)

Letters: B batch, T steps, D width, N order, F width of the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.ops.conv.depthwise import causal_depthwise_conv
from levelfield.ops.conv.fft import conv_last, fft_conv
from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, ParamRule, UserError

TARGET = 1e-2  # what is left of a kernel where its decay counts as over


@dataclass(frozen=True)
class Hyena(MixerConfig):
    """Hyena of poli2023, section 3, as the authors' standalone code has it, at the settings of their language models.

    bound: the longest sequence, which is the network's unit of time. features: how many numbers the network sees of a
    step, odd. hidden, layers: its width, and how many maps lie between the first and the last. fast, slow: the parts of
    the bound after which the fastest and the slowest channel have decayed to 1 %. lr, positions_lr: rates of the
    network and of the features (0: fixed), neither of which has weight decay; None follows the recipe.
    """

    order: int = 2
    bound: int = 1024
    hidden: int = 64
    features: int = 33
    layers: int = 2
    frequency: float = 14.0
    short: int = 3
    fast: float = 0.3
    slow: float = 1.5
    shift: float = 0.0
    lr: float | None = None
    positions_lr: float | None = None

    label: ClassVar[str] = "hyena"
    paper: ClassVar[str] = "poli2023"
    complexity: ClassVar[str] = "T log T D order"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.order < 2 or self.bound < 1 or self.short < 1 or self.hidden < 1 or self.layers < 0:
            raise UserError("Hyena needs order >= 2, layers >= 0, and bound, short and hidden of at least 1.")
        if self.features < 3 or self.features % 2 == 0:
            raise UserError(f"Hyena's features are a ramp and pairs of waves: an odd number >= 3, not {self.features}.")
        if not 0 < self.fast <= self.slow:
            raise UserError(f"Hyena needs 0 < fast <= slow, not {self.fast:g} and {self.slow:g}.")
        return HyenaLayer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts what the short convolution needs, and the inputs of the long ones at all steps so far."""
        return width * ((self.order + 1) * (self.short - 1) + (self.order - 1) * min(length, self.bound))

    @property
    def max_length(self) -> int:
        return self.bound

    def param_rules(self) -> Mapping[str, ParamRule]:
        written = ParamRule(lr=self.lr, weight_decay=0.0)
        maps = [f"maps.{i}.{part}" for i in range(self.layers + 1) for part in ("weight", "bias")]
        rules = dict.fromkeys([*maps, "last.weight", "sines"], written)
        return rules if self.positions_lr == 0 else rules | {"positions": ParamRule(self.positions_lr, 0.0)}

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor:
        """The kernels of all long convolutions over the past, (kernels, length), zero beyond the bound."""
        assert isinstance(layer, HyenaLayer)
        kernel = layer.kernel(min(length, self.bound)).flatten(0, 1)
        return nn.functional.pad(kernel, (0, length - kernel.shape[1]))


EXAMPLES = (
    Hyena(bound=40, hidden=8, features=5),
    Hyena(order=3, bound=48, hidden=6, features=3, layers=1, frequency=1.0, short=4, shift=0.05, positions_lr=0.0),
)


class HyenaLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D) for T up to the bound, causally."""

    positions: Tensor
    rates: Tensor

    def __init__(self, config: Hyena, width: int, generator: Generator) -> None:
        super().__init__()
        self.bound, self.order, self.shift = config.bound, config.order, config.shift
        inner, outputs = (config.order + 1) * width, (config.order - 1) * width
        self.project = linear(width, inner, generator)
        self.short = conv1d(inner, inner, config.short, generator, groups=inner)
        start = time_features(config.bound, config.features)
        if config.positions_lr == 0:
            self.register_buffer("positions", start)  # (bound, features)
        else:
            self.positions = nn.Parameter(start)
        sizes = [config.features, *[config.hidden] * config.layers]
        self.maps = nn.ModuleList(linear(size, config.hidden, generator) for size in sizes)
        self.last = linear(config.hidden, outputs, generator, bias=False)
        self.sines = nn.Parameter(torch.full((config.hidden,), float(config.frequency)))  # (F,), shared by all maps
        bias = torch.randn(config.order - 1, width, generator=generator)
        self.bias = nn.Parameter(bias)  # (N - 1, D)
        rates = -math.log(TARGET) * torch.linspace(1 / config.slow, 1 / config.fast, outputs)
        self.register_buffer("rates", rates, persistent=False)
        self.out = linear(width, width, generator)

    def kernel(self, length: int) -> Tensor:
        """The convolution kernels from lag 0 on, without their bias: (N - 1, D, length), channels last in memory."""
        h = self.positions[:length]
        for layer in self.maps:
            h = torch.sin(self.sines * layer(h))
        time = torch.arange(length, dtype=h.dtype, device=h.device) / max(1, self.bound - 1)
        decay = torch.exp(time.unsqueeze(1) * -self.rates) + self.shift
        return (self.last(h) * decay).view(length, self.order - 1, -1).permute(1, 2, 0)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D). No real step sees the padding after it, so `mask` is not needed.

        Raises UserError where T exceeds the bound.
        """
        self._check(x.shape[1])
        u = self.project(x)
        *gates, v = causal_depthwise_conv(u, *self._taps(u.dtype)).chunk(self.order + 1, -1)
        for gate, kernel in zip(gates[:0:-1], self._kernels(x), strict=True):
            u = v * gate
            v = fft_conv(u.transpose(1, 2), kernel).transpose(1, 2).to(u.dtype)
        return self.out(v * gates[0])

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps what the convolutions need.

        `short`: the last short - 1 projections; `inputs`: what entered the long convolutions so far, (B, kernels,
        steps, D).
        """
        u, back = self.project(x), self.short.kernel_size[0] - 1
        before = u.new_zeros(len(u), back, u.shape[2]) if state is None else state["short"]
        joined = torch.cat([before, u], 1)
        *gates, v = causal_depthwise_conv(joined, *self._taps(u.dtype))[:, back:].chunk(self.order + 1, -1)
        past = u.new_zeros(len(u), self.order - 1, 0, x.shape[2]) if state is None else state["inputs"]
        self._check(past.shape[2] + x.shape[1])
        kept, steps = [], x.shape[1]
        kernels = self._kernels(x, past.shape[2] + steps)
        for gate, kernel, earlier in zip(gates[:0:-1], kernels, past.unbind(1), strict=True):
            kept.append(torch.cat([earlier, v * gate], 1))
            v = conv_last(kept[-1].transpose(1, 2), kernel, steps).transpose(1, 2).to(u.dtype)
        return self.out(v * gates[0]), {"short": joined[:, steps:], "inputs": torch.stack(kept, 1)}

    def _kernels(self, x: Tensor, length: int | None = None) -> tuple[Tensor, ...]:
        """The kernel of each long convolution, (D, T), its bias being added at lag 0; never in 16 bits."""
        # In float32: no Fourier transform takes 16-bit numbers, and kernels fall over orders of magnitude.
        with torch.autocast(x.device.type, enabled=False):
            kernels = self.kernel(length or x.shape[1])
            kernels[..., 0] += self.bias
        return kernels.unbind(0)

    def _taps(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Weights (channels, short) and biases (channels,) of the short convolution."""
        assert self.short.bias is not None
        return self.short.weight[:, 0].to(kind), self.short.bias.to(kind)

    def _check(self, length: int) -> None:
        if length > self.bound:
            raise UserError(f"This Hyena takes at most {self.bound} steps, not {length}: raise Hyena(bound=...).")


def time_features(bound: int, features: int) -> Tensor:
    """What the network sees of every step, (bound, features).

    A ramp from 0 to 1 comes first, then cosines and negative sines of 1e-4 up to (features - 3) / 2 turns.
    """
    bands = (features - 1) // 2
    steps = torch.arange(bound, dtype=torch.float64)
    angles = torch.outer(2 * math.pi * steps / bound, torch.linspace(1e-4, bands - 1, bands, dtype=torch.float64))
    ramp = (steps / max(1, bound - 1)).unsqueeze(1)
    return torch.cat([ramp, angles.cos(), -angles.sin()], 1).float()
