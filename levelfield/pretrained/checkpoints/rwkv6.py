"""Converts RWKV-6 (Finch, peng2024) to our layers, from its authors' .pth or from the format of the hub.

    emb.weight, blocks.0.ln0.*, blocks.{i}.{ln1, ln2}.*, blocks.{i}.att.*, blocks.{i}.ffn.*, ln_out.*, head.weight
    rwkv.embeddings.weight, rwkv.blocks.0.pre_ln.*, rwkv.blocks.{i}.attention.*, ...feed_forward.*, rwkv.ln_out.*, ...

Sizes are those of the weights. One of its layers is two of our blocks, the time mix and the channel mix. Its norm of
the embedded inputs is applied once to the rows of the embedding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from levelfield.mixers.rwkv6 import RWKV6
from levelfield.mixers.rwkv6_channel import RWKV6Channel
from levelfield.pretrained.assemble import Decoder
from levelfield.pretrained.checkpoints.files import TensorReader
from levelfield.spec import Block, Model, UserError

MODEL_TYPES = ("rwkv6",)  # in the format of the hub; the code beside such a model is not run
HUB = {
    r"^rwkv\.embeddings\.": "emb.",
    r"^rwkv\.": "",
    r"\.pre_ln\.": ".ln0.",
    r"\.attention\.": ".att.",
    r"\.feed_forward\.": ".ffn.",
}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether a config.json, or what stands in for it, is of this format."""
    return "pth" in config or config.get("model_type") in MODEL_TYPES


def convert(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """Builds the model's layers and renames its weights. Raises UserError for another RWKV and for missing weights."""
    take = TensorReader({_authors_name(name): value for name, value in tensors.items()}, where)
    if "blocks.0.att.time_maa_w1" not in take.left:
        raise UserError(f"{where} holds no RWKV-6, the one RWKV that can be read: its blocks have no att.time_maa_w1.")
    depth = 1 + max(int(name.split(".")[1]) for name in take.left if name.startswith("blocks."))
    heads, mixes, decays = (
        take.look(f"blocks.0.att.{name}") for name in ("time_faaaa", "time_maa_w1", "time_decay_w1")
    )
    time = RWKV6(heads.shape[1], mixes.shape[1] // 5, decays.shape[1], layers=depth, blocks=2)
    channel = RWKV6Channel(hidden=len(take.look("blocks.0.ffn.key.weight")), layers=depth, blocks=2)
    raw, scale, shift = (take(name).double() for name in ("emb.weight", "blocks.0.ln0.weight", "blocks.0.ln0.bias"))
    width = raw.shape[1]
    embedding = F.layer_norm(raw, (width,), scale, shift)
    weights = {f"norm.norm.{name}": value for name, value in take.group("ln_out.").items()}
    for i in range(depth):
        for block, norm, part in ((2 * i, "ln1", "att"), (2 * i + 1, "ln2", "ffn")):
            norms, mixer = take.group(f"blocks.{i}.{norm}."), take.group(f"blocks.{i}.{part}.")
            weights |= {f"blocks.{block}.norm.norm.{name}": value for name, value in norms.items()}
            weights |= {f"blocks.{block}.mixer.{name}": value for name, value in mixer.items()}
    head = take("head.weight", *embedding.shape)
    take.done()
    return Decoder(Model((time, channel), 2 * depth, width, causal=True, block=Block()), embedding, head, weights)


def _authors_name(name: str) -> str:
    """Translates a name of the hub's format to that of the authors' format."""
    for pattern, ours in HUB.items():
        name = re.sub(pattern, ours, name)
    return name
