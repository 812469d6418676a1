"""Linear attention replaces the exponential of softmax by a product of positive feature maps.

    y_i = sum_j phi(q_i) . phi(k_j) v_j / (sum_j phi(q_i) . phi(k_j) + eps),     phi(x) = elu(x) + 1

The layer is that of Katharopoulos et al. (2020), section 3.2, equation 7. The sums over j run over all real steps, or
in the causal direction over those so far: a matrix and a vector per head that are carried from step to step, so the
layer is a recurrence of fixed size, and its cost grows linearly in T. Queries and keys are not scaled.

    Linear(heads=8)       # section 4 of the paper
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_width
from levelfield.ops.layers.heads import split_heads
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.linear_attention.feature_map import attend_features, attend_features_causal
from levelfield.spec import MixerConfig

EPS = 1e-6  # of the denominator, as in the authors' code


@dataclass(frozen=True)
class Linear(MixerConfig):
    """Linear attention of katharopoulos2020, section 3.2 and equation 7; equations 16-20 as a recurrence.

    `bias` is of all four maps.
    """

    heads: int = 4
    bias: bool = True

    label: ClassVar[str] = "linear"
    paper: ClassVar[str] = "katharopoulos2020"
    complexity: ClassVar[str] = "T D^2 / heads"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("Linear", width, self.heads)
        return LinearLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts, per head, sums of phi(k) v^T and of phi(k)."""
        dim = width // self.heads
        return self.heads * dim * (dim + 1)


EXAMPLES = (Linear(heads=2), Linear(heads=4, bias=False))


class LinearLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). In the causal direction padding comes after the real steps, which cannot see it."""

    def __init__(self, config: Linear, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.heads, self.causal = config.heads, causal
        self.qkv = linear(width, 3 * width, generator, config.bias)
        self.out = linear(width, width, generator, config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        if self.causal:
            return self.step(x, None)[0]
        q, k, v = self._features(x)
        return self._joined(attend_features(q, k, v, mask, eps=EPS), x)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the sums over the steps so far as `sums`, (B, H, d, d + 1); the last column is that of the
        denominator.
        """
        q, k, v = self._features(x)
        before = None if state is None else state["sums"]
        y, sums = attend_features_causal(q, k, v, log_decay=None, state=before, eps=EPS)
        return self._joined(y, x), {"sums": sums}

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns phi(q) and phi(k), in float32 or wider, and v: (B, H, T, d) each."""
        q, k, v = split_heads(x, self.qkv, self.heads)
        return F.elu(q.float() if q.itemsize < 4 else q) + 1, F.elu(k.float() if k.itemsize < 4 else k) + 1, v

    def _joined(self, y: Tensor, x: Tensor) -> Tensor:
        return self.out(y.transpose(1, 2).flatten(2).to(x.dtype))
