"""The rules of the contract on what a layer is before its first call: its weights, and where they are drawn from.

    made_when_built(subject)        # UserError for a layer that makes weights in its forward

An optimiser takes the weights that are there when a model is built, and a run stores and loads those. Letters: B batch,
T steps, D width.
"""

from __future__ import annotations

from contextlib import suppress

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from levelfield.contract.rules import Subject, in_both_modes, same_tensors, shapes
from levelfield.spec import UserError


def sizes_known(layer: nn.Module, name: str) -> None:
    """The layer's tensors are there before its first call, as those of nn.LazyLinear are not."""
    for key, value in layer.state_dict().items():
        if isinstance(value, (UninitializedParameter, UninitializedBuffer)):
            raise UserError(f"{name} does not know the size of '{key}' when it is built: take it from the width.")


def holds_tensors_alone(layer: nn.Module, name: str) -> None:
    """All that a run stores of the layer are tensors that its files hold, and they are there before its first call."""
    sizes_known(layer, name)
    for key, value in layer.state_dict().items():
        if not isinstance(value, Tensor):
            raise UserError(f"{name} keeps a {type(value).__name__} as '{key}': weights are stored as tensors alone.")
        try:
            save({key: value.new_empty(0)})
        except Exception as error:  # of a type that the installed safetensors does not know
            other = "complex64" if value.is_complex() else "float32"
            what = f"{name} keeps '{key}' as {value.dtype}, which safetensors files do not hold"
            raise UserError(f"{what}: make it torch.{other}, or pass persistent=False for a buffer.") from error


@torch.no_grad()
def made_when_built(subject: Subject) -> None:
    """A call makes no weights, drops none, and changes no shape. What else is wrong is for other rules to say."""
    for each in in_both_modes(subject):
        before = shapes(each.layer)
        with suppress(UserError, SystemExit):
            each(each.x)
        same_tensors(each.name, before, shapes(each.layer))
