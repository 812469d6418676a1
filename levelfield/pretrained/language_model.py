"""What an evaluation asks of a language model: logits of a batch, and going on from a carried state.

    model.logits(ids)                          # (B, n) -> (B, n, V)
    logits, state = model.start(prompt)        # (B, V) after the last step, chunk by chunk
    logits, state = model.step(ids, state)  # the next steps of every row
    copies = model.rows(state, index)          # some rows again, to go on from them in several ways

A model of the transformers library, a checkpoint of `mamba_ssm`, RWKV-6 and a model trained here answer alike, so that
greedy generation (`levelfield.pretrained.decoding`) is written once. Rows of a batch are equally long: nothing is
padded, as most recurrent models do not survive padding. Letters: B rows, n steps, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from levelfield.spec import UserError

CHUNK = 8192  # tokens that a prefill takes in at a time, over all rows
FEWEST = 64  # steps of a chunk, however many rows there are


class LanguageModel(ABC):
    """A causal language model in eval mode on one device.

    A state is whatever the implementation makes of it: what B rows carry after equally many steps.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """As it was asked for."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Logits of a step, V; ids are 0..V-1. It may exceed the tokenizer's, where a checkpoint is padded."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @property
    def max_length(self) -> int | None:
        """Steps that it takes at most, as one with a table of positions does; None where there is no bound."""
        return None

    @property
    def made_for(self) -> int | None:
        """Steps that its positions were made for, as its settings say; beyond them rotary ones are extrapolated. None
        where they do not say."""
        return None

    @property
    def begin(self) -> tuple[int, ...]:
        """Ids that its own code puts before every prompt; () for most."""
        return ()

    @property
    def ends(self) -> frozenset[int]:
        """Ids after which its own code stops; none where it never does."""
        return frozenset()

    @property
    def pieces(self) -> bool:
        """Whether a prompt may be read in pieces. If not, what follows its one piece comes step by step."""
        return True

    @property
    def ragged(self) -> bool:
        """Whether rows may differ in where the prompt ends, as is right for all but a reproduced bug."""
        return True

    @abstractmethod
    def step(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, Any]:
        """The next n >= 1 steps. ids: (B, n) int64; state: None at the start.

        -> logits (B, V) after the last step, or (B, n, V) if not `last`, and the state after them. The state that was
        given is used up; go on from it in two ways by `rows`.
        """

    @abstractmethod
    def rows(self, state: Any, index: Tensor) -> Any:
        """A copy of those rows of the state, in that order; a row may be asked for more than once. index: (B',)."""

    @abstractmethod
    def join(self, states: Sequence[Any]) -> Any:
        """The rows of several states, which have seen equally many steps, one after the other."""

    def prompted(self, state: Any) -> Any:
        """The state from which tokens are generated, given the one after the prompt. The same but for known bugs."""
        return state

    @final
    @torch.no_grad()
    def start(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """A prompt, or the rest of one, chunk by chunk. ids: (B, n >= 1) -> logits (B, V) after it, and the state."""
        self.check_length(ids.shape[1])
        logits = ids.new_empty(0)
        for piece in ids.to(self.device).split(self._chunk(ids), dim=1):
            logits, state = self.step(piece, state)
        return logits, state

    @final
    @torch.no_grad()
    def logits(self, ids: Tensor, last: int | None = None) -> Tensor:
        """ids: (B, n) -> (B, n, V), or (B, last, V) for the last so many steps, and then only theirs are computed."""
        self.check_length(ids.shape[1])
        ids, state, parts = ids.to(self.device), None, []
        before = 0 if last is None else ids.shape[1] - last
        if not self.pieces:
            return self.step(ids, None, last=False)[0][:, before:]
        if before:
            _, state = self.start(ids[:, :before])
        for piece in ids[:, before:].split(self._chunk(ids), dim=1):
            part, state = self.step(piece, state, last=False)
            parts.append(part)
        return torch.cat(parts, 1)

    def _chunk(self, ids: Tensor) -> int:
        """Steps of a piece."""
        return max(FEWEST, CHUNK // len(ids)) if self.pieces else ids.shape[1]

    def check_length(self, steps: int) -> None:
        """Raises UserError for more steps than the model has positions for."""
        if self.max_length is not None and steps > self.max_length:
            raise UserError(f"{self.name} takes at most {self.max_length} steps, not {steps}: ask for shorter prompts.")
