"""NSA lets every step read summaries of all blocks of steps, all steps of a few blocks, and the steps just before it.

    q, and k and v of three branches, are linear maps of x; q and all k rotated;     g = sigmoid(W_g x), three per head
    a = attention of q to the mean key and value of each whole block
    b = attention of q to the steps of the `blocks` blocks that a weighs most, with the first and the last two
    c = attention of q to the last `window` steps,     out = W_out (g_1 a + g_2 b + g_3 c)

The layer is that of Yuan et al. (2025), "Native Sparse Attention", section 3: each branch has keys and values of its
own, and heads of queries that share keys choose the same blocks, by the sum of their weights. The choice costs T^2 /
block scores, and everything else is linear in the length.

    NSA(heads=16, kv_heads=1)                            # 16 blocks of 64 steps, a window of 512
    NSA(heads=4, block=16, blocks=4, window=32)          # for shorter sequences

The paper sums blocks up by a learned map whose sizes it does not give, from blocks that overlap and are half as long as
those chosen from, and its gates come from a network of more than one layer; here and in flash-linear-attention it is
their mean, over blocks of one size, and gates are one linear map. Letters: B batch, T steps, D width, H heads, G heads
of keys, n blocks that a step chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._checks import check_width
from levelfield.ops.attention.chosen import Choice, attend_chosen, attend_pooled, choose, pool
from levelfield.ops.attention.rotary import rotate
from levelfield.ops.attention.softmax import attend_window
from levelfield.ops.layers.autocast import working_type
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class NSA(MixerConfig):
    """Native sparse attention of yuan2025, section 3, with means of blocks as in flash-linear-attention.

    kv_heads: of keys and values, which the heads of queries share and for which blocks are chosen. block: steps of a
    block. blocks: how many a step reads whole, three of which are the first, its own and the one before. window: steps
    of the third branch, a step itself among them.
    """

    heads: int = 4
    kv_heads: int = 1
    block: int = 64
    blocks: int = 16
    window: int = 512

    label: ClassVar[str] = "nsa"
    paper: ClassVar[str] = "yuan2025"
    complexity: ClassVar[str] = "T^2 D / block + T D (block blocks + window)"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("NSA", width, self.heads)
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise UserError(f"NSA cannot share {self.kv_heads} heads of keys among {self.heads}: choose a divisor.")
        if width // self.heads % 2:
            raise UserError(f"NSA turns pairs of channels, not {width // self.heads} per head: choose an even width.")
        if min(self.block, self.window) < 1 or self.blocks < 3:
            raise UserError("NSA needs a block and a window of at least one step, and at least three blocks to read.")
        return NSALayer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts keys and values: of whole blocks and of the steps after them, of all steps, and of the window."""
        pooled = length // self.block + length % self.block
        return 2 * width // self.heads * self.kv_heads * (pooled + length + min(length, self.window - 1))


EXAMPLES = (
    NSA(heads=2, block=4, blocks=3, window=5),
    NSA(heads=4, kv_heads=2, block=3, blocks=4, window=1),
)


class NSALayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: NSA, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        self.keys = width // config.heads * config.kv_heads  # channels of the keys of one branch
        self.q_proj = linear(width, width, generator, bias=False)
        self.k_proj, self.v_proj = (linear(width, 3 * self.keys, generator, bias=False) for _ in range(2))
        self.g_proj = linear(width, 3 * config.heads, generator, bias=False)
        self.o_proj = linear(width, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State, all (B, G, steps, d): `pooled_keys` and `pooled_values` of whole blocks, `open_keys` and `open_values`
        of the steps after them, `keys` and `values` of all steps, and `near_keys` and `near_values` of the window."""
        c, kept = self.config, state or {}
        past = kept["keys"].shape[2] if kept else 0
        narrow = working_type(x)
        # In float32: which blocks a step chooses should not depend on rounding; what it reads of them may.
        with torch.autocast(x.device.type, enabled=False):
            wide = x.to(self.q_proj.weight.dtype)
            query = self._split(rotate(self.q_proj(wide), c.heads, start=past))
            keys, values = rotate(self.k_proj(wide), 3 * c.kv_heads, start=past), self.v_proj(wide)
            (k1, k2, k3), (v1, v2, v3) = ([self._split(y) for y in z.chunk(3, -1)] for z in (keys, values))
            pooled, new = self._pooled(k1, v1, kept)
            summed, weights = attend_pooled(query, *pooled, past, c.block)
            blocks = choose(weights, c.kv_heads, Choice(past, c.block, most=c.blocks, total=past + x.shape[1]))
            k2, v2 = _after(kept, "keys", k2), _after(kept, "values", v2)
            k3, v3 = _after(kept, "near_keys", k3), _after(kept, "near_values", v3)
            gates = self.g_proj(wide).sigmoid().unflatten(-1, (-1, 3)).transpose(1, 2)  # (B, H, T, 3)
            query = query.to(narrow)
            chosen = attend_chosen(query, k2.to(narrow), v2.to(narrow), blocks, c.block)
            near = attend_window(query, k3.to(narrow), v3.to(narrow), None, causal=True, window=c.window)
            y = summed * gates[..., :1] + chosen * gates[..., 1:2] + near * gates[..., 2:]
        first = max(0, k3.shape[2] - c.window + 1)
        new |= {"keys": k2, "values": v2, "near_keys": k3[:, :, first:], "near_values": v3[:, :, first:]}
        return self.o_proj(y.transpose(1, 2).flatten(2).to(x.dtype)), new

    def _split(self, part: Tensor) -> Tensor:
        """(B, T, channels) -> (B, heads, T, d), with as many heads as there are channels for."""
        return part.unflatten(-1, (-1, self.keys // self.config.kv_heads)).transpose(1, 2)

    def _pooled(
        self, key: Tensor, value: Tensor, kept: Mapping[str, Tensor]
    ) -> tuple[tuple[Tensor, Tensor], dict[str, Tensor]]:
        """The means of all whole blocks so far, (B, G, N, d) twice, and what the state keeps of this branch."""
        block, new = self.config.block, {}
        for name, part in (("keys", key), ("values", value)):
            part = _after(kept, f"open_{name}", part)
            new[f"pooled_{name}"] = _after(kept, f"pooled_{name}", pool(part, block))
            new[f"open_{name}"] = part[:, :, part.shape[2] // block * block :]
        return (new["pooled_keys"], new["pooled_values"]), new


def _after(kept: Mapping[str, Tensor], name: str, part: Tensor) -> Tensor:
    """The part, (B, G, steps, d), behind what the state has under this name."""
    return torch.cat([kept[name], part], 2) if kept else part
