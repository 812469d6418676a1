"""Longformer is attention in a sliding window, with a few global steps that see every step and that every step sees.

    y_i = linear(softmax(q_i k_S^T / sqrt(D / heads)) v_S),    S = the global steps and those at most window / 2 from i
    y_g = linear(softmax(q'_g k'^T / sqrt(D / heads)) v')      for a global step g, over all steps

The layer is that of Beltagy et al. (2020), section 3.1. The global steps are the first `global_steps` of a sequence,
where classifiers have their special token. Their queries q', and the keys k' and values v' which those read, come from
linear maps of their own; other steps read the global ones through the same k and v as their neighbours.

    Longformer(heads=4, window=512)                       # one global step
    Longformer(heads=4, window=512, global_steps=0)       # a sliding window alone, as tay2021's released code runs it

In the causal direction a step sees the window / 2 steps before it and the global ones before it. The cost is linear in
T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._checks import check_width
from levelfield.ops.attention.softmax import attend, attend_window
from levelfield.ops.layers.heads import split_heads
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class Longformer(MixerConfig):
    """Longformer of beltagy2020, sections 3.1 and 3.2, without dilation.

    window: how many steps a step sees on both sides together. bias: of all seven maps. The maps of the global steps
    start equal to the others, as section 3.2 says.
    """

    heads: int = 4
    window: int = 512
    global_steps: int = 1
    bias: bool = True

    label: ClassVar[str] = "longformer"
    paper: ClassVar[str] = "beltagy2020"
    complexity: ClassVar[str] = "T D (window + global_steps)"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("Longformer", width, self.heads)
        if self.window < 2 or self.window % 2:
            raise UserError(f"Longformer's window has two equal sides: give an even number, not {self.window}.")
        if self.global_steps < 0:
            raise UserError(f"Longformer(global_steps={self.global_steps}) must be 0 or more.")
        return LongformerLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the keys and values of the global steps and of one side of the window.

        While the next step is a global one, those of the second maps are kept besides, of all steps so far.
        """
        kept = min(length, self.global_steps + self.window // 2)
        return 2 * width * (kept + (length if length < self.global_steps else 0))

    @property
    def receptive_field(self) -> int | None:
        return None if self.global_steps else self.window + 1


EXAMPLES = (
    Longformer(heads=2, window=6, global_steps=3),
    Longformer(heads=4, window=4, global_steps=0, bias=False),
)


class LongformerLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). In the causal direction padding comes after the real steps, which cannot see it."""

    def __init__(self, config: Longformer, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        self.qkv = linear(width, 3 * width, generator, config.bias)
        self.out = linear(width, width, generator, config.bias)
        self.qkv_global = None
        if config.global_steps:
            self.qkv_global = linear(width, 3 * width, generator, config.bias)
            self.qkv_global.load_state_dict(self.qkv.state_dict())

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        if self.causal:
            return self.step(x, None)[0]
        first = min(self.config.global_steps, x.shape[1])
        q, k, v = split_heads(x, self.qkv, self.config.heads)
        parts = []
        if self.qkv_global is not None:
            of_global = self._global(x, x[:, :first])
            parts.append(attend(*of_global, mask, causal=False))
        if first < x.shape[1]:
            parts += [self._near(q[:, :, first:], k, v, mask)]  # not `append`, which makes torch compile it each time
        return self._joined(parts)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the `keys` and `values` that the next step sees, (B, H, steps, d), those of global steps first.

        While the next step is a global one itself, it also keeps `global_keys` and `global_values` of all steps so far.
        """
        c, parts = self.config, []
        q, k, v = split_heads(x, self.qkv, c.heads)
        past = 0 if state is None else state["keys"].shape[2]
        first = min(max(0, c.global_steps - past), x.shape[1])
        k, v = _after(state, "keys", k), _after(state, "values", v)
        new = {"keys": self._kept(k), "values": self._kept(v)}
        if first:
            of_q, of_k, of_v = self._global(x[:, :first], x[:, :first])
            of_k, of_v = _after(state, "global_keys", of_k), _after(state, "global_values", of_v)
            parts.append(attend(of_q, of_k, of_v, None, causal=True))
            if k.shape[2] < c.global_steps:
                new |= {"global_keys": of_k, "global_values": of_v}
        if first < x.shape[1]:
            parts += [self._near(q[:, :, first:], k, v, None)]
        return self._joined(parts), new

    def _global(self, x: Tensor, global_steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of the global steps and all keys and values, by the second maps: (B, H, steps, d) each."""
        assert self.qkv_global is not None
        weights, heads = self.qkv_global.weight.chunk(3), self.config.heads
        biases = (None,) * 3 if self.qkv_global.bias is None else self.qkv_global.bias.chunk(3)
        q, k, v = (
            nn.functional.linear(z, weight, bias).unflatten(-1, (heads, -1)).transpose(1, 2)
            for z, weight, bias in zip((global_steps, x, x), weights, biases, strict=True)
        )
        return q, k, v

    def _near(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Returns (B, H, Q, d), what the other steps read; q: (B, H, Q, d); k, v: (B, H, K, d); mask: (B, K)."""
        window, first = self.config.window // 2 + 1, self.config.global_steps
        return attend_window(q, k, v, mask, causal=self.causal, window=window, first=first)

    def _kept(self, part: Tensor) -> Tensor:
        """Keys or values, (B, H, steps, d), of the global steps and of the last window / 2."""
        first, side = self.config.global_steps, self.config.window // 2
        if part.shape[2] <= first + side:
            return part
        return torch.cat([part[:, :, :first], part[:, :, -side:]], 2)

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return self.out(torch.cat(parts, 2).transpose(1, 2).flatten(2))


def _after(state: dict[str, Tensor] | None, name: str, part: Tensor) -> Tensor:
    """The part, (B, H, steps, d), behind what the state has under this name."""
    return part if state is None else torch.cat([state[name], part], 2)
