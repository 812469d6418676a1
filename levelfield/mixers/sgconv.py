"""SGConv is a long convolution whose kernel has few parameters and decays with distance, then a gated linear map.

    k = [w_0,  w_1 / a,  up2(w_2) / a^2,  up4(w_3) / a^3, ...] / Z        dim, dim, 2 dim, 4 dim, ... taps
    y = k * x + d x,        out = GLU(W gelu(y))

The layer is that of Li et al. (2022), section 3.2, equation 1. Every scale has `kernel_dim` free values, interpolated
linearly to twice the taps of the scale before it and divided by the decay a once more; Z is the norm of the whole
kernel as it starts, and is not trained. Miralles-González et al. (2025, section 2.3.2) cite the two conditions that the
paper finds sufficient, parameters sublinear in the length and decay; this layer has those two alone.

    SGConv(kernel_dim=32, bound=4096)        # 8 scales, 256 parameters per feature and direction

Letters: B batch, T steps, D width, P values of a scale, S scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.ops.conv.fft import conv_last
from levelfield.ops.conv.upsample import upsample
from levelfield.ops.layers.glu import conv_glu, gelu_glu
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, ParamRule, UserError


@dataclass(frozen=True)
class SGConv(MixerConfig):
    """SGConv of li2022, section 3.2 and equation 1, with its code's choices ("cat_randn").

    bound: the longest sequence, which gives the number of scales. The decay runs evenly from decay_min, the first
    feature's, to decay_max. lr: rate of the kernel's values; None follows the recipe. Bidirectional layers have a
    second kernel for later steps.
    """

    kernel_dim: int = 64
    bound: int = 1024
    decay_min: float = 2.0
    decay_max: float = 2.0
    lr: float | None = 1e-3

    label: ClassVar[str] = "sgconv"
    paper: ClassVar[str] = "li2022"
    complexity: ClassVar[str] = "T log T D"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.kernel_dim < 1 or self.bound < 1:
            raise UserError(f"SGConv needs kernel_dim and bound of at least 1, not {self.kernel_dim} and {self.bound}.")
        if self.decay_min <= 0 or self.decay_max <= 0:
            raise UserError(f"SGConv divides by its decays: {self.decay_min:g} to {self.decay_max:g} must be positive.")
        return SGConvLayer(self, width, causal, generator)

    @property
    def scales(self) -> int:
        """The number of scales, enough to reach the bound; they have kernel_dim * 2^(scales - 1) taps in all."""
        return 1 + (-(-self.bound // self.kernel_dim) - 1).bit_length()

    def state_size(self, width: int, length: int) -> int:
        """Counts the inputs of all steps so far: no shorter summary gives the same numbers."""
        return width * min(length, self.bound)

    @property
    def max_length(self) -> int:
        return self.bound

    def param_rules(self) -> Mapping[str, ParamRule]:
        return {"samples": ParamRule(lr=self.lr)}

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor:
        """The kernel over the past, (D, length), zero beyond the last scale."""
        assert isinstance(layer, SGConvLayer)
        past = layer.kernel(min(length, layer.reach))[0]
        return nn.functional.pad(past, (0, length - past.shape[1]))


EXAMPLES = (
    SGConv(kernel_dim=4, bound=40),
    SGConv(kernel_dim=5, bound=48, decay_min=1.0, decay_max=3.0),
    SGConv(kernel_dim=64, bound=40),
)


class SGConvLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D) for T up to the bound. Padded steps count as zero, in both directions."""

    decay: Tensor
    norm: Tensor

    def __init__(self, config: SGConv, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.bound, self.reach = config.bound, config.kernel_dim << (config.scales - 1)
        shape = 1 if causal else 2, config.scales, config.kernel_dim, width
        self.samples = nn.Parameter(torch.randn(shape, generator=generator))  # (1 or 2, S, P, D)
        self.register_buffer("decay", torch.linspace(config.decay_min, config.decay_max, width), persistent=False)
        self.register_buffer("norm", torch.ones(shape[0], 1, 1, width))  # of the kernels as they start
        with torch.no_grad():
            self.norm.copy_(self.kernel(self.reach).norm(dim=-1)[:, None, None])
        self.skip = nn.Parameter(torch.randn(width, generator=generator))  # (D,): d
        self.output = linear(width, 2 * width, generator)

    def kernel(self, length: int) -> Tensor:
        """The convolution kernels, (1 or 2, D, length): forwards from lag 0, and backwards from lag -1."""
        parts, scales = [], torch.arange(self.samples.shape[1], device=self.samples.device)
        for values in (self.samples * self.decay ** -scales.view(-1, 1, 1) / self.norm).unbind(0):
            start = 0
            for scale, points in enumerate(values.unbind(0)):
                if start < length:
                    parts.append(upsample(points, 1 << max(0, scale - 1), length - start))
                    start += len(parts[-1])
        return torch.cat(parts).view(len(self.samples), length, -1).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None.

        Raises UserError where T exceeds the bound.
        """
        self._check(x.shape[1])
        return conv_glu(x, mask, self.kernel, self.skip, self.output)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the `inputs` of all steps so far, (B, steps, D). Raises UserError beyond the bound."""
        inputs = x if state is None else torch.cat([state["inputs"], x], 1)
        self._check(inputs.shape[1])
        # In float32: kernels fall over orders of magnitude, and sums over all steps would round them away.
        with torch.autocast(x.device.type, enabled=False):
            y = conv_last(inputs.transpose(1, 2), self.kernel(inputs.shape[1])[0], x.shape[1])
            y = y + self.skip.unsqueeze(-1) * x.transpose(1, 2)
        return gelu_glu(y, self.output.weight, self.output.bias), {"inputs": inputs}

    def _check(self, length: int) -> None:
        if length > self.bound:
            raise UserError(f"This SGConv takes at most {self.bound} steps, not {length}: raise SGConv(bound=...).")
