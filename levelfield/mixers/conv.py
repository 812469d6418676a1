"""A short convolution lets each step read the few steps around it, and nothing else.

    y = linear(relu(conv(x)))        D -> hidden over `kernel` steps, then hidden -> D step by step

It is the baseline of Miralles-González et al. (2025), table 1, which measures how far a benchmark's answers lie within
a window. Centred kernels see (kernel - 1) / 2 steps to each side, causal ones kernel - 1 steps back; `depth` layers see
1 + depth * (kernel - 1).

    Conv(kernel=5, hidden=256)       # 4 layers see 17 steps; the paper prints 88.96 % on Text
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class Conv(MixerConfig):
    """The convolution of miralles2025, table 1 and appendix A.2; its table 7 has the hyperparameters."""

    kernel: int = 5
    hidden: int = 256
    groups: int = 1

    label: ClassVar[str] = "conv"
    paper: ClassVar[str] = "miralles2025"
    complexity: ClassVar[str] = "T D hidden kernel / groups"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.kernel < 1:
            raise UserError(f"Conv needs a kernel of at least one step, not {self.kernel}.")
        if not causal and self.kernel % 2 == 0:
            raise UserError(
                f"A bidirectional Conv is centred, so its kernel is odd: {self.kernel - 1} or {self.kernel + 1} "
                f"instead of {self.kernel}."
            )
        if self.groups < 1 or width % self.groups or self.hidden % self.groups:
            raise UserError(
                f"Conv cannot split width {width} and hidden {self.hidden} into {self.groups} groups: "
                "choose a divisor of both."
            )
        return ConvLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the inputs that a causal kernel still needs."""
        return width * (self.kernel - 1)

    @property
    def receptive_field(self) -> int:
        return self.kernel

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor:
        """The kernel over the past, (pairs, length), zero beyond it.

        A row belongs to each pair of an input and a hidden channel of one group.
        """
        assert isinstance(layer, ConvLayer)
        taps = layer.conv.weight.flatten(0, 1).flip(-1)
        past = taps[:, layer.around[1] :]
        return F.pad(past, (0, max(0, length - past.shape[1])))[:, :length]


EXAMPLES = (Conv(kernel=3, hidden=24), Conv(kernel=7, hidden=16, groups=4), Conv(kernel=1, hidden=8))


class ConvLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). Steps before the first, after the last, and padded ones count as zero."""

    def __init__(self, config: Conv, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        reach = config.kernel - 1
        self.around = (reach, 0) if causal else (reach // 2, reach // 2)
        self.conv = conv1d(width, config.hidden, config.kernel, generator, groups=config.groups)
        self.out = linear(config.hidden, width, generator)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0)
        y = self.conv(F.pad(x.transpose(1, 2), self.around))
        return self.out(torch.relu(y).transpose(1, 2))

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the last kernel - 1 inputs as `inputs`, (B, kernel - 1, D), which are zero before the first step."""
        before = x.new_zeros(x.shape[0], self.around[0], x.shape[2]) if state is None else state["inputs"]
        joined = torch.cat([before, x], 1)
        y = self.out(torch.relu(self.conv(joined.transpose(1, 2))).transpose(1, 2))
        return y, {"inputs": joined[:, joined.shape[1] - self.around[0] :]}
