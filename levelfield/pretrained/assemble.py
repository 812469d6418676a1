"""Builds a language model of our layers from a checkpoint's tensors.

    decoder = Decoder(model, embedding, head=None, weights={"blocks.0.mixer.A_log": ...})
    assemble(decoder, LoadOptions("mamba2-2.7b", "cpu", "bfloat16"))

float64 is for comparisons. In bfloat16 the large linear maps are stored and run in bfloat16. Everything else (norms,
decays, states) stays in float32, as in the published codes, where its precision matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from levelfield.model import Network
from levelfield.ops.layers.undrawn import Undrawn
from levelfield.pretrained.native_model import NativeModel
from levelfield.spec import Model, Tokens, UserError

Precision = Literal["float32", "bfloat16", "float64"]
ALWAYS_FLOAT32 = ("dt_proj", "rg_lru", "conv")  # linear maps that their mixers run in float32


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded. label: its name in tables. precision: of weights and computation.

    spread: GPUs over which transformers spreads it, from `device` on. Raises UserError for an unknown precision, and
    where what is not a GPU is to be spread over.
    """

    label: str
    device: str = "cpu"
    precision: Precision = "float32"
    spread: int = 1

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise UserError(f"There is no precision '{self.precision}': take {' or '.join(get_args(Precision))}.")
        if self.spread > 1 and torch.device(self.device).type != "cuda":
            raise UserError(f"A model is spread over GPUs, and {self.device} is none: leave out --spread.")


@dataclass(frozen=True)
class Decoder:
    """The architecture and the weights of a decoder-only language model, under our names, before it is built.

    embedding: (vocabulary, width). head: (vocabulary, width), or None where it is tied to the embedding. weights: of
    blocks and norm, under the names of `Network`. scale: factor of the embedded inputs. cap: logits become
    cap tanh(logits / cap).
    """

    model: Model
    embedding: Tensor
    head: Tensor | None
    weights: Mapping[str, Tensor]
    scale: float = 1.0
    cap: float | None = None


class Logits(nn.Module):
    """Maps hidden states (..., width) to logits (..., vocabulary)."""

    def __init__(self, weight: Tensor, factor: float, cap: float | None) -> None:
        super().__init__()
        self.weight, self.factor, self.cap = nn.Parameter(weight, requires_grad=False), factor, cap

    def forward(self, hidden: Tensor) -> Tensor:
        logits = F.linear(hidden.to(self.weight.dtype), self.weight)
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        if self.factor != 1:
            logits = logits * self.factor
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def assemble(
    decoder: Decoder, options: LoadOptions, bos: tuple[int, ...] = (), eos: frozenset[int] = frozenset()
) -> NativeModel:
    """Builds the model on its device. bos, eos: `bos_ids` and `eos_ids` of the `LanguageModel`.

    Memory is taken for the weights only. Raises UserError where names or shapes do not fit.
    """
    device, half = torch.device(options.device), options.precision == "bfloat16"
    wide = torch.float64 if options.precision == "float64" else torch.float32
    # The embedding stays wide even in bfloat16, so that the residual stream that starts with it is wide, too.
    embedding = decoder.embedding.to(device, wide) * decoder.scale
    weights = {"encoder.embed.weight": embedding}
    for name, value in decoder.weights.items():
        weights[name] = value.to(device, torch.bfloat16 if half and _is_large_map(name, value) else wide)
    net = _net(decoder, weights, options.label)
    tied = decoder.head is None
    head = embedding if decoder.head is None else decoder.head.to(device, wide)
    head = head.bfloat16() if half else head
    return NativeModel(
        options.label,
        net,
        head=Logits(head, 1 / decoder.scale if tied else 1.0, decoder.cap),
        symbols=len(head),
        eos=eos,
        bos=bos,
        autocast=half,
        extra_parameters=0 if tied else head.numel(),
    )


def _net(decoder: Decoder, weights: Mapping[str, Tensor], label: str) -> Network:
    """Builds the network with these weights, in eval mode. Raises UserError where names or shapes do not fit."""
    with FakeTensorMode(), Undrawn():  # initial values are replaced, so they need neither memory nor time
        net = Network(decoder.model, Tokens(len(decoder.embedding) - Tokens.OFFSET), (), mask_flag=False, seed=0)
    expected = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    for name in sorted(expected.keys() ^ weights.keys()):
        raise UserError(f"{label} and our layers disagree about '{name}': it is of no known format.")
    for name, value in weights.items():
        if tuple(value.shape) != expected[name]:
            raise UserError(f"{label} has '{name}' of shape {tuple(value.shape)}, not {expected[name]}.")
    net.load_state_dict(weights, assign=True)
    return net.requires_grad_(False).eval()


def _is_large_map(name: str, value: Tensor) -> bool:
    return value.ndim == 2 and name.endswith(".weight") and not any(part in name for part in ALWAYS_FLOAT32)
