"""Defines layers that can continue from a state, which generation needs.

    y, state = layer.step(x[:, :7], None)         # a prompt of seven steps at once
    y, state = layer.step(x[:, 7:8], state)       # then step by step: the same numbers as layer(x, None)

The state is a dict of tensors (B, ...). It holds as many numbers per sequence as the mixer's `state_size` declares, so
that the ledger reports what is really kept between steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class RecurrentLayer(nn.Module, ABC):
    """A causal layer that keeps its past in a state."""

    @abstractmethod
    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The outputs of the next n >= 1 steps, (B, n, D), and the state after them.

        x: (B, n, D), without padding; state: None at the start. The given state is not changed, so several
        continuations can start from it.
        """
