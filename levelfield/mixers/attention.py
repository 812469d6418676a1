"""Softmax attention lets every step read every step, weighted by the softmax of scaled dot products.

    q, k, v = three linear maps of x                     (B, T, D) each
    y = linear(softmax(q k^T / sqrt(D / heads)) v)       per head

The layer is that of Vaswani et al. (2017), section 3.2. With `block`, a step reads its own block of that many steps and
the two blocks beside it (Amos et al. 2025 on PathX: blocks of 4,096); with `window`, itself and the steps less than
`window` away. Nothing outside is computed, so the cost then grows linearly in T. With `sinks`, every step also reads
that many first steps, as if they stood right before its window (Xiao et al. 2024, section 3.2).

Positions come from rotations (Su et al. 2021) or not at all. There are two forms: `per_head` rotates every head by the
same angles (Amos et al. 2025), `across_heads` rotates the whole of q and k before they are split, so that the first
head gets the fast angles and the last head the slow ones (Miralles-González et al. 2025). `rotary_scale` below 1 draws
the positions of a longer text into the range of training (position interpolation: Chen et al. 2023, equation 4).
With `rotary_range`, training draws positions at random from a range longer than its texts (Ruoss et al. 2023).
Sinusoidal or learned positions that are added to the input belong to `Model.positions`.

    Attention(heads=4, rotary="across_heads", rotary_half=True)     # miralles2025 on gray CIFAR-10
    Attention(heads=20, rotary="per_head", bias=False)              # Transformer++ and LLaMA, as in huang2024
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.ops.attention.rotary import rotate
from levelfield.ops.attention.softmax import attend, attend_blocks, attend_window
from levelfield.ops.layers.init import conv1d, linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, UserError

SINKS = 4  # first steps that remedies keep in sight


@dataclass(frozen=True)
class Attention(MixerConfig):
    """Attention of vaswani2017, section 3.2, with biases and without dropout, as amos2025 and miralles2025 run it.

    kv_heads: heads of keys and values, shared by all heads of queries (None: as many as those). head_width: channels of
    a head (None: width / heads).

    window: a step sees itself and window - 1 steps on each side, or before it in a causal model. sinks: so many first
    steps of the sequence that it sees beside its window. block: it sees its own block of so many steps and the
    neighbouring ones. With neither window nor block it sees all steps, or all before it in a causal model.

    rotary_base: the base of the angles. rotary_width: channels of a head that are rotated, the first ones
    (None: all). rotary_half: leaves every second pair of channels unrotated. rotary_scale: multiplies all positions.
    rotary_range: in training, the steps of a batch get distinct random positions below it, in order and the same in
    all layers; in evaluation, and where it is 0, positions count from 0.

    bias: whether the four linear maps have one. out_bias: the same for the last map, where it differs (RecurrentGemma).
    short_conv: taps of a causal convolution of queries, keys and values (0: none), as in the models of huang2024.
    """

    heads: int = 4
    rotary: Literal["none", "per_head", "across_heads"] = "none"
    rotary_half: bool = False
    rotary_base: float = 10000.0
    block: int | None = None
    window: int | None = None
    kv_heads: int | None = None
    head_width: int | None = None
    rotary_width: int | None = None
    short_conv: int = 0
    bias: bool = True
    out_bias: bool | None = None
    rotary_scale: float = field(default=1.0, metadata={"added": True})
    sinks: int = field(default=0, metadata={"added": True})
    rotary_range: int = field(default=0, metadata={"added": True})

    label: ClassVar[str] = "attention"
    paper: ClassVar[str] = "vaswani2017"
    complexity: ClassVar[str] = "T^2 D; with window T D window; with block T D block"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        self._check_heads(width)
        self._check_rotary(width)
        if self.block is not None and self.block < 1:
            raise UserError(f"Attention(block={self.block}) looks at nothing: give a number of steps, or None for all.")
        if self.window is not None and (self.window < 1 or self.block is not None):
            raise UserError("Attention's window is a number of steps, at least 1, and an alternative to block.")
        if self.sinks < 0 or (self.sinks and self.window is None):
            raise UserError("Attention's sinks are first steps beside a window: give 0 or more, and a window.")
        if self.short_conv and not causal:
            raise UserError("Attention(short_conv=...) looks back, so it is for causal models: leave it out.")
        return AttentionLayer(self, width, causal, generator)

    def sizes(self, width: int) -> tuple[int, int]:
        """Channels of all queries, and of all keys; values have as many as keys."""
        dim = self.head_width or width // self.heads
        return self.heads * dim, (self.kv_heads or self.heads) * dim

    def state_size(self, width: int, length: int) -> int:
        """Counts the keys and values that the next step sees, and the inputs that its short convolution needs."""
        queries, keys = self.sizes(width)
        return 2 * keys * self.kept(length) + max(0, self.short_conv - 1) * (queries + 2 * keys)

    def kept(self, length: int) -> int:
        """How many of `length` steps the step after them sees."""
        if self.window is not None:
            return min(length, self.sinks + self.window - 1)
        if self.block is None or length < 2 * self.block:
            return length
        return self.block + length % self.block

    @property
    def receptive_field(self) -> int | None:
        """The steps that a window or blocks show: with blocks, a block's first step sees the next block's last. The
        convolution of a causal layer sees further back."""
        side = self.window if self.window is not None else 2 * self.block if self.block is not None else None
        return None if side is None or self.sinks else max(2 * side - 1, side + self.short_conv - 1)

    @property
    def equivariant(self) -> bool:
        return self.block is None

    def remedies(self, width: int, factor: int, trained: int) -> Mapping[str, MixerConfig]:
        """Returns four, of rotary attention over all steps; none of another one, or of one that met far positions.

        interpolate: positions are drawn into the range of training. base: it grows until the slowest pair of channels
        turns no further than in training. window: a step reads as many steps as training had. sinks: the same, the
        farthest ones being the first of the text (xiao2024, section 4.4: four suffice).
        """
        if self.rotary != "per_head" or self.window is not None or self.block is not None or self.rotary_range:
            return {}
        turned, first = self.rotary_width or self.sizes(width)[0] // self.heads, min(SINKS, trained - 1)
        slower = factor ** (turned / (turned - 2)) if turned > 2 else 1.0
        return {
            "interpolate": replace(self, rotary_scale=1 / factor),
            "base": replace(self, rotary_base=self.rotary_base * slower),
            "window": replace(self, window=trained),
            "sinks": replace(self, window=trained - first, sinks=first),
        }

    def _check_heads(self, width: int) -> None:
        if self.heads < 1 or (self.head_width is None and width % self.heads):
            raise UserError(f"Attention cannot split width {width} into {self.heads} heads: choose a divisor of it.")
        if self.head_width is not None and self.head_width < 1:
            raise UserError(f"Attention(head_width={self.head_width}) is no width: give at least 1, or None.")
        if self.kv_heads is not None and (self.kv_heads < 1 or self.heads % self.kv_heads):
            raise UserError(
                f"Attention cannot share {self.kv_heads} heads of keys among {self.heads}: choose a divisor."
            )

    def _check_rotary(self, width: int) -> None:
        settings = {
            "rotary_half=True": self.rotary_half,
            f"rotary_width={self.rotary_width}": self.rotary_width is not None,
            f"rotary_scale={self.rotary_scale:g}": self.rotary_scale != 1,
            f"rotary_range={self.rotary_range}": self.rotary_range != 0,
        }
        if self.rotary == "none" and any(settings.values()):
            setting = next(text for text, given in settings.items() if given)
            raise UserError(f"Attention({setting}) needs rotary positions: set rotary to per_head or across_heads.")
        queries, keys = self.sizes(width)
        if self.rotary == "across_heads" and (queries != keys or self.rotary_width is not None):
            raise UserError(
                "Attention(rotary='across_heads') turns all of q and k alike: leave kv_heads, rotary_width."
            )
        group = queries // self.heads if self.rotary == "per_head" else queries
        turned = group if self.rotary_width is None else self.rotary_width
        if self.rotary != "none" and (turned % 2 or group % 2 or not 0 < turned <= group):
            raise UserError(
                f"Rotary positions turn pairs of channels, not {turned} of {group}: choose an even width per head."
            )
        if self.rotary_base <= 0:
            raise UserError(f"Attention(rotary_base={self.rotary_base:g}) must be positive; the papers use 10000.")
        if not 0 < self.rotary_scale <= 1:
            raise UserError(f"Attention(rotary_scale={self.rotary_scale:g}) must be above 0, and 1 at most.")
        if self.rotary_range < 0 or (self.rotary_range and self.sinks):
            raise UserError("Attention's rotary_range is a number of positions, 0 for none, and goes with no sinks.")


EXAMPLES = (
    Attention(heads=2),
    Attention(heads=4, rotary="per_head"),
    Attention(heads=2, rotary="across_heads", rotary_half=True),
    Attention(heads=2, rotary="per_head", block=4),
    Attention(heads=4, kv_heads=2, rotary="per_head", rotary_width=2, window=5, bias=False),
    Attention(heads=2, rotary="per_head", rotary_scale=0.5, window=3, sinks=2),
    Attention(heads=2, rotary="per_head", rotary_range=4_096),
)


class AttentionLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D) through fused attention kernels.

    In the causal direction padding must come after the real steps, as batches have it: then no real step can see it
    and no mask is needed, which keeps the fastest kernels available.
    """

    def __init__(self, config: Attention, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        queries, keys = config.sizes(width)
        self.rows = queries, keys, keys
        self.qkv = linear(width, sum(self.rows), generator, config.bias)
        self.out = linear(queries, width, generator, config.bias if config.out_bias is None else config.out_bias)
        self.short = None
        if config.short_conv:
            self.short = conv1d(sum(self.rows), sum(self.rows), config.short_conv, generator, groups=sum(self.rows))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        parts = self._parts(x)
        if self.short is not None:
            parts, _ = self._shortened(parts, x.new_zeros(x.shape[0], self.config.short_conv - 1, sum(self.rows)))
        q, k, v = parts
        start = self._start(x.shape[1])
        return self._attended(q, self._rotated(k, start), v, start, None if self.causal else mask)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the keys and values that the next step sees: all of them, rotated, or those of blocks or of a window
        with its sinks as they are.

        Products of rotated queries and keys depend on distances alone, so the first step kept can count as step 0.
        State: `keys` and `values`, (B, steps, channels); with a short convolution also its last inputs, `short`.
        """
        parts, kept = self._parts(x), {}
        if self.short is not None:
            before = x.new_zeros(x.shape[0], self.config.short_conv - 1, sum(self.rows))
            parts, kept["short"] = self._shortened(parts, before if state is None else state["short"])
        q, k, v = parts
        past = 0 if state is None else state["keys"].shape[1]
        bounded = self.config.block is not None or self.config.window is not None
        k = k if bounded else self._rotated(k, past)
        if state is not None:
            k, v = torch.cat([state["keys"], k], 1), torch.cat([state["values"], v], 1)
        kept |= {"keys": self._kept(k), "values": self._kept(v)}
        return self._attended(q, self._rotated(k, 0) if bounded else k, v, past, None), kept

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, (B, T, channels) each.

        Each has a product of its own, since a single product would leave the three interleaved in memory.
        """
        weights = self.qkv.weight.split(self.rows)
        biases = (None,) * 3 if self.qkv.bias is None else self.qkv.bias.split(self.rows)
        return tuple(F.linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True))

    def _shortened(self, parts: tuple[Tensor, ...], before: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """The parts, (B, T, channels) each, after the short convolution, and its last inputs for the next steps."""
        assert self.short is not None
        joined = torch.cat([before, torch.cat(parts, -1)], 1)
        y = self.short(joined.transpose(1, 2)).transpose(1, 2)
        return y.split(self.rows, -1), joined[:, joined.shape[1] - before.shape[1] :]

    def _kept(self, part: Tensor) -> Tensor:
        """What the next step sees of keys or values, (B, steps, channels): the sinks and the last ones."""
        sinks = self.config.sinks
        first = part.shape[1] - self.config.kept(part.shape[1])
        return part[:, first:] if first == 0 or not sinks else torch.cat([part[:, :sinks], part[:, first + sinks :]], 1)

    def _start(self, length: int) -> int | np.ndarray:
        """Returns the position of the first of so many steps, or those of all, (T,), where training draws them.

        They come from the seed of the scope that dropout draws in, not from its state, so that all layers have the
        same. Raises UserError where there are fewer positions than steps.
        """
        span = self.config.rotary_range
        if not span or not self.training:
            return 0
        if length > span:
            raise UserError(f"Attention(rotary_range={span}) has too few positions for {length} steps: give it more.")
        return np.sort(np.random.default_rng(torch.initial_seed()).choice(span, length, replace=False))

    def _rotated(self, part: Tensor, start: int | np.ndarray, last: int | None = None) -> Tensor:
        """Queries or keys, (B, T, channels), rotated by their positions; the first is at position `start`, and none
        beyond `last`."""
        c = self.config
        if c.rotary == "none":
            return part
        dim = self.rows[0] // c.heads
        groups = part.shape[-1] // dim if c.rotary == "per_head" else 1
        form = {"base": c.rotary_base, "half": c.rotary_half, "turned": c.rotary_width, "scale": c.rotary_scale}
        return rotate(part, groups, start=start, last=last, **form)

    def _heads(self, part: Tensor) -> Tensor:
        """Queries, keys or values, (B, T, channels), head by head: (B, heads, T, channels of a head)."""
        return part.unflatten(-1, (-1, self.rows[0] // self.config.heads)).transpose(1, 2)

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, past: int | np.ndarray, mask: Tensor | None) -> Tensor:
        """Returns (B, Q, D) for queries (B, Q, channels) not yet rotated, the first at position `past` or all at those,
        rotated keys and values (B, K, channels), and mask (B, K) or None."""
        c, dim = self.config, self.rows[0] // self.config.heads
        asked, (q, k, v) = q, (self._heads(part) for part in (self._rotated(q, past), k, v))
        if c.window is not None and c.sinks:
            far = self._heads(self._rotated(asked, past, last=c.sinks + c.window - 1))
            q, k, v = _apart(q, far, k, v, c.sinks)
            y = attend_window(q, k, v, mask, causal=self.causal, window=c.window, first=c.sinks)[..., :dim]
        elif c.window is not None:
            y = attend_window(q, k, v, mask, causal=self.causal, window=c.window)
        elif c.block is not None:
            y = attend_blocks(q, k, v, mask, causal=self.causal, block=c.block)
        else:
            y = attend(q, k, v, mask, causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


def _apart(near: Tensor, far: Tensor, k: Tensor, v: Tensor, sinks: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of twice the channels, by which `far` meets the first `sinks` keys, `near` the others.

    near, far: (B, H, Q, d), the same queries at two positions; k, v: (B, G, K, d). A key has zeros where the other
    query stands. The scale, 1 / sqrt(2 d), is made up for in the queries.
    """
    first = torch.arange(k.shape[2], device=k.device)[:, None] < sinks
    keys = torch.cat([k.masked_fill(first, 0.0), k.masked_fill(~first, 0.0)], -1)
    return torch.cat([near, far], -1) * 2**0.5, keys, F.pad(v, (0, v.shape[-1]))
