"""Defines the interface of every language model: logits of a batch, and generation from a recurrent state or cache.

    model.logits(ids)                          # (B, n) -> (B, n, V)
    logits, state = model.start(prompt)        # logits (B, V) after the last token; reads the prompt in chunks
    logits, state = model.step(ids, state)     # the next tokens of every row
    copies = model.rows(state, index)          # copies of some rows, which continue independently

A model of transformers, a checkpoint of `mamba_ssm`, RWKV-6 and a model trained here all have this interface, so greedy
generation (`levelfield.pretrained.decoding`) is written once. All rows of a batch have the same length. Nothing is
padded, because most recurrent models compute wrong results with padding. Shapes: B rows, n tokens, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from levelfield.spec import UserError

CHUNK = 8192  # tokens that a prefill reads at a time, over all rows
FEWEST = 64  # tokens of a chunk in each row at least, however many rows there are


class LanguageModel(ABC):
    """A causal language model in eval mode on one device.

    A state is what B rows keep after the same number of tokens. Its type is up to the implementation.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name under which the model was loaded, for tables and messages."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """The number of logits, V; ids are 0..V-1. It exceeds the tokenizer's where a checkpoint is padded."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @property
    def max_length(self) -> int | None:
        """The longest sequence in tokens, where positions are a table; None where there is no limit."""
        return None

    @property
    def made_for(self) -> int | None:
        """The number of positions that the model was made for, as its settings say; None where they do not.

        Rotary positions are extrapolated beyond it.
        """
        return None

    @property
    def bos_ids(self) -> tuple[int, ...]:
        """Ids that belong before every prompt, such as the beginning of a sequence; () for most models."""
        return ()

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids after which the model's own code stops generating; empty where it names none."""
        return frozenset()

    @property
    def supports_chunked_prefill(self) -> bool:
        """Whether a prompt may be read in several calls. If not, one call reads it, and then tokens come one by one."""
        return True

    @property
    def supports_mixed_lengths(self) -> bool:
        """Whether the prompts of a batch may end at different steps; False only for a reproduced bug."""
        return True

    @abstractmethod
    def step(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, Any]:
        """Reads the next n >= 1 tokens of every row. ids: (B, n) int64. state: None at the start.

        Returns the logits (B, V) after the last token, or (B, n, V) if not `last`, and the state after it. The given
        state may be overwritten: copy it with `rows` to continue from it twice.
        """

    @abstractmethod
    def rows(self, state: Any, index: Tensor) -> Any:
        """Returns a copy of rows of a state, in the order of `index`, (B',) int64, where a row may occur repeatedly."""

    @abstractmethod
    def join(self, states: Sequence[Any]) -> Any:
        """Concatenates the rows of several states, all after the same number of tokens."""

    def prompted(self, state: Any) -> Any:
        """Returns the state to generate from, given the one after the prompt: the same, unless a bug is reproduced."""
        return state

    @final
    @torch.no_grad()
    def start(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Reads a prompt, or the rest of one, in chunks. ids: (B, n >= 1) -> logits (B, V) after it, and the state.

        Raises UserError for more tokens than the model takes.
        """
        self.check_length(ids.shape[1])
        logits = ids.new_empty(0)
        for chunk in ids.to(self.device).split(self._chunk(ids), dim=1):
            logits, state = self.step(chunk, state)
        return logits, state

    @final
    @torch.no_grad()
    def logits(self, ids: Tensor, last: int | None = None) -> Tensor:
        """Computes logits. ids: (B, n) -> (B, n, V), or (B, last, V) for the `last` tokens alone, which saves memory.

        Raises UserError for more tokens than the model takes.
        """
        self.check_length(ids.shape[1])
        ids, state, parts = ids.to(self.device), None, []
        before = 0 if last is None else ids.shape[1] - last
        if not self.supports_chunked_prefill:
            return self.step(ids, None, last=False)[0][:, before:]
        if before:
            _, state = self.start(ids[:, :before])
        for chunk in ids[:, before:].split(self._chunk(ids), dim=1):
            part, state = self.step(chunk, state, last=False)
            parts.append(part)
        return torch.cat(parts, 1)

    def _chunk(self, ids: Tensor) -> int:
        """Returns how many tokens of each row are read at a time."""
        return max(FEWEST, CHUNK // len(ids)) if self.supports_chunked_prefill else ids.shape[1]

    def check_length(self, steps: int) -> None:
        """Raises UserError for more tokens than the model has positions for."""
        if self.max_length is not None and steps > self.max_length:
            raise UserError(
                f"{self.name} takes at most {self.max_length} tokens, not {steps}: ask for shorter prompts."
            )
