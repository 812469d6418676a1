"""Defines layers whose own gate weighs the residual stream, and which therefore take it as an argument.

x + dropout(mixer(norm(x), mask))         # any mixer
x + dropout(mixer(norm(x), mask, x))      # a ResidualGate that returns u (h - x), so that the sum is u h + (1 - u) x
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class ResidualGate(nn.Module, ABC):
    """A layer that takes the residual stream, to which its output is added, besides its input."""

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None, stream: Tensor | None = None) -> Tensor:
        """The output, (B, T, D), that is added to the stream.

        x: (B, T, D); stream: (B, T, D), or None where it is x itself. A layer that is a `RecurrentLayer` too has
        `step(x, state, stream=None)`.
        """
