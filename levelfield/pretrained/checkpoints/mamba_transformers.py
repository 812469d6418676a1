"""Converts Mamba and Mamba-2, saved for the transformers library, to our layers.

    {"model_type": "mamba2", "hidden_size": 2560, "num_heads": 80, "head_dim": 64, "n_groups": 1, ...}

Tensors have the names of `mamba_ssm`; only the settings are called otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from levelfield.pretrained.assemble import Decoder
from levelfield.pretrained.checkpoints import mamba_ssm

LAYERS = {"mamba": "Mamba1", "mamba2": "Mamba2"}
USUAL = {"use_bias": False, "use_conv_bias": True, "hidden_act": "silu", "layer_norm_epsilon": mamba_ssm.EPS}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of this format, with no setting that our layers lack."""
    usual = all(config.get(name, value) == value for name, value in USUAL.items())
    lowest, highest = config.get("time_step_limit") or (0.0, math.inf)
    open_ended = highest is None or isinstance(highest, Mapping) or math.isinf(float(highest))  # JSON has no infinity
    return config.get("model_type") in LAYERS and usual and lowest == 0 and open_ended


def convert(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """Builds the model's layers and renames its weights. Raises UserError where weights and settings disagree."""
    layer = {
        "layer": LAYERS[config["model_type"]],
        "d_state": config["state_size"],
        "expand": config["expand"],
        "d_conv": config["conv_kernel"],
    }
    if "head_dim" in config:
        layer |= {"headdim": config["head_dim"], "ngroups": config["n_groups"]}
    else:
        layer |= {"dt_rank": config.get("time_step_rank", "auto")}
    settings = {
        "d_model": config["hidden_size"],
        "n_layer": config["num_hidden_layers"],
        "ssm_cfg": layer,
        "tie_embeddings": config.get("tie_word_embeddings", "lm_head.weight" not in tensors),
    }
    names = {"backbone.embeddings.weight": "backbone.embedding.weight"}
    return mamba_ssm.convert(settings, {names.get(name, name): value for name, value in tensors.items()}, where)
