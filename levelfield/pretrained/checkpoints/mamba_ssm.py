"""Converts checkpoints of `mamba_ssm` (config.json, pytorch_model.bin) to our layers, which run on any machine.

    {"d_model": 2560, "n_layer": 64, "ssm_cfg": {"layer": "Mamba2"}, "attn_layer_idx": [9, 18, 27, 36, 45, 56],
     "attn_cfg": {"num_heads": 30, "head_dim": 128, "d_conv": 4, "rotary_emb_dim": 64, ...}, ...}

mamba2-2.7b, mamba2attn-2.7b, transformerpp-2.7b and the first Mamba models are in this format. A layer is attention
where its index is in `attn_layer_idx`, and otherwise of the type that `ssm_cfg` names, Mamba if it names none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from levelfield.mixers.attention import Attention
from levelfield.mixers.mamba import Mamba
from levelfield.mixers.mamba2 import Mamba2
from levelfield.ops.attention.rotary import neighbours_from_halves
from levelfield.pretrained.assemble import Decoder
from levelfield.pretrained.checkpoints.files import TensorReader
from levelfield.spec import Block, MixerConfig, Model, UserError

EPS = 1e-5
MULTIPLE = 128  # the hidden width of a feed-forward is rounded up to a multiple of it
START = {
    "dt_min",
    "dt_max",
    "dt_init",
    "dt_scale",
    "dt_init_floor",
    "A_init_range",
    "conv_init",
}  # used at initialisation only
SPEED = {"chunk_size", "use_mem_eff_path", "use_fast_path"}  # change no result


def matches(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of this format."""
    return {"d_model", "n_layer", "vocab_size"} <= config.keys() and "model_type" not in config


def convert(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """Builds the model's layers and renames its weights.

    Raises UserError for a setting that our layers lack, and where weights and settings disagree.
    """
    model, take = model_of(config, where), TensorReader(tensors, where)
    depth, width, hidden = model.depth, model.width, model.block.feedforward
    weights: dict[str, Tensor] = {}
    for i in range(depth):
        mixer = model.mixers[i]
        theirs = take.group(f"backbone.layers.{i}.mixer.")
        ours = attention_weights(mixer, width, theirs, config) if isinstance(mixer, Attention) else theirs
        weights |= {f"blocks.{i}.mixer.{name}": value for name, value in ours.items()}
        for norm in ("norm", "norm2") if hidden else ("norm",):
            theirs = take.group(f"backbone.layers.{i}.{norm}.")
            weights |= {f"blocks.{i}.{norm}.norm.{name}": value for name, value in theirs.items()}
        if hidden:
            up, gate = take(f"backbone.layers.{i}.mlp.fc1.weight", 2 * hidden, width).chunk(2)
            parts = {"up": up, "gate": gate, "down": take(f"backbone.layers.{i}.mlp.fc2.weight", width, hidden)}
            weights |= {f"blocks.{i}.feedforward.{name}.weight": value for name, value in parts.items()}
    weights |= {f"norm.norm.{name}": value for name, value in take.group("backbone.norm_f.").items()}
    embedding = take("backbone.embedding.weight")
    head = None if config.get("tie_embeddings", True) else take("lm_head.weight", *embedding.shape)
    take.drop(["lm_head.weight"])
    take.done()
    return Decoder(model, embedding, head, weights)


def model_of(config: Mapping[str, Any], where: str) -> Model:
    """Builds the architecture that a config.json describes. Raises UserError for a setting that our layers lack."""
    attention, ssm, depth = config.get("attn_cfg") or {}, config.get("ssm_cfg") or {}, config["n_layer"]
    places = set(config.get("attn_layer_idx") or ())
    mixers = tuple(_attention(attention, where) if i in places else _state_space(ssm, where) for i in range(depth))
    block = Block(norm="rms" if config.get("rms_norm", True) else "layer", eps=EPS)
    if inner := config.get("d_intermediate", 0):
        hidden = math.ceil(inner / MULTIPLE) * MULTIPLE
        block = replace(block, feedforward=hidden, activation="swiglu", bias=False)
    return Model(mixers, depth, config["d_model"], causal=True, block=block)


def _state_space(settings: Mapping[str, Any], where: str) -> MixerConfig:
    """Builds the state-space layer that `ssm_cfg` describes."""
    kind, given = settings.get("layer", "Mamba1"), {k: v for k, v in settings.items() if k not in START | SPEED}
    readers = {"Mamba1": _mamba, "Mamba2": _mamba2}
    if kind not in readers:
        raise UserError(f"{where} is made of {kind} layers: {' and '.join(readers)} can be read.")
    given.pop("layer", None)
    mixer = readers[kind](given)
    if given:
        name, value = next(iter(given.items()))
        raise UserError(f"{where} has {kind} layers with {name}={value!r}, which ours do not have.")
    return mixer


def _mamba(given: dict[str, Any]) -> Mamba:
    _drop_usual(given, {"bias": False, "conv_bias": True})
    rank = given.pop("dt_rank", "auto")
    return Mamba(
        state=given.pop("d_state", 16),
        expand=given.pop("expand", 2),
        conv=given.pop("d_conv", 4),
        rank=None if rank == "auto" else rank,
    )


def _mamba2(given: dict[str, Any]) -> Mamba2:
    usual = {"bias": False, "conv_bias": True, "rmsnorm": True, "norm_before_gate": False, "D_has_hdim": False}
    _drop_usual(given, usual | {"d_ssm": None, "dt_limit": (0.0, math.inf)})
    return Mamba2(
        state=given.pop("d_state", 128),
        expand=given.pop("expand", 2),
        head=given.pop("headdim", 64),
        groups=given.pop("ngroups", 1),
        conv=given.pop("d_conv", 4),
    )


def _drop_usual(given: dict[str, Any], usual: Mapping[str, Any]) -> None:
    """Removes settings that have the value that our layers have."""
    for name, value in usual.items():
        found = given.get(name, value)
        if (tuple(found) if isinstance(found, list) else found) == value:
            given.pop(name, None)


def _attention(settings: Mapping[str, Any], where: str) -> Attention:
    """Builds the attention that `attn_cfg` describes, the MHA of `mamba_ssm`."""
    given = dict(settings)
    _drop_usual(given, {"softmax_scale": None, "mlp_dim": 0, "causal": True})
    rotary_width, bias = given.pop("rotary_emb_dim", 0), given.pop("qkv_proj_bias", True)
    out_bias = given.pop("out_proj_bias", True)
    given.pop("rotary_emb_interleaved", None)
    mixer = Attention(
        heads=given.pop("num_heads"),
        kv_heads=given.pop("num_heads_kv", None),
        head_width=given.pop("head_dim", None),
        rotary="per_head" if rotary_width else "none",
        rotary_width=rotary_width or None,
        rotary_base=given.pop("rotary_emb_base", 10000.0),
        short_conv=given.pop("d_conv", 0),
        bias=bias,
        out_bias=None if out_bias == bias else out_bias,
    )
    if given:
        name, value = next(iter(given.items()))
        raise UserError(f"{where} has attention with {name}={value!r}, which ours does not have.")
    return mixer


def attention_weights(
    mixer: Attention, width: int, theirs: Mapping[str, Tensor], config: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Renames the weights of MHA.

    The two channels of a rotary pair are neighbours in our layers, so rows of queries and keys are reordered, and with
    them the channels of the convolution.
    """
    queries, keys = mixer.sizes(width)
    halves = mixer.rotary != "none" and not config["attn_cfg"].get("rotary_emb_interleaved", False)

    def reordered(rows: Tensor) -> Tensor:
        if not halves:
            return rows
        q, k, v = rows.split((queries, keys, keys))
        q = neighbours_from_halves(q, mixer.heads, mixer.rotary_width)
        return torch.cat([q, neighbours_from_halves(k, mixer.kv_heads or mixer.heads, mixer.rotary_width), v])

    names = {"in_proj": "qkv", "conv1d": "short", "out_proj": "out"}
    ours = {}
    for name, value in theirs.items():
        part, kind = name.split(".", 1)
        moved = reordered(value) if part != "out_proj" and len(value) == queries + 2 * keys else value
        ours[f"{names.get(part, part)}.{kind}"] = moved
    return ours
