"""RWKV-6 (Eagle and Finch's second, peng2024) in our layers, from its authors' .pth or from the hub's layout.

    emb.weight, blocks.0.ln0.*, blocks.{i}.{ln1, ln2}.*, blocks.{i}.att.*, blocks.{i}.ffn.*, ln_out.*, head.weight
    rwkv.embeddings.weight, rwkv.blocks.0.pre_ln.*, rwkv.blocks.{i}.attention.*, ...feed_forward.*, rwkv.ln_out.*, ...

Sizes are read off the weights. A layer is two of our blocks, the time mix and the channel mix; the norm that embedded
inputs go through first is applied to the rows of the embedding, once.
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
from levelfield.pretrained.checkpoints.files import Taken
from levelfield.spec import Block, Model, UserError

KINDS = ("rwkv6",)  # model_type of the hub's layout, whose code is its own and is not run
HUB = {
    r"^rwkv\.embeddings\.": "emb.",
    r"^rwkv\.": "",
    r"\.pre_ln\.": ".ln0.",
    r"\.attention\.": ".att.",
    r"\.feed_forward\.": ".ffn.",
}


def recognises(config: Mapping[str, Any]) -> bool:
    return "pth" in config or config.get("model_type") in KINDS


def decoder(config: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """Raises UserError where the weights are of another RWKV, or incomplete."""
    take = Taken({_named(name): value for name, value in tensors.items()}, where)
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


def _named(name: str) -> str:
    """By the authors' names."""
    for pattern, ours in HUB.items():
        name = re.sub(pattern, ours, name)
    return name
