"""Softmax attention: every step looks at every step, and positions come from rotations or not at all.

    q, k, v = three linear maps of x                     (B, T, D) each
    y = linear(softmax(q k^T / sqrt(D / heads)) v)       per head

With `block`, a step looks at its own block of so many steps and the blocks beside it, and cost grows linearly in T
(amos2025 on PathX: blocks of 4,096). Nothing outside of those blocks is computed.

Rotary positions in the two ways the papers use: `per_head` turns each head with the same angles (amos2025), while
`across_heads` turns the whole of q and k before they are split, so that the first head gets the fast angles and the
last head the slow ones (miralles2025). Summed sinusoidal or learned positions belong to `Model.positions`.

    Attention(heads=4, rotary="across_heads", rotary_half=True)     # miralles2025 on gray CIFAR-10
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import linear as linear_map
from torch.nn.functional import scaled_dot_product_attention

from levelfield.ops.initial import linear
from levelfield.ops.rotary import rotate
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class Attention(MixerConfig):
    """vaswani2017, section 3.2, with biases and without dropout, as amos2025 and miralles2025 run it."""

    heads: int = 4
    rotary: Literal["none", "per_head", "across_heads"] = "none"
    rotary_half: bool = False
    rotary_base: float = 10000.0
    block: int | None = None

    label: ClassVar[str] = "attention"
    paper: ClassVar[str] = "vaswani2017"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        if self.heads < 1 or width % self.heads:
            raise UserError(f"Attention cannot split width {width} into {self.heads} heads: choose a divisor of it.")
        if self.rotary == "none" and self.rotary_half:
            raise UserError(
                "Attention(rotary_half=True) needs rotary positions: set rotary to per_head or across_heads."
            )
        turned = width // self.heads if self.rotary == "per_head" else width
        if self.rotary != "none" and turned % 2:
            raise UserError(f"Rotary positions turn pairs of channels, not {turned}: choose an even width per head.")
        if self.rotary_base <= 0:
            raise UserError(f"Attention(rotary_base={self.rotary_base:g}) must be positive; the papers use 10000.")
        if self.block is not None and self.block < 1:
            raise UserError(f"Attention(block={self.block}) looks at nothing: give a number of steps, or None for all.")
        return AttentionLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """The keys and values of all steps so far; with blocks, of the last two."""
        return 2 * width * (length if self.block is None else min(length, 2 * self.block))

    @property
    def receptive_field(self) -> int | None:
        """A block's first step sees the next block's last, and the other way round."""
        return None if self.block is None else 4 * self.block - 1


EXAMPLES = (
    Attention(heads=2),
    Attention(heads=4, rotary="per_head"),
    Attention(heads=2, rotary="across_heads", rotary_half=True),
    Attention(heads=2, rotary="per_head", block=4),
)


class AttentionLayer(nn.Module):
    """(B, T, D) -> (B, T, D) through fused attention kernels.

    In the causal direction padding must come after the real steps, as batches have it: then no real step can see it
    and no mask is needed, which keeps the fastest kernels available.
    """

    def __init__(self, config: Attention, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        self.qkv = linear(width, 3 * width, generator)
        self.out = linear(width, width, generator)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        q, k, v = (self._part(x, number) for number in range(3))
        block = self.config.block
        mask = None if self.causal else mask
        y = attend(q, k, v, mask, self.causal) if block is None else attend_blocks(q, k, v, mask, self.causal, block)
        return self.out(y.transpose(1, 2).flatten(2))

    def _part(self, x: Tensor, number: int) -> Tensor:
        """Queries, keys or values, the first two rotated: (B, T, D) -> (B, H, T, D / H).

        A product for each of the three: a single one for all would leave them interleaved in memory.
        """
        c, width = self.config, x.shape[-1]
        rows = slice(number * width, (number + 1) * width)
        part = linear_map(x, self.qkv.weight[rows], self.qkv.bias[rows])
        if c.rotary != "none" and number < 2:
            part = rotate(part, c.heads if c.rotary == "per_head" else 1, c.rotary_base, c.rotary_half)
        return part.unflatten(-1, (c.heads, -1)).transpose(1, 2)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(q k^T / sqrt(d)) v. q, k, v: (B, H, T, d); mask: (B, T) of the keys -> (B, H, T, d)."""
    return scaled_dot_product_attention(q, k, v, None if mask is None else visible(mask), is_causal=causal)


def attend_blocks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, block: int) -> Tensor:
    """`attend` where a step sees its own block and the ones beside it: one call for each block of queries.

    The first and the last block have one neighbour; a causal step sees the block before and its own up to itself.
    """
    length, parts = q.shape[2], []
    for start in range(0, length, block):
        end = min(start + block, length)
        seen = slice(max(0, start - block), end if causal else min(end + block, length))
        if causal and start:
            square = torch.ones(end - start, end - seen.start, dtype=torch.bool, device=q.device)
            past = square.tril(start - seen.start)
            part = scaled_dot_product_attention(q[:, :, start:end], k[:, :, seen], v[:, :, seen], past)
        else:
            keys = None if mask is None else mask[:, seen]
            part = attend(q[:, :, start:end], k[:, :, seen], v[:, :, seen], keys, causal)
        parts.append(part)
    return torch.cat(parts, 2)


def visible(mask: Tensor) -> Tensor:
    """Which keys may be looked at: (B, T) -> (B, 1, 1, T).

    A sequence that is all padding looks at all of it: a softmax over nothing is not a number, in value and gradient.
    """
    empty = ~mask.any(-1, keepdim=True)
    return (mask | empty)[:, None, None, :]
