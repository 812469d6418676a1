"""Layers whose own gate weighs the residual stream, and which must therefore see it.

x + dropout(mixer(norm(x), mask))                  # any mixer
x + dropout(mixer(norm(x), mask, x))               # an ResidualGate, with the norm before it: u (h - x) gives
                                                   # u h + (1 - u) x, which from norm(x) alone it cannot
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class ResidualGate(nn.Module, ABC):
    """A layer that is shown the stream its output is added to, besides what it is applied to."""

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None, stream: Tensor | None = None) -> Tensor:
        """x: (B, T, D); stream: (B, T, D), or None where it is x itself -> (B, T, D), to be added to the stream.

        One that is also `RecurrentLayer` has `step(x, state, stream=None)`.
        """
