"""Gives the language models of huang2024 (tables 1 to 4) as values: their architectures and sizes, without weights.

    decoder = transformerpp_2_7b()
    decoder.model                       # Model(mixers=(Attention(heads=20, ...),), depth=32, width=2560, ...)
    small = replace(decoder.model, depth=4, width=256, mixers=(Attention(heads=2, rotary="per_head", bias=False),))

huang2024 trains nothing: it runs published checkpoints, from whose configurations the sizes are taken. What a `Model`
has no field for is named in `beyond`; it does not change how information moves along the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

from levelfield.mixers.attention import Attention
from levelfield.mixers.mamba2 import Mamba2
from levelfield.mixers.rglru import RGLRU
from levelfield.spec import Block, MixerConfig, Model


@dataclass(frozen=True)
class Decoder:
    """A published language model.

    vocabulary: rows of its embedding. tied: whether the same rows give the logits. context: steps it was trained on, as
    underlined in table 1. parameters: of the checkpoint. beyond: what `model` leaves out.
    """

    model: Model
    vocabulary: int
    tied: bool
    context: int
    parameters: int
    source: str
    beyond: tuple[str, ...] = ()


def transformerpp_2_7b() -> Decoder:
    """Transformer++ (gu2023), trained on the Pile beside Mamba-2: rotary attention, gated feed-forward, no biases."""
    return Decoder(
        model=_llama(eps=1e-5, name="transformer++"),
        vocabulary=50288,
        tied=True,
        context=2048,
        parameters=2_666_457_600,
        source="state-spaces/transformerpp-2.7b",
    )


def sheared_llama_2_7b() -> Decoder:
    """Sheared-LLaMA (xia2024): pruned from LLaMA-2 to the very sizes of Transformer++, and trained on. The model tuned
    on ShareGPT has the same architecture."""
    return Decoder(
        model=_llama(eps=1e-5, name="sheared-llama"),
        vocabulary=32000,
        tied=False,
        context=4096,
        parameters=2_701_560_320,
        source="princeton-nlp/Sheared-LLaMA-2.7B",
    )


def mamba2_2_7b() -> Decoder:
    """Mamba-2 (dao2024), on the same data in the same order: 64 layers and no feed-forward."""
    return Decoder(
        model=_mamba2((MAMBA2,), "mamba2"),
        vocabulary=50288,
        tied=True,
        context=2048,
        parameters=2_702_599_680,
        source="state-spaces/mamba2-2.7b",
    )


def mamba2attn_2_7b() -> Decoder:
    """Mamba-2 with attention in six layers (dao2024, section 9.2.3): 30 heads whose first halves turn, and a
    convolution before it as in the other 58."""
    attention = Attention(heads=30, head_width=128, rotary="per_head", rotary_width=64, short_conv=4, bias=False)
    layers = tuple(attention if layer in (9, 18, 27, 36, 45, 56) else MAMBA2 for layer in range(64))
    return Decoder(
        model=_mamba2(layers, "mamba2attn"),
        vocabulary=50288,
        tied=True,
        context=2048,
        parameters=2_697_590_880,
        source="state-spaces/mamba2attn-2.7b",
    )


def recurrentgemma_2b() -> Decoder:
    """RecurrentGemma (botev2024), two gated recurrences to one attention over 2,048 steps. The model tuned on
    instructions has the same architecture. It was trained on 8,192 steps; huang2024 underlines 2,048."""
    recurrence = RGLRU(heads=10, out_scale=2 / 26)
    attention = Attention(
        heads=10, kv_heads=1, window=2048, rotary="per_head", rotary_width=128, bias=False, out_bias=True
    )
    return Decoder(
        model=Model(
            mixers=(recurrence, recurrence, attention),
            depth=26,
            width=2560,
            causal=True,
            block=Block(norm="rms", feedforward=7680, activation="geglu", eps=1e-6),
            name="recurrentgemma",
        ),
        vocabulary=256000,
        tied=True,
        context=2048,
        parameters=2_682_862_080,
        source="google/recurrentgemma-2b",
        beyond=("embedded inputs times the root of the width", "logits capped at 30"),
    )


MAMBA2 = Mamba2(state=128, expand=2, head=64, conv=4)


def _mamba2(mixers: tuple[MixerConfig, ...], name: str) -> Model:
    return Model(mixers=mixers, depth=64, width=2560, causal=True, block=Block(norm="rms", eps=1e-5), name=name)


def _llama(eps: float, name: str) -> Model:
    return Model(
        mixers=(Attention(heads=20, rotary="per_head", bias=False),),
        depth=32,
        width=2560,
        causal=True,
        block=Block(norm="rms", feedforward=6912, activation="swiglu", bias=False, eps=eps),
        name=name,
    )


DECODERS = (transformerpp_2_7b, sheared_llama_2_7b, mamba2_2_7b, mamba2attn_2_7b, recurrentgemma_2b)
