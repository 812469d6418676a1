"""Describes a model by its layers and its number of parameters, so that a copy under another name is recognised.

anatomy(model)      # ("mamba2 x 58, attention x 6", 2_697_590_880)
"""

from __future__ import annotations

from collections import Counter

from torch import nn

from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.native_model import NativeModel
from levelfield.pretrained.reference_bug import WithReferenceBug
from levelfield.pretrained.transformers_model import TransformersModel
from levelfield.spec import Model


def anatomy(model: LanguageModel) -> tuple[str, int]:
    """Returns the kinds of layers, or the model type that transformers names, and the number of parameters.

    Tied parameters count once. A class that is not known here gives "" and 0.
    """
    if isinstance(model, WithReferenceBug):
        return anatomy(model.model)
    if isinstance(model, NativeModel):
        return layers(model.net.model), _count(model.net) + model.extra_parameters
    if isinstance(model, TransformersModel):
        return str(model.inner.config.model_type), _count(model.inner)
    return "", 0


def layers(model: Model) -> str:
    """Returns the kinds of layers and how many of each, the most frequent first."""
    pattern = [model.mixers[i % len(model.mixers)].label for i in range(model.depth)]
    return ", ".join(f"{label} x {count}" for label, count in Counter(pattern).most_common())


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
