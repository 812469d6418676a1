"""Reproduces a bug in the authors' decoding of the hybrid mamba2attn-2.7b, so that printed numbers can be understood.

    reproduce(model)            # a `NativeModel` whose attention has a short convolution

Its attention convolves queries, keys and values over four steps. At the end of the prompt `mamba_ssm`
(`modules/mha.py`, since its release of Mamba-2 in June 2024) keeps the *outputs* of that convolution where the next
steps need its *inputs*. So the first three generated tokens see wrong inputs, and all later tokens read their keys and
values. A number of seven digits takes about three tokens. Logits of a text that is read in one call are not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from levelfield.mixers.attention import AttentionLayer
from levelfield.model import CarriedState
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.native_model import NativeModel
from levelfield.spec import UserError


def reproduce(model: NativeModel) -> WithReferenceBug:
    """Returns the model with the bug in its generation. Raises UserError where no layer can have it."""
    layers = [b.get_submodule("mixer") for b in model.net.blocks]
    found = [i for i, layer in enumerate(layers) if isinstance(layer, AttentionLayer) and layer.short is not None]
    if not found:
        raise UserError(f"{model.name} has no attention with a short convolution, so the known decode bug is not its.")
    for i in found:
        layer = layers[i]
        assert isinstance(layer, AttentionLayer)
        model.net.blocks[i].add_module("mixer", CacheBugAttention(layer))
    return WithReferenceBug(model)


@final
class CacheBugAttention(RecurrentLayer):
    """Attention that also keeps the inputs of its convolution, twice as many as the next step needs.

    x and y: (batch, steps, width). The state has one tensor more than the layer's own, `went_in`: (batch, inputs,
    channels).
    """

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

    def with_bug(self, state: dict[str, Tensor], steps: int) -> dict[str, Tensor]:
        """Returns the state after a prompt of `steps`, with the convolution's outputs in place of its inputs."""
        assert self.layer.short is not None
        came_out = self.layer.short(state["went_in"].transpose(1, 2)).transpose(1, 2).clone()
        came_out[:, : max(0, came_out.shape[1] - steps)] = 0  # before the first step there is nothing
        return state | {"short": came_out.to(state["short"].dtype)}


@final
class WithReferenceBug(LanguageModel):
    """A model with `CacheBugAttention` layers, which corrupts its state at the end of the prompt."""

    def __init__(self, model: NativeModel) -> None:
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
    def max_length(self) -> int | None:
        return self.model.max_length

    @property
    def made_for(self) -> int | None:
        return self.model.made_for

    @property
    def bos_ids(self) -> tuple[int, ...]:
        return self.model.bos_ids

    @property
    def eos_ids(self) -> frozenset[int]:
        return self.model.eos_ids

    @property
    def supports_chunked_prefill(self) -> bool:
        return self.model.supports_chunked_prefill

    @property
    def supports_mixed_lengths(self) -> bool:
        return False

    def step(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, CarriedState]:
        return self.model.step(ids, state, last)

    def rows(self, state: CarriedState, index: Tensor) -> CarriedState:
        return self.model.rows(state, index)

    def join(self, states: Sequence[CarriedState]) -> CarriedState:
        return self.model.join(states)

    def prompted(self, state: CarriedState) -> CarriedState:
        layers = []
        for block, kept in zip(self.model.net.blocks, state.layers, strict=True):
            mixer = block.get_submodule("mixer")
            layers.append(mixer.with_bug(kept, state.steps) if isinstance(mixer, CacheBugAttention) else kept)
        return CarriedState(state.steps, tuple(layers))
