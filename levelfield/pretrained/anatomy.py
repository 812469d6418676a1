"""What a model is made of, however its folder is called: its layers by kind, and how many parameters it has.

anatomy(model)      # ("mamba2 x 58, attention x 6", 2_697_590_880)
"""

from __future__ import annotations

from collections import Counter

from torch import nn

from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.native_model import Own
from levelfield.pretrained.reference_bug import AsPublished
from levelfield.pretrained.transformers_model import Hub
from levelfield.spec import Model


def anatomy(model: LanguageModel) -> tuple[str, int]:
    """Kinds of layers, or the model type that transformers names, and the parameters, those of two places once. Of a
    class that is not known here nothing is said: "" and 0."""
    if isinstance(model, AsPublished):
        return anatomy(model.model)
    if isinstance(model, Own):
        return layers(model.net.model), _count(model.net) + model.head
    if isinstance(model, Hub):
        return str(model.inner.config.model_type), _count(model.inner)
    return "", 0


def layers(model: Model) -> str:
    """Kinds of layers and how many of each, the most frequent first."""
    pattern = [model.mixers[i % len(model.mixers)].label for i in range(model.depth)]
    return ", ".join(f"{label} x {count}" for label, count in Counter(pattern).most_common())


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
