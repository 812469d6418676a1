"""LLaMA and its like, saved for the transformers library, in our layers.

    {"model_type": "llama", "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 20, ...}

Sheared-LLaMA is such a model. Positions beyond those of training are turned on as before, as the printed zeros of
huang2024 come from; anything that stretches them is left to transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from levelfield.mixers.attention import Attention
from levelfield.ops.attention.rotary import neighbours_from_halves
from levelfield.pretrained.assemble import Decoder
from levelfield.pretrained.checkpoints.files import Taken
from levelfield.spec import Block, Model

FEEDFORWARD = ("gate", "up", "down")
NORMS = {"norm": "input_layernorm", "norm2": "post_attention_layernorm"}


def recognises(config: Mapping[str, Any]) -> bool:
    turns = config.get("rope_parameters") or config.get("rope_scaling") or {}
    plain = turns.get("rope_type", turns.get("type", "default")) == "default" and turns.keys() <= {
        "rope_theta",
        "rope_type",
        "type",
    }
    return {config.get("model_type"), config.get("hidden_act")} == {"llama", "silu"} and plain


def decoder(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """Raises UserError where weights and settings disagree."""
    take, width, depth = Taken(tensors, where), config["hidden_size"], config["num_hidden_layers"]
    heads, bias = config["num_attention_heads"], config.get("attention_bias", False)
    turns = config.get("rope_parameters") or {}
    mixer = Attention(
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_width=config.get("head_dim") or width // heads,
        rotary="per_head",
        rotary_base=turns.get("rope_theta", config.get("rope_theta", 10000.0)),
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
        take.drop([f"{theirs}self_attn.rotary_emb.inv_freq"])  # of older files: no weights
        for kind in ("weight", "bias") if bias else ("weight",):
            weights |= attention(take, mixer, f"{theirs}self_attn.", f"{ours}mixer.", kind, 0)
        for part in FEEDFORWARD:
            found = take.group(f"{theirs}mlp.{part}_proj.")
            weights |= {f"{ours}feedforward.{part}.{kind}": value for kind, value in found.items()}
        weights |= {f"{ours}{a}.norm.weight": take(f"{theirs}{b}.weight", width) for a, b in NORMS.items()}
    embedding = take("model.embed_tokens.weight")
    head = None if config.get("tie_word_embeddings", False) else take("lm_head.weight", *embedding.shape)
    take.drop(["lm_head.weight"])
    take.done()
    return Decoder(Model((mixer,), depth, width, causal=True, block=block), embedding, head, weights)


def attention(take: Taken, mixer: Attention, theirs: str, ours: str, kind: str, turned: int) -> dict[str, Tensor]:
    """The four maps of a layer, or their biases: rotated pairs lie side by side in ours. turned: channels of a head
    that turn; 0 is all."""
    q, k, v = (take(f"{theirs}{name}_proj.{kind}") for name in "qkv")
    q = neighbours_from_halves(q, mixer.heads, turned or None)
    k = neighbours_from_halves(k, mixer.kv_heads or mixer.heads, turned or None)
    return {f"{ours}qkv.{kind}": torch.cat([q, k, v]), f"{ours}out.{kind}": take(f"{theirs}o_proj.{kind}")}
