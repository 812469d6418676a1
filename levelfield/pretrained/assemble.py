"""From a checkpoint's tensors, under our names, to a language model of our layers.

    decoder = Decoder(model, embedding, head=None, weights={"blocks.0.mixer.A_log": ...})
    assemble(decoder, Setup("mamba2-2.7b", "cpu", "bfloat16"))

float64 is for comparisons. In bfloat16 the large linear maps are kept and run so, and all else (norms, decays, states)
stays in float32, as the published codes do where it matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from levelfield.model import Net
from levelfield.pretrained.native_model import Own
from levelfield.spec import Model, Tokens, UserError

Precision = Literal["float32", "bfloat16", "float64"]
SMALL = ("dt_proj", "rg_lru", "conv")  # maps whose mixers run them in float32


@dataclass(frozen=True)
class Setup:
    """label: the model's name in tables. device and precision: where and how it runs."""

    label: str
    device: str = "cpu"
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise UserError(f"There is no precision '{self.precision}': take {' or '.join(get_args(Precision))}.")


@dataclass(frozen=True)
class Decoder:
    """A language model without a place. embedding: (V, D). head: (V, D), or None where the embedding's rows are it.

    scale: what embedded inputs are multiplied by. cap: logits become cap tanh(logits / cap). weights: of blocks and
    norm, under the names of `Net`.
    """

    model: Model
    embedding: Tensor
    head: Tensor | None
    weights: Mapping[str, Tensor]
    scale: float = 1.0
    cap: float | None = None


class Logits(nn.Module):
    """(..., D) -> (..., V)."""

    def __init__(self, weight: Tensor, factor: float, cap: float | None) -> None:
        super().__init__()
        self.weight, self.factor, self.cap = nn.Parameter(weight, requires_grad=False), factor, cap

    def forward(self, features: Tensor) -> Tensor:
        logits = F.linear(features.to(self.weight.dtype), self.weight)
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        if self.factor != 1:
            logits = logits * self.factor
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def assemble(decoder: Decoder, setup: Setup, begin: tuple[int, ...] = (), ends: frozenset[int] = frozenset()) -> Own:
    """begin, ends: as of `LanguageModel`. Nothing of the model's size is made but the weights themselves. Raises
    UserError where names do not fit."""
    with FakeTensorMode():  # initial values that nobody needs take neither memory nor time
        net = Net(decoder.model, Tokens(len(decoder.embedding) - Tokens.OFFSET), (), mask_flag=False, seed=0)
    device, half = torch.device(setup.device), setup.precision == "bfloat16"
    wide = torch.float64 if setup.precision == "float64" else torch.float32
    embedding = decoder.embedding.to(device, wide) * decoder.scale
    weights = {"encoder.embed.weight": embedding}  # in float32, so that what the blocks add to is, too
    for name, value in decoder.weights.items():
        weights[name] = value.to(device, torch.bfloat16 if half and _large(name, value) else wide)
    expected = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    for name in sorted(expected.keys() ^ weights.keys()):
        raise UserError(f"{setup.label} and our layers disagree about '{name}': its layout is not one known here.")
    for name, value in weights.items():
        if tuple(value.shape) != expected[name]:
            raise UserError(f"{setup.label} has '{name}' of shape {tuple(value.shape)}, not {expected[name]}.")
    net.load_state_dict(weights, assign=True)
    net = net.requires_grad_(False).eval()
    head = embedding if decoder.head is None else decoder.head.to(device, wide)
    head = head.bfloat16() if half else head
    factor, extra = (1 / decoder.scale, 0) if decoder.head is None else (1.0, decoder.head.numel())
    read = Logits(head, factor, decoder.cap)
    return Own(setup.label, net, read, len(head), 0, ends, begin, half, extra)


def _large(name: str, value: Tensor) -> bool:
    return value.ndim == 2 and name.endswith(".weight") and not any(small in name for small in SMALL)
