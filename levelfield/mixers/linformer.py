"""Linformer projects keys and values along the sequence to a few, to which all queries attend.

    k = (E x) W_k,  v = (F x) W_v         E, F: (rank, T), the first T columns of trained (rank, bound) maps
    y = linear(softmax(q k^T / sqrt(D / heads)) v)       per head, over `rank` keys instead of T

The layer is that of Wang et al. (2020), equation 7. Its cost is linear in T. The maps have a weight for every position,
so no sequence can be longer than `bound`, and the layer knows positions without any encoding. Every projected key mixes
all steps, the future among them, so there is no causal form.

    Linformer(heads=8, rank=256, bound=4096, share="kv")
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_width
from levelfield.ops.layers.init import linear
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class Linformer(MixerConfig):
    """Linformer of wang2020, equation 7, with biases after the projection as in the authors' code.

    bound: the longest sequence. share: which of the maps E and F of section 4 are one. "none": each head has its own
    two; "heads": the heads share two; "kv": heads, keys and values share one. The paper also shares one map among all
    layers, which one layer's config cannot say.
    """

    heads: int = 4
    rank: int = 256
    bound: int = 1024
    share: Literal["none", "heads", "kv"] = "heads"
    bias: bool = True

    label: ClassVar[str] = "linformer"
    paper: ClassVar[str] = "wang2020"
    complexity: ClassVar[str] = "T D rank"
    directions: ClassVar[frozenset[str]] = frozenset({"bidirectional"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("Linformer", width, self.heads)
        if self.rank < 1 or self.bound < 1:
            raise UserError(f"Linformer(rank={self.rank}, bound={self.bound}) is empty: give at least 1 of both.")
        return LinformerLayer(self, width, generator)

    def state_size(self, width: int, length: int) -> None:
        """Nothing is carried: there is no causal form."""
        return

    @property
    def max_length(self) -> int:
        return self.bound


EXAMPLES = (
    Linformer(heads=2, rank=5, bound=48),
    Linformer(heads=4, rank=3, bound=40, share="none"),
    Linformer(heads=2, rank=4, bound=44, share="kv", bias=False),
)


class LinformerLayer(nn.Module):
    """Maps (B, T, D) to (B, T, D) for T up to the bound. Padded steps count as zero in what is projected."""

    def __init__(self, config: Linformer, width: int, generator: Generator) -> None:
        super().__init__()
        self.heads, self.bound = config.heads, config.bound
        self.query, self.key, self.value, self.out = (linear(width, width, generator, config.bias) for _ in range(4))
        maps = config.heads if config.share == "none" else 1
        self.compress_k = _map(maps, config.rank, config.bound, generator)
        self.compress_v = None if config.share == "kv" else _map(maps, config.rank, config.bound, generator)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None.

        Raises UserError where T exceeds the bound.
        """
        if x.shape[1] > self.bound:
            raise UserError(
                f"This Linformer takes at most {self.bound} steps, not {x.shape[1]}: raise Linformer(bound=...)."
            )
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        steps = x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0)
        if self.compress_k.shape[0] > 1:
            k, v = self._by_head(steps)
        else:
            k, v = self._at_once(steps)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))

    def _at_once(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, (B, H, rank, d): steps are mixed first, which leaves `rank` rows for the linear maps."""
        k = self.compress_k[0, :, : x.shape[1]] @ x
        v = k if self.compress_v is None else self.compress_v[0, :, : x.shape[1]] @ x
        k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.key(k), self.value(v)))
        return k, v

    def _by_head(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, (B, H, rank, d), where each head mixes steps in its own way."""
        assert self.compress_v is not None
        parts = []
        for layer, compress in ((self.key, self.compress_k), (self.value, self.compress_v)):
            steps = F.linear(x, layer.weight).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            mixed = compress[:, :, : x.shape[1]] @ steps
            parts.append(mixed if layer.bias is None else mixed + layer.bias.view(self.heads, 1, -1))
        k, v = parts
        return k, v


def _map(maps: int, rank: int, bound: int, generator: Generator) -> nn.Parameter:
    """Projections along the sequence, (maps, rank, bound), drawn as in the authors' code."""
    size = math.sqrt(3 / (rank + bound))
    return nn.Parameter(torch.empty(maps, rank, bound).uniform_(-size, size, generator=generator))
