"""Converts models of llama2.c to our layers.

    load("models/stories260K")          # a folder with stories260K.bin and tok512.bin

They are LLaMA as its authors wrote it: the two channels of a rotary pair are neighbours, as in our layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from levelfield.mixers.attention import Attention
from levelfield.pretrained.assemble import Decoder
from levelfield.pretrained.checkpoints.files import TensorReader
from levelfield.spec import Block, Model

EPS, BASE = 1e-5, 10000.0  # of the norms and of rotary positions, in its code
EOS = frozenset({1, 2})  # its code also stops at 1, the BOS of the next text
FEEDFORWARD = {"gate": "w1", "up": "w3", "down": "w2"}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether a config.json, or what stands in for it, is of this format."""
    return "llama2.c" in config


def convert(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """Builds the model's layers and renames its weights. Raises UserError where weights and settings disagree."""
    take, width, heads = TensorReader(tensors, where), config["width"], config["heads"]
    mixer = Attention(heads=heads, kv_heads=config["kv_heads"], rotary="per_head", rotary_base=BASE, bias=False)
    block = Block(norm="rms", feedforward=config["hidden"], activation="swiglu", bias=False, eps=EPS)
    weights = {"norm.norm.weight": take("last", width)}
    maps = {"mixer.qkv": torch.cat([take("wq"), take("wk"), take("wv")], 1), "mixer.out": take("wo")}
    maps |= {f"feedforward.{ours}": take(theirs) for ours, theirs in FEEDFORWARD.items()}
    maps |= {"norm.norm": take("norm"), "norm2.norm": take("norm2")}
    for i in range(config["layers"]):
        weights |= {f"blocks.{i}.{name}.weight": stacked[i].clone() for name, stacked in maps.items()}
    embedding = take("embedding")
    head = None if config["tied"] else take("head", *embedding.shape)
    take.drop(["cosines", "sines"])  # tables of angles, which our layers compute at any position
    take.done()
    return Decoder(Model((mixer,), config["layers"], width, causal=True, block=block), embedding, head, weights)
