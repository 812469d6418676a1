"""The gMLP multiplies one map of its input by a long convolution of another, with a free weight for every distance.

    z1 = gelu(linear(x)), z2 = gelu(linear(x))       (B, T, hidden) each
    y = linear(z1 * norm(convolve(z2) + bias))       with a Toeplitz kernel over all distances -bound .. bound

The layer is that of Liu et al. (2021) in the convolutional form of Miralles-González et al. (2025), section 2.5, who
show (table 3) that this free kernel, which nothing makes decay, reaches what structured state spaces reach, given
enriched training. It follows that paper's code where the code differs from its equation 5: two projections, and a norm
after the convolution. `channels` distinct kernels are repeated over the hidden channels.

    GMLP(hidden=256, channels=2, bound=1024)       # one layer of table 6, gray CIFAR-10
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.ops.conv.fft import fft_conv
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, UserError

KERNEL_STD = 1e-5


@dataclass(frozen=True)
class GMLP(MixerConfig):
    """The gMLP of liu2021 in the convolutional form of miralles2025 (section 2.5, table 6).

    bound: the longest sequence. channels: how many kernels the hidden channels share.
    """

    hidden: int = 256
    channels: int = 2
    bound: int = 1024

    label: ClassVar[str] = "gmlp"
    paper: ClassVar[str] = "liu2021"
    complexity: ClassVar[str] = "T log T hidden"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.channels < 1 or self.hidden % self.channels:
            raise UserError(
                f"GMLP cannot repeat {self.channels} kernels over {self.hidden} hidden channels: choose a divisor."
            )
        if self.bound < 1:
            raise UserError(f"GMLP needs a bound of at least one step, not {self.bound}.")
        return GMLPLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the hidden inputs of all steps so far: a free kernel has no shorter summary."""
        return self.hidden * min(length, self.bound)

    @property
    def max_length(self) -> int:
        return self.bound

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor:
        """The kernel over the past, (channels, length), zero beyond the bound."""
        assert isinstance(layer, GMLPLayer)
        past = layer.kernel[:, 0 if layer.causal else self.bound :]
        return F.pad(past, (0, max(0, length - past.shape[1])))[:, :length]


EXAMPLES = (GMLP(hidden=24, channels=2, bound=48), GMLP(hidden=16, channels=4, bound=40))


class GMLPLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D) for T up to the bound."""

    def __init__(self, config: GMLP, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.bound, self.causal = config.bound, causal
        self.gate = linear(width, config.hidden, generator)
        self.value = linear(width, config.hidden, generator)
        taps = config.bound + 1 if causal else 2 * config.bound + 1
        # Tap j weighs the step j - bound away; in the causal direction, the step j before.
        self.kernel = nn.Parameter(KERNEL_STD * torch.randn(config.channels, taps, generator=generator))
        self.bias = nn.Parameter(torch.ones(config.channels))
        self.norm = nn.LayerNorm(config.hidden)
        self.out = linear(config.hidden, width, generator)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None.

        Raises UserError where T exceeds the bound.
        """
        self._check(x.shape[1])
        value = F.gelu(self.value(x))
        if mask is not None:
            value = value.masked_fill(~mask.unsqueeze(-1), 0)
        return self._gated(x, self._convolved(value))

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps what was convolved of all steps as `values`, (B, steps, hidden). Raises UserError beyond the bound."""
        values = F.gelu(self.value(x))
        if state is not None:
            values = torch.cat([state["values"], values], 1)
        self._check(values.shape[1])
        mixed = self._last(values) if x.shape[1] == 1 else self._convolved(values)[:, -x.shape[1] :]
        return self._gated(x, mixed), {"values": values}

    def _gated(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D) and mixed: (B, T, hidden), in float32 or wider.

        In 16 bits, kernels of 1e-5 would be lost beside a bias of 1, and with them all that the norm enlarges.
        """
        gate, wide = F.gelu(self.gate(x)), mixed.dtype
        # In float32, for the reason above.
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = self.norm.weight.to(wide), self.norm.bias.to(wide)
            normed = F.layer_norm(mixed, self.norm.normalized_shape, weight, bias, self.norm.eps)
        return self.out(gate * normed.to(gate.dtype))

    def _check(self, length: int) -> None:
        if length > self.bound:
            raise UserError(f"This GMLP takes at most {self.bound} steps, not {length}: raise GMLP(bound=...).")

    def _last(self, value: Tensor) -> Tensor:
        """The last step of `_convolved` alone: (B, T, hidden) -> (B, 1, hidden)."""
        taps = self.kernel[:, : value.shape[1]].flip(-1)
        wide = torch.promote_types(value.dtype, torch.float32)
        grouped = value.to(wide).unflatten(2, (-1, len(taps)))  # hidden channel h is [h // channels, h % channels]
        return ((grouped * taps.T.unsqueeze(1)).sum(1) + self.bias).flatten(1).unsqueeze(1)

    def _convolved(self, value: Tensor) -> Tensor:
        """Returns (B, T, hidden) in float32 or wider: hidden channel h uses kernel h modulo `channels`."""
        kernel = self.kernel.to(torch.promote_types(value.dtype, torch.float32))  # no transform takes 16-bit numbers
        past, future = (kernel, None) if self.causal else (kernel[:, self.bound :], kernel[:, : self.bound].flip(-1))
        y = fft_conv(value.transpose(1, 2), past, future).transpose(1, 2)
        return y + self.bias.repeat(value.shape[2] // len(kernel))
