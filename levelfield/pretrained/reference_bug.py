"""The hybrid's decoding as its authors' code does it, mistake included, so that printed numbers can be understood.

    reproduce(model)            # of `native.decoder`, where attention has a short convolution

Attention of mamba2attn-2.7b convolves queries, keys and values over four steps. `mamba_ssm` (`modules/mha.py`, from its
release of Mamba-2 in June 2024 on) keeps, at the end of the prompt, what comes *out* of that convolution where the next
steps need what went *in*. The first three tokens generated see wrong inputs, and everything after them reads their keys
and values; a number of seven digits is just about three tokens. Logits of a text at once are not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from levelfield.mixers.attention import AttentionLayer
from levelfield.model import State
from levelfield.ops.layers.recurrent import RecurrentLayer
from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.native_model import Own
from levelfield.spec import UserError


def reproduce(model: Own) -> AsPublished:
    """The same model with that mistake in what it generates. Raises UserError where no layer could make it."""
    layers = [b.get_submodule("mixer") for b in model.net.blocks]
    found = [i for i, layer in enumerate(layers) if isinstance(layer, AttentionLayer) and layer.short is not None]
    if not found:
        raise UserError(f"{model.name} has no attention with a short convolution, so the known decode bug is not its.")
    for i in found:
        layer = layers[i]
        assert isinstance(layer, AttentionLayer)
        model.net.blocks[i].add_module("mixer", Remembering(layer))
    return AsPublished(model)


@final
class Remembering(RecurrentLayer):
    """Attention whose state also has what went into its convolution, twice as far back as the next step needs it."""

    def __init__(self, layer: AttentionLayer) -> None:
        super().__init__()
        self.layer = layer

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        assert self.layer.short is not None
        reach = 2 * (self.layer.config.short_conv - 1)
        y, after = self.layer.step(x, state)
        went_in = self.layer.qkv(x[:, -reach:]).to(after["short"].dtype)
        before = went_in.new_zeros(len(x), reach, went_in.shape[2]) if state is None else state["went_in"]
        return y, after | {"went_in": torch.cat([before, went_in], 1)[:, -reach:]}

    def mistaken(self, state: dict[str, Tensor], steps: int) -> dict[str, Tensor]:
        """The state after a prompt of so many steps, with the convolution's outputs where its inputs belong."""
        assert self.layer.short is not None
        came_out = self.layer.short(state["went_in"].transpose(1, 2)).transpose(1, 2).clone()
        came_out[:, : max(0, came_out.shape[1] - steps)] = 0  # before the first step there is nothing
        return state | {"short": came_out.to(state["short"].dtype)}


@final
class AsPublished(LanguageModel):
    """`model`, with `Remembering` layers, that goes wrong where a prompt ends."""

    def __init__(self, model: Own) -> None:
        self.model = model

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def vocabulary(self) -> int:
        return self.model.vocabulary

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def ends(self) -> frozenset[int]:
        return self.model.ends

    @property
    def ragged(self) -> bool:
        return False

    def step(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, State]:
        return self.model.step(ids, state, last)

    def rows(self, state: State, index: Tensor) -> State:
        return self.model.rows(state, index)

    def join(self, states: Sequence[State]) -> State:
        return self.model.join(states)

    def prompted(self, state: State) -> State:
        layers = []
        for block, kept in zip(self.model.net.blocks, state.layers, strict=True):
            mixer = block.get_submodule("mixer")
            layers.append(mixer.mistaken(kept, state.steps) if isinstance(mixer, Remembering) else kept)
        return State(state.steps, tuple(layers))
