"""Models made of our own layers as language models: read from somebody's checkpoint, or trained here.

    net = Net(model, Tokens(symbols), (Head("next", symbols, "step"),), mask_flag=False, seed=0).eval()
    Own("mine", net, net.heads["next"], size=symbols, shift=Tokens.OFFSET)

Every layer is `RecurrentLayer`, so a prompt is read in pieces of any size and generation goes on from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from levelfield.model import Net, State
from levelfield.pretrained.language_model import LanguageModel

Read = Callable[[Tensor], Tensor]
"""Features (..., D) to logits (..., V)."""


@final
@dataclass(frozen=True)
class Own(LanguageModel):
    """net: in eval mode. read: its features to logits. shift: what is added to an id before the network sees it.
    half: whether to run products in bfloat16. head: parameters of `read` that are not among the network's.
    reach: steps that its positions were made for, where that is known."""

    label: str
    net: Net
    read: Read
    size: int
    shift: int = 0
    stops: frozenset[int] = frozenset()
    prefix: tuple[int, ...] = ()
    half: bool = False
    head: int = 0
    reach: int | None = None

    @property
    def name(self) -> str:
        return self.label

    @property
    def vocabulary(self) -> int:
        return self.size

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    @property
    def max_length(self) -> int | None:
        return self.net.model.max_length

    @property
    def made_for(self) -> int | None:
        return self.reach

    @property
    def begin(self) -> tuple[int, ...]:
        return self.prefix

    @property
    def ends(self) -> frozenset[int]:
        return self.stops

    def step(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, State]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            features, after = self.net.step(ids + self.shift, state)
            return self.read(features[:, -1] if last else features), after

    def rows(self, state: State, index: Tensor) -> State:
        return State(
            state.steps, tuple({k: v.index_select(0, index) for k, v in layer.items()} for layer in state.layers)
        )

    def join(self, states: Sequence[State]) -> State:
        layers = zip(*(state.layers for state in states), strict=True)
        return State(states[0].steps, tuple({k: torch.cat([s[k] for s in some]) for k in some[0]} for some in layers))
