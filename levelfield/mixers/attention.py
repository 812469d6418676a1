"""Softmax attention: every step looks at every step, and positions come from rotations or not at all.

    q, k, v = three linear maps of x                     (B, T, D) each
    y = linear(softmax(q k^T / sqrt(D / heads)) v)       per head

Rotary positions in the two ways the papers use: `per_head` turns each head with the same angles (amos2025), while
`across_heads` turns the whole of q and k before they are split, so that the first head gets the fast angles and the
last head the slow ones (miralles2025). Summed sinusoidal or learned positions belong to `Model.positions`.

    Attention(heads=4, rotary="across_heads", rotary_half=True)     # miralles2025 on gray CIFAR-10
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Generator, Tensor, nn
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
        return AttentionLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """The keys and values of all steps so far."""
        return 2 * width * length


EXAMPLES = (
    Attention(heads=2),
    Attention(heads=4, rotary="per_head"),
    Attention(heads=2, rotary="across_heads", rotary_half=True),
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
        q, k, v = self._turned(self.qkv(x).unflatten(-1, (3, -1)))
        seen = None if mask is None or self.causal else visible(mask)
        y = scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))

    def _turned(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, 3, D) -> three of (B, H, T, D / H), queries and keys rotated."""
        c = self.config
        qkv = qkv.transpose(1, 2)
        qk, v = qkv[:, :2], qkv[:, 2]
        if c.rotary != "none":
            qk = rotate(qk, c.heads if c.rotary == "per_head" else 1, c.rotary_base, c.rotary_half)
        qk = qk.unflatten(-1, (c.heads, -1)).transpose(2, 3)
        return qk[:, 0], qk[:, 1], v.unflatten(-1, (c.heads, -1)).transpose(1, 2)


def visible(mask: Tensor) -> Tensor:
    """Which keys may be looked at: (B, T) -> (B, 1, 1, T).

    A sequence that is all padding looks at all of it: a softmax over nothing is not a number, in value and gradient.
    """
    empty = ~mask.any(-1, keepdim=True)
    return (mask | empty)[:, None, None, :]
