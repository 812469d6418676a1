"""Performer estimates softmax attention with positive orthogonal random features (FAVOR+).

    phi(x) = exp(W x' - |x'|^2 / 2) / sqrt(features),     x' = x / d^(1/4)
    y_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j)

The layer is that of Choromanski et al. (2021), equation 7 and section 2.4. The rows of W, (features, d), are normal
vectors, orthogonal to each other within each block of d, so that phi(q) . phi(k) is an unbiased estimate of exp(q . k /
sqrt(d)). W is drawn once, from the generator passed to `build`, shared by the heads of a layer, and kept as a buffer:
it is never trained and never drawn anew. The cost is linear in T.

    Performer(heads=4, features=256)

Features stay in range because maxima of their logarithms are subtracted; all of these cancel in y, so that nothing of
the future or of padding remains. Without a direction it is the maximum of each feature over the keys, which queries
give back, and then that of each query's features: so the largest term of a denominator is 1, at inputs of any size.

In the causal direction a maximum per feature would be a decay per feature. There it is that of all keys so far, per
head, and sums over earlier keys are rescaled as it grows. The largest features of a query may then be small ones of all
keys, and y is 0 where their products, and so the denominator, are below `EPS`. Measured on 300 normal steps, with up to
256 features, y is right to 2e-5 while coordinates of queries and keys have a standard deviation of at most 14 /
d^(1/4), 7 at d = 16 and 5 at d = 64; at twice that, up to 20 % of the steps are wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from levelfield.mixers._checks import check_width
from levelfield.ops.layers.heads import split_heads
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.linear_attention.feature_map import attend_features, attend_features_causal
from levelfield.spec import MixerConfig, UserError

EPS = 1e-24  # of the denominator: small beside its terms, and a loss times 1 / EPS is within float32


@dataclass(frozen=True)
class Performer(MixerConfig):
    """Performer of choromanski2021, equation 7 and section 2.4: `features` random features per head.

    bias: of all four maps. The authors' code adds 1e-4 to every feature besides; the paper's equations do not, and
    neither does this layer.
    """

    heads: int = 4
    features: int = 256
    bias: bool = True

    label: ClassVar[str] = "performer"
    paper: ClassVar[str] = "choromanski2021"
    complexity: ClassVar[str] = "T D features"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("Performer", width, self.heads)
        if self.features < 1:
            raise UserError(f"Performer(features={self.features}) is none: give at least 1; 256 is common.")
        return PerformerLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts, per head, sums of phi(k) v^T and of phi(k), and the largest logarithm of a feature."""
        return self.heads * (self.features * (width // self.heads + 1) + 1)


EXAMPLES = (Performer(heads=2, features=12), Performer(heads=4, features=7, bias=False))


def orthogonal_rows(rows: int, columns: int, generator: Generator) -> Tensor:
    """Standard normal rows, (rows, columns) float32, orthogonal to the others of their block of `columns` rows.

    Directions are those of the orthogonal factor of a normal matrix, with signs that make it uniform; lengths are those
    of other normal vectors (choromanski2021, section 2.4).
    """
    blocks = []
    for _ in range(math.ceil(rows / columns)):
        basis, upper = torch.linalg.qr(torch.randn(columns, columns, generator=generator))
        blocks.append((basis * torch.where(upper.diagonal() < 0, -1.0, 1.0)).T)
    lengths = torch.randn(rows, columns, generator=generator).norm(dim=1, keepdim=True)
    return lengths * torch.cat(blocks)[:rows]


class PerformerLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D). In the causal direction padding comes after the real steps, which cannot see it."""

    random: Tensor

    def __init__(self, config: Performer, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.heads, self.causal = config.heads, causal
        self.qkv = linear(width, 3 * width, generator, config.bias)
        self.out = linear(width, width, generator, config.bias)
        self.register_buffer("random", orthogonal_rows(config.features, width // config.heads, generator))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None."""
        if self.causal:
            return self.step(x, None)[0]
        q, k, v = self._logarithms(x)
        if mask is not None:
            k = k.masked_fill(~(mask | ~mask.any(-1, keepdim=True))[:, None, :, None], -math.inf)
        top = k.detach().amax(2, keepdim=True)
        return self._joined(attend_features(_positive(q + top), (k - top).exp(), v, None, eps=EPS), x)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps `sums` over the steps so far, (B, H, features, d + 1), divided by exp(top), and `top`, (B, H)."""
        q, k, v = self._logarithms(x)
        peaks = k.detach().amax(3)
        before = peaks[:, :, :1] if state is None else state["top"].unsqueeze(2)
        top = torch.cat([before, peaks], 2).cummax(2).values
        log_decay, top = -top.diff(dim=2), top[:, :, 1:]
        sums = None if state is None else state["sums"]
        q, k = _positive(q), (k - top.unsqueeze(3)).exp()
        y, sums = attend_features_causal(q, k, v, log_decay=log_decay, state=sums, eps=EPS)
        return self._joined(y, x), {"sums": sums, "top": top[:, :, -1]}

    def _logarithms(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The logarithms of phi of queries and keys, (B, H, T, features) each, and the values, (B, H, T, d).

        The factor 1 / sqrt(features) is left out, since it cancels.
        """
        q, k, v = split_heads(x, self.qkv, self.heads)
        # In float32: features are exponentials of these, which turn a rounding of 1 % of 10 into a factor.
        with torch.autocast(x.device.type, enabled=False):
            q, k = (self._logarithm(part) for part in (q, k))
        return q, k, v

    def _logarithm(self, x: Tensor) -> Tensor:
        x = x.to(self.random.dtype) * x.shape[-1] ** -0.25
        return x @ self.random.T - x.square().sum(-1, keepdim=True) / 2

    def _joined(self, y: Tensor, x: Tensor) -> Tensor:
        return self.out(y.transpose(1, 2).flatten(2).to(x.dtype))


def _positive(logarithms: Tensor) -> Tensor:
    """Features of queries, shaped as their logarithms; the largest of each step is 1."""
    return (logarithms - logarithms.detach().amax(-1, keepdim=True)).exp()
