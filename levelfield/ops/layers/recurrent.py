"""Layers that can go on from where they stopped, which is what generation needs.

    y, state = layer.step(x[:, :7], None)         # a prompt of seven steps at once
    y, state = layer.step(x[:, 7:8], state)       # then step by step: the same numbers as layer(x, None)

The state is a dict of tensors (B, ...). It holds as many numbers per sequence as the mixer's `state_size` declares, so
that the ledger's figure is what is really kept between steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class RecurrentLayer(nn.Module, ABC):
    """A causal layer whose past is summed up in a state."""

    @abstractmethod
    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The next n >= 1 steps. x: (B, n, D), no padding; state: None at the start -> y (B, n, D) and the state
        after them. The state that was given stays as it was, so that several continuations can start from it."""
