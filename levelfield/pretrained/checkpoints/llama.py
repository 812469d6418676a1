"""Converts LLaMA and similar models, saved for the transformers library, to our layers.

    {"model_type": "llama", "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 20, ...}

Sheared-LLaMA is such a model. Rotary positions beyond those of training are extrapolated, as they were for the zeros
that huang2024 prints. A model with scaled rotary positions runs in transformers instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from levelfield.mixers.attention import Attention
from levelfield.ops.attention.rotary import neighbours_from_halves
from levelfield.pretrained.assemble import Decoder
from levelfield.pretrained.checkpoints.files import TensorReader
from levelfield.spec import Block, Model

FEEDFORWARD = ("gate", "up", "down")
NORMS = {"norm": "input_layernorm", "norm2": "post_attention_layernorm"}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of this format, with no setting that our layers lack."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    plain = rope.get("rope_type", rope.get("type", "default")) == "default" and rope.keys() <= {
        "rope_theta",
        "rope_type",
        "type",
    }
    return {config.get("model_type"), config.get("hidden_act")} == {"llama", "silu"} and plain


def convert(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """Builds the model's layers and renames its weights. Raises UserError where weights and settings disagree."""
    take, width, depth = TensorReader(tensors, where), config["hidden_size"], config["num_hidden_layers"]
    heads, bias = config["num_attention_heads"], config.get("attention_bias", False)
    rope = config.get("rope_parameters") or {}
    mixer = Attention(
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_width=config.get("head_dim") or width // heads,
        rotary="per_head",
        rotary_base=rope.get("rope_theta", config.get("rope_theta", 10000.0)),
        bias=bias,
    )
    block = Block(
        norm="rms",
        feedforward=config["intermediate_size"],
        activation="swiglu",
        bias=config.get("mlp_bias", False),
        eps=config["rms_norm_eps"],
    )
    weights = {"norm.norm.weight": take("model.norm.weight", width)}
    for i in range(depth):
        theirs, ours = f"model.layers.{i}.", f"blocks.{i}."
        take.drop([f"{theirs}self_attn.rotary_emb.inv_freq"])  # in older files; it holds no weights
        for kind in ("weight", "bias") if bias else ("weight",):
            maps = attention_maps(take, mixer, f"{theirs}self_attn.", kind)
            weights |= {f"{ours}mixer.{name}": value for name, value in maps.items()}
        for part in FEEDFORWARD:
            found = take.group(f"{theirs}mlp.{part}_proj.")
            weights |= {f"{ours}feedforward.{part}.{kind}": value for kind, value in found.items()}
        weights |= {f"{ours}{a}.norm.weight": take(f"{theirs}{b}.weight", width) for a, b in NORMS.items()}
    embedding = take("model.embed_tokens.weight")
    head = None if config.get("tie_word_embeddings", False) else take("lm_head.weight", *embedding.shape)
    take.drop(["lm_head.weight"])
    take.done()
    return Decoder(Model((mixer,), depth, width, causal=True, block=block), embedding, head, weights)


def attention_maps(take: TensorReader, mixer: Attention, prefix: str, kind: str) -> dict[str, Tensor]:
    """Takes the four maps of an attention layer, or their biases, under our names: `qkv` and `out`.

    prefix: of their names in the checkpoint. kind: "weight", (out, in), or "bias", (out,). The two channels of a rotary
    pair are neighbours in our layers, so rows of queries and keys are reordered.
    """
    q, k, v = (take(f"{prefix}{name}_proj.{kind}") for name in "qkv")
    q = neighbours_from_halves(q, mixer.heads, mixer.rotary_width)
    k = neighbours_from_halves(k, mixer.kv_heads or mixer.heads, mixer.rotary_width)
    return {f"qkv.{kind}": torch.cat([q, k, v]), f"out.{kind}": take(f"{prefix}o_proj.{kind}")}
