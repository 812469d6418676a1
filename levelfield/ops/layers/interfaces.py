"""Defines what a layer may do besides mapping (B, T, D) to (B, T, D): carry a state, or weigh the residual stream.

A `RecurrentLayer` continues from where it stopped, which is what generation needs:

    y, state = layer.step(x[:, :7], None)         # a prompt of seven steps at once
    y, state = layer.step(x[:, 7:8], state)       # then step by step: the same numbers as layer(x, None)

A `ResidualGate` weighs the stream that its output is added to, and must therefore see it:

    x + dropout(mixer(norm(x), mask))             # any other mixer
    x + dropout(mixer(norm(x), mask, x))          # u (h - x) gives u h + (1 - u) x, which norm(x) alone cannot give
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class RecurrentLayer(nn.Module, ABC):
    """A causal layer whose past is summed up in a state, a dict of tensors (B, ...).

    The state holds as many numbers for each sequence as the mixer's `state_size` declares, so that the ledger's figure
    is what is really kept between steps.
    """

    @abstractmethod
    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Applies the layer to the next n >= 1 steps, and returns their outputs and the state after them.

        x: (B, n, D), no padding; state: None at the start -> (B, n, D) and the new state. The state that was given
        stays as it was, so that several continuations can start from it.
        """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D): all steps, from the start. One that also reads backwards has its own.

        mask: (B, T) bool, True at real steps, or None. It changes nothing: padding comes after the real steps, where
        none of them sees it.
        """
        return self.step(x, None)[0]


class ResidualGate(nn.Module, ABC):
    """A layer that is shown the stream its output is added to, besides what it is applied to."""

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None, stream: Tensor | None = None) -> Tensor:
        """Returns what is added to the stream. One that is also a `RecurrentLayer` has `step(x, state, stream=None)`.

        x: (B, T, D); mask: (B, T) or None; stream: (B, T, D), or None where it is x itself -> (B, T, D).
        """
