"""BigBird is block-sparse attention: each block of steps reads its neighbours, the two ends and a few random blocks.

    y = linear(softmax(q k_S^T / sqrt(D / heads)) v_S)       per head
    S, for queries of block i: blocks i - 1, i, i + 1, the first, the last, and `random` others
    S, for queries of the first and of the last block: everything

    BigBird(heads=4, block=64, random=3)

The layer is that of Zaheer et al. (2020), section 2 and appendix D. Blocks are counted in the real steps of each
sequence, so the last block is where its sequence ends, and padding changes nothing. Every head draws random blocks for
each block of queries, uniformly over those that it does not see anyway. The draws come from one number per head, which
is drawn from the generator passed to `build` and saved with the weights; training and evaluation see the same blocks.
They are positions relative to the length of the sequence, so the layer knows no training length. The cost is linear in
T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_width
from levelfield.ops.attention.block_sparse import BITS, attend_block_sparse, hash_integers, sample_blocks
from levelfield.ops.attention.softmax import visible
from levelfield.ops.layers.heads import split_heads
from levelfield.ops.layers.init import linear
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class BigBird(MixerConfig):
    """BigBird of zaheer2020, section 2 and appendix D, in the form with global blocks inside the sequence (ITC).

    window: how many near blocks a block sees, itself among them; random: how many random ones; block: steps of each.
    The first and the last block are seen besides. At most lengths, the authors' code draws random blocks among the
    first few only; the paper's definition and this layer do not.
    """

    heads: int = 4
    block: int = 64
    window: int = 3
    random: int = 3
    bias: bool = True

    label: ClassVar[str] = "bigbird"
    paper: ClassVar[str] = "zaheer2020"
    complexity: ClassVar[str] = "T D block (window + random + 2)"
    directions: ClassVar[frozenset[str]] = frozenset({"bidirectional"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("BigBird", width, self.heads)
        if self.block < 1 or self.random < 0:
            raise UserError(f"BigBird(block={self.block}, random={self.random}): give block >= 1 and random >= 0.")
        if self.window < 1 or self.window % 2 == 0:
            raise UserError(f"BigBird's window is a block and as many on either side: odd, not {self.window}.")
        return BigBirdLayer(self, width, generator)

    def state_size(self, width: int, length: int) -> None:
        return None


EXAMPLES = (BigBird(heads=2, block=4, random=1), BigBird(heads=4, block=3, window=1, random=2, bias=False))


class BigBirdLayer(nn.Module):
    """Maps (B, T, D) to (B, T, D), in both directions only."""

    seeds: Tensor

    def __init__(self, config: BigBird, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        self.qkv = linear(width, 3 * width, generator, config.bias)
        self.out = linear(width, width, generator, config.bias)
        self.register_buffer("seeds", torch.randint(2**BITS, (config.heads,), generator=generator))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        length, size = x.shape[1], self.config.block
        x = F.pad(x, (0, 0, 0, -length % size))
        real = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2]) < length
        if mask is not None:
            real = F.pad(mask | ~mask.any(-1, keepdim=True), (0, x.shape[1] - length))
        q, k, v = split_heads(x, self.qkv, self.config.heads)
        y = self._attended(q.contiguous(), k.contiguous(), v.contiguous(), real)
        return self.out(y[:, :, :length].transpose(1, 2).flatten(2))

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
        """Returns (B, H, T, d) for q, k, v: (B, H, T, d) and real: (B, T) bool; T is a multiple of the block."""
        rows, keys, values = (part.unflatten(2, (-1, self.config.block)) for part in (q, k, v))
        steps = torch.arange(1, real.shape[1] + 1, device=q.device)
        last = ((steps * real).amax(-1) - 1) // self.config.block  # of each sequence, (B,)
        ends = torch.cat([rows[:, :, 0], rows[torch.arange(len(q), device=q.device), :, last]], 2)
        first_rows, last_rows = F.scaled_dot_product_attention(ends, k, v, visible(real)).chunk(2, 2)
        first_rows, last_rows = first_rows.unsqueeze(2), last_rows.unsqueeze(2)
        if rows.shape[2] <= 2:
            return torch.cat([first_rows, last_rows], 2)[:, :, : rows.shape[2]].flatten(2, 3)
        inner = slice(1, -1)  # the last row is the end of its sequence, or padding
        table = self.table(last + 1, rows.shape[2])[:, :, inner]
        listed = table <= last[:, None, None, None]
        real = real.unflatten(1, (-1, self.config.block))
        y = attend_block_sparse(rows[:, :, inner], keys, values, real, table=table.where(listed, 0), listed=listed)
        ends_here = torch.arange(rows.shape[2], device=q.device)[inner] == last[:, None]
        y = torch.where(ends_here[:, None, :, None, None], last_rows, y)
        return torch.cat([first_rows, y, last_rows], 2).flatten(2, 3)

    def table(self, counts: Tensor, rows: int) -> Tensor:
        """The blocks that each of `rows` blocks sees: (B, H, rows, S) int64.

        counts: (B,), how many blocks each sequence has. Entries below a sequence's count differ from each other; the
        others stand for nothing. What the blocks at the two ends see is not written here.
        """
        c, row = self.config, torch.arange(rows, device=counts.device).unsqueeze(-1)
        count, side = counts[:, None, None], c.window // 2
        near = row + torch.arange(-side, side + 1, device=row.device)
        near = torch.where((near >= 0) & (near < count), near, count)
        first, last = torch.where(row > side, 0, count), torch.where(count - 1 - row > side, count - 1, count)
        table = torch.cat([first, near, last], -1).unsqueeze(1).expand(-1, c.heads, -1, -1)
        of_rows = hash_integers(self.seeds.unsqueeze(-1) + row.squeeze(-1) & 2**BITS - 1)
        for draw in range(c.random):
            keys = hash_integers(of_rows + draw & 2**BITS - 1)
            table = torch.cat([table, sample_blocks(keys, table, count).unsqueeze(-1)], -1)
        return table
