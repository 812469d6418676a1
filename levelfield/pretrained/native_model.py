"""Runs a network of our own layers as a language model, whether its weights are somebody's checkpoint or trained here.

    net = Network(model, Tokens(symbols), (Head("next", symbols, "step"),), mask_flag=False, seed=0).eval()
    NativeModel("mine", net, head=net.heads["next"], symbols=symbols, id_offset=Tokens.OFFSET)

Every layer is a `RecurrentLayer`, so a prompt may be read in chunks of any size, and generation continues from the
state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from levelfield.model import CarriedState, Network
from levelfield.pretrained.language_model import LanguageModel

OutputHead = Callable[[Tensor], Tensor]
"""Maps hidden states (..., width) to logits (..., vocabulary)."""


@final
@dataclass(frozen=True)
class NativeModel(LanguageModel):
    """A language model of our layers.

    label: its name. net: in eval mode. symbols: size of the vocabulary. id_offset: is added to every id before the
    network reads it. eos, bos: see `LanguageModel.eos_ids` and `bos_ids`. autocast: whether products run in bfloat16.
    extra_parameters: those of the head that are not among the network's. positions: how many the model was made for,
    where that is known.
    """

    label: str
    net: Network
    head: OutputHead
    symbols: int
    id_offset: int = 0
    eos: frozenset[int] = frozenset()
    bos: tuple[int, ...] = ()
    autocast: bool = False
    extra_parameters: int = 0
    positions: int | None = None

    @property
    def name(self) -> str:
        return self.label

    @property
    def vocabulary(self) -> int:
        return self.symbols

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    @property
    def max_length(self) -> int | None:
        return self.net.model.max_length

    @property
    def made_for(self) -> int | None:
        return self.positions

    @property
    def bos_ids(self) -> tuple[int, ...]:
        return self.bos

    @property
    def eos_ids(self) -> frozenset[int]:
        return self.eos

    def step(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, CarriedState]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            hidden, after = self.net.step(ids + self.id_offset, state)
            return self.head(hidden[:, -1] if last else hidden), after

    def rows(self, state: CarriedState, index: Tensor) -> CarriedState:
        return CarriedState(
            state.steps, tuple({k: v.index_select(0, index) for k, v in layer.items()} for layer in state.layers)
        )

    def join(self, states: Sequence[CarriedState]) -> CarriedState:
        layers = zip(*(state.layers for state in states), strict=True)
        return CarriedState(
            states[0].steps, tuple({k: torch.cat([s[k] for s in some]) for k in some[0]} for some in layers)
        )
