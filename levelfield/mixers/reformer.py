"""Reformer is attention among steps whose queries point in similar directions, which are found by hashing.

    k_i = q_i / |q_i|                                 one map makes queries and keys
    bucket(q) = argmax over [q R, -q R]               R: (d, buckets / 2) random directions, anew in each round
    y = linear(softmax(q k^T) v)                      over what the rounds show a step, never itself if there is another

The layer is that of Kitaev et al. (2020), section 2. Steps are sorted by bucket and cut into chunks that see themselves
and the one before. In the causal direction a step sees the last `chunk` steps before it in its own bucket instead: the
paper's chunks are cut at places that depend on the whole sequence, so that later steps would decide which earlier ones
a step can see. Cost and memory are linear in T, apart from the sorting.

    Reformer(heads=4, chunk=64, rounds=4, buckets=64)

The random directions are drawn once for each layer and head, from the generator passed to `build`, and saved with the
weights; the authors draw them anew at every training step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._checks import check_width
from levelfield.ops.attention.lsh import Visibility, angular_hash, lsh_attention, lsh_attention_step
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, UserError

EPS = 1e-6  # of the mean square that keys are divided by, as in the authors' code


@dataclass(frozen=True)
class Reformer(MixerConfig):
    """Reformer of kitaev2020, section 2. `bias` is of all three maps; the authors' code has none.

    `buckets` does not grow with the sequence, or later steps would change the hash of earlier ones; the paper's rule is
    2 T / chunk. Two rules are by default those of transformers and of the code that Long Range Arena's rows come from:
    in two directions a step sees keys of other buckets in its chunks (`across_buckets`), and a key counts once for
    every round that shows it (`repeats`; the Arena has one round). kitaev2020 has both False.
    """

    heads: int = 4
    chunk: int = 64
    rounds: int = 4
    buckets: int = 64
    bias: bool = False
    across_buckets: bool = field(default=True, metadata={"added": True})
    repeats: bool = field(default=True, metadata={"added": True})

    label: ClassVar[str] = "reformer"
    paper: ClassVar[str] = "kitaev2020"
    complexity: ClassVar[str] = "T D chunk rounds + T log T heads rounds"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("Reformer", width, self.heads)
        if self.chunk < 1 or self.rounds < 1:
            raise UserError(
                f"Reformer(chunk={self.chunk}, rounds={self.rounds}) looks at nothing: give at least 1 of both."
            )
        if self.buckets < 2 or self.buckets % 2:
            raise UserError(f"Reformer(buckets={self.buckets}): they come in opposite pairs, so give an even number.")
        return ReformerLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts queries, values and buckets of all steps: any of them may be the last of its bucket."""
        return length * (2 * width + self.heads * self.rounds)


EXAMPLES = (
    Reformer(heads=2, chunk=3, rounds=2, buckets=4),
    Reformer(heads=1, chunk=8, rounds=1, buckets=2, bias=True),
    Reformer(heads=2, chunk=4, rounds=3, buckets=4, across_buckets=False, repeats=False),
)


class ReformerLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). In the causal direction padding comes after the real steps, which cannot see it."""

    rotations: Tensor

    def __init__(self, config: Reformer, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.heads, self.chunk, self.causal = config.heads, config.chunk, causal
        self.across, self.repeats = config.across_buckets, config.repeats
        self.query_key = linear(width, width, generator, config.bias)
        self.value = linear(width, width, generator, config.bias)
        self.out = linear(width, width, generator, config.bias)
        shape = (config.heads, width // config.heads, config.rounds, config.buckets // 2)
        self.register_buffer("rotations", torch.randn(shape, generator=generator))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        q, v = self._heads(self.query_key(x)), self._heads(self.value(x))
        buckets = angular_hash(q, self.rotations)
        y = self._attended(q, v, buckets, mask, causal=self.causal)
        return self._joined(y, x)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps `queries` and `values`, (B, T, H, d), and `buckets`, (B, H, R, T), of the steps so far."""
        q, v = self._heads(self.query_key(x)), self._heads(self.value(x))
        buckets = angular_hash(q, self.rotations)
        if state is None:
            y = self._attended(q, v, buckets, None, causal=True)
            return self._joined(y, x), {"queries": q, "values": v, "buckets": buckets}
        keys, v = torch.cat([state["queries"], q], 1), torch.cat([state["values"], v], 1)
        buckets = torch.cat([state["buckets"], buckets], 3)
        y = lsh_attention_step(q, _unit(keys), v, buckets, chunk=self.chunk, repeats=self.repeats)
        return self._joined(y, x), {"queries": keys, "values": v, "buckets": buckets}

    def _attended(self, q: Tensor, v: Tensor, buckets: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Returns (B, T, H, d) for q, v: (B, T, H, d), buckets: (B, H, R, T) and mask: (B, T) or None."""
        visibility = Visibility(causal, self.chunk, self.across, self.repeats)
        return lsh_attention(q, _unit(q), v, buckets, mask, visibility=visibility)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1))

    def _joined(self, y: Tensor, x: Tensor) -> Tensor:
        return self.out(y.flatten(2).to(x.dtype))


def _unit(q: Tensor) -> Tensor:
    """Keys of length 1, shaped as q, in float32 or wider."""
    q = q.to(torch.promote_types(q.dtype, torch.float32))
    return q * torch.rsqrt(q.square().mean(-1, keepdim=True) + EPS) * q.shape[-1] ** -0.5
