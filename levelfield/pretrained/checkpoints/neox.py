"""Converts GPT-NeoX models (Black et al. 2022), saved for the transformers library, to our layers: Pythia is one.

    {"model_type": "gpt_neox", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, ...}

Attention and feed-forward stand side by side, and the first channels of each head, a quarter in Pythia, are rotated.
Queries, keys and values are one map whose rows are sorted by head. A model with scaled rotary positions or another
GELU runs in transformers instead.
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

KINDS = ("weight", "bias")
PARTS = {  # ours: theirs, but for the map of queries, keys and values
    "norm.norm": "input_layernorm",
    "norm2.norm": "post_attention_layernorm",
    "mixer.out": "attention.dense",
    "feedforward.up": "mlp.dense_h_to_4h",
    "feedforward.down": "mlp.dense_4h_to_h",
}
BUFFERS = ("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")  # in older files; no weights
ROPE = {"rope_theta", "rope_type", "type", "partial_rotary_factor"}
ROTATED = 0.25  # share of a head's channels where a config.json does not say


def matches(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of this format, with no setting that our layers lack."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    plain = rope.get("rope_type", rope.get("type", "default")) == "default" and rope.keys() <= ROPE
    gelu = config.get("hidden_act", "gelu") == "gelu" and config.get("attention_bias", True)
    return config.get("model_type") == "gpt_neox" and gelu and plain


def convert(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """Builds the model's layers and renames its weights. Raises UserError where weights and settings disagree."""
    take, width, depth = TensorReader(tensors, where), config["hidden_size"], config["num_hidden_layers"]
    heads, rope = config["num_attention_heads"], config.get("rope_parameters") or {}
    share = rope.get("partial_rotary_factor", config.get("rotary_pct", ROTATED))
    mixer = Attention(
        heads=heads,
        rotary="per_head",
        rotary_base=float(rope.get("rope_theta", config.get("rotary_emb_base", 10000))),
        rotary_width=int(width // heads * share),
    )
    block = Block(
        feedforward=config["intermediate_size"],
        eps=config.get("layer_norm_eps", 1e-5),
        parallel=config.get("use_parallel_residual", True),
    )
    weights = {f"norm.norm.{kind}": take(f"gpt_neox.final_layer_norm.{kind}", width) for kind in KINDS}
    for i in range(depth):
        theirs, ours = f"gpt_neox.layers.{i}.", f"blocks.{i}."
        take.drop([theirs + name for name in BUFFERS])
        for kind in KINDS:
            rows = take(f"{theirs}attention.query_key_value.{kind}")
            weights[f"{ours}mixer.qkv.{kind}"] = _by_kind(rows, heads, mixer.rotary_width)
            weights |= {f"{ours}{name}.{kind}": take(f"{theirs}{part}.{kind}") for name, part in PARTS.items()}
    embedding = take("gpt_neox.embed_in.weight")
    head = None if config.get("tie_word_embeddings", False) else take("embed_out.weight", *embedding.shape)
    take.drop(["embed_out.weight"])
    take.done()
    return Decoder(Model((mixer,), depth, width, causal=True, block=block), embedding, head, weights)


def _by_kind(rows: Tensor, heads: int, turned: int | None) -> Tensor:
    """Sorts rows of (head, kind, channel) by kind, queries first, and pairs the rotated ones as our layers do.

    rows: (3 D, ...) -> the same shape. turned: rotated channels of a head.
    """
    q, k, v = (part.flatten(0, 1) for part in rows.unflatten(0, (heads, 3, -1)).unbind(1))
    return torch.cat([neighbours_from_halves(q, heads, turned), neighbours_from_halves(k, heads, turned), v])
