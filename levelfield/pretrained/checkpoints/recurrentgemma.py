"""Converts RecurrentGemma, saved for the transformers library, to our layers.

    {"model_type": "recurrent_gemma", "block_types": ["recurrent", "recurrent", "attention"], ...}

In transformers its state is kept inside the layers and lost when a prompt is read in chunks. Here it is a state like
any other, and the recurrence is a scan instead of a loop over steps. Three things are special: embedded inputs are
multiplied by the square root of the width, rounded to bfloat16; files hold the weights of norms minus one; logits are
capped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from levelfield.mixers.attention import Attention
from levelfield.mixers.rglru import RGLRU
from levelfield.pretrained.assemble import Decoder
from levelfield.pretrained.checkpoints.files import TensorReader
from levelfield.pretrained.checkpoints.llama import FEEDFORWARD, attention_maps
from levelfield.spec import Block, Model

NORMS = {"norm": "temporal_pre_norm", "norm2": "channel_pre_norm"}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of this format, with no setting that our layers lack."""
    usual = {"model_type": "recurrent_gemma", "hidden_activation": "gelu_pytorch_tanh"}
    return all(config.get(name) == value for name, value in usual.items()) and not config.get("attention_bias")


def convert(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """Builds the model's layers and renames its weights. Raises UserError where weights and settings disagree."""
    take, width, depth = TensorReader(tensors, where), config["hidden_size"], config["num_hidden_layers"]
    kinds = (list(config["block_types"]) * depth)[:depth]
    mixers = {"recurrent": _recurrence(config), "attention": _attention(config)}
    weights = {"norm.norm.weight": 1 + take("model.final_norm.weight", width).float()}
    for i, kind in enumerate(kinds):
        theirs, ours, mixer = f"model.layers.{i}.", f"blocks.{i}.", mixers[kind]
        if isinstance(mixer, Attention):
            maps = attention_maps(take, mixer, f"{theirs}temporal_block.", "weight")
            weights |= {f"{ours}mixer.{name}": value for name, value in maps.items()}
            weights[f"{ours}mixer.out.bias"] = take(f"{theirs}temporal_block.o_proj.bias", width)
        else:
            weights |= {f"{ours}mixer.{k}": v for k, v in take.group(f"{theirs}temporal_block.").items()}
        for part in FEEDFORWARD:
            found = take.group(f"{theirs}mlp_block.{part}_proj.")
            weights |= {f"{ours}feedforward.{part}.{name}": value for name, value in found.items()}
        weights |= {f"{ours}{a}.norm.weight": 1 + take(f"{theirs}{b}.weight", width).float() for a, b in NORMS.items()}
    embedding = take("model.embed_tokens.weight")
    take.drop(["lm_head.weight"])
    take.done()
    block = Block(
        norm="rms", feedforward=config["intermediate_size"] // 2, activation="geglu", eps=config["rms_norm_eps"]
    )
    return Decoder(
        Model(tuple(mixers[kind] for kind in kinds), depth, width, causal=True, block=block),
        embedding,
        None,
        weights,
        scale=float(torch.tensor(width**0.5, dtype=torch.bfloat16)),
        cap=config["logits_soft_cap"],
    )


def _recurrence(config: Mapping[str, Any]) -> RGLRU:
    return RGLRU(heads=config["num_attention_heads"], hidden=config.get("lru_width"), kernel=config["conv1d_width"])


def _attention(config: Mapping[str, Any]) -> Attention:
    rope, heads = config.get("rope_parameters") or {}, config["num_attention_heads"]
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 0.5))
    return Attention(
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        window=config["attention_window_size"],
        rotary="per_head",
        rotary_width=int(config["hidden_size"] // heads * part),
        rotary_base=rope.get("rope_theta", config.get("rope_theta", 10000.0)),
        bias=False,
        out_bias=True,
    )
