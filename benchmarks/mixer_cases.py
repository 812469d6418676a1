"""Lists what `mixers.py` measures: every mixer by itself, its peers, and what the machine could do at best.

A group is a mixer at its reference setting, "LABEL", or a variant or a part of one, "LABEL: what"; its sides do the
same work. The reference setting is the mixer's default at width 256, its bound, where it has one, the length, causal
where it can be; other settings, and why, are in REFERENCE.
"""

from __future__ import annotations

import importlib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from layer_cases import (
    Build,
    dlr,
    our_convolution,
    ours,
    plain_convolution,
    products,
    s4_block,
    s4d_minimal,
    transforms,
)
from measuring import WIDTH, Case, Forward, Work, batch_tokens, passes
from peers import bare, source, stand_in
from recurrence_cases import RECURRENCES
from torch import Tensor, nn
from torch.nn import functional as F

from levelfield.mixers import classes, find
from levelfield.spec import MixerConfig

LENGTHS = (1024, 4096, 16384, 65536)
HEADS = 4


# Ours

REFERENCE: dict[str, tuple[dict[str, Any], str]] = {
    "s5": ({"state": WIDTH}, "as many states as channels, s5-pytorch's default"),
    "longformer": ({}, "bidirectional, as transformers' is"),
    "mega": ({}, "bidirectional, as in the authors' encoders"),
}
BIDIRECTIONAL = frozenset({"longformer", "mega"})


def configured(label: str, length: int) -> MixerConfig:
    """The reference setting for this length."""
    config = replace(find(label), **REFERENCE.get(label, ({}, ""))[0])
    return replace(config, bound=length) if "bound" in {field.name for field in fields(config)} else config


def causal(label: str) -> bool:
    return "causal" in find(label).directions and label not in BIDIRECTIONAL


def mixer(label: str) -> Build:
    def build(peers: Path, length: int) -> Forward:
        generator = torch.Generator().manual_seed(0)
        return configured(label, length).build(WIDTH, causal=causal(label), layer=0, generator=generator)

    return build


def our_average(peers: Path, length: int) -> Forward:
    from levelfield.mixers.mega import Average, Mega

    net = Average(Mega(), WIDTH, False, torch.Generator().manual_seed(0))
    return lambda x: net(x, None)


# Attention


def multihead(peers: Path, length: int) -> Forward:
    """The peer's fused path. It requires a mask even with `is_causal`, and ignores it; this one takes no memory."""
    net = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    mask = torch.zeros(1, 1).expand(length, length)
    return lambda x: net(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)[0]


def transformers(file: str) -> Any:
    return importlib.import_module(f"transformers.models.{file}")


def longformer(peers: Path, length: int) -> Forward:
    """A window of 512 with a global first step. Their attention has no output map; ours has one."""
    module = transformers("longformer.modeling_longformer")
    settings = module.LongformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_window=[512], attention_probs_dropout_prob=0.0
    )
    net, out = module.LongformerSelfAttention(settings, 0), nn.Linear(WIDTH, WIDTH)

    def forward(x: Tensor) -> Tensor:
        mask = torch.zeros(x.shape[:2])
        mask[:, 0] = 10000.0
        seen = net(x, mask, is_index_masked=mask < 0, is_index_global_attn=mask > 0, is_global_attn=True)
        return out(seen[0])

    return forward


def bigbird(peers: Path, length: int) -> Forward:
    module = transformers("big_bird.modeling_big_bird")
    settings = module.BigBirdConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, block_size=64, num_random_blocks=3,
        use_bias=True, max_position_embeddings=max(length, 4096),
    )  # fmt: skip
    net, out = module.BigBirdBlockSparseAttention(settings, seed=0), nn.Linear(WIDTH, WIDTH)

    def forward(x: Tensor) -> Tensor:
        blocks, band, rows, columns = module.BigBirdModel.create_masks_for_block_sparse_attn(
            torch.ones(x.shape[:2]), 64
        )
        return out(net(x, band, rows, columns, blocks, blocks)[0])

    return forward


def reformer(peers: Path, length: int) -> Forward:
    module = transformers("reformer.modeling_reformer")
    settings = module.ReformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_head_size=WIDTH // HEADS, lsh_attn_chunk_length=64,
        num_hashes=4, num_buckets=64, is_decoder=True, lsh_attention_probs_dropout_prob=0.0, hash_seed=1,
        lsh_num_chunks_before=1, lsh_num_chunks_after=0,
    )  # fmt: skip
    net, out = module.LSHSelfAttention(settings, 0), nn.Linear(WIDTH, WIDTH)
    return lambda x: out(net(x).hidden_states)


def performer(peers: Path, length: int) -> Forward:
    """The attention of performer-pytorch between our linear maps, because its modules do not allow a single layer."""
    stand_in("local_attention", LocalAttention=None)
    stand_in("axial_positional_embedding", AxialPositionalEmbedding=None)
    module = importlib.import_module("performer_pytorch.performer_pytorch")
    attend = module.FastAttention(WIDTH // HEADS, nb_features=WIDTH, causal=True)
    qkv, out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in qkv(x).chunk(3, -1))
        return out(attend(q, k, v).transpose(1, 2).flatten(2))

    return forward


def linformer(peers: Path, length: int) -> Forward:
    return importlib.import_module("linformer").LinformerSelfAttention(WIDTH, length, k=256, heads=HEADS)


def _fairseq(peers: Path) -> Path:
    """Loads the files of facebookresearch/mega, and of its utils only the activations."""
    root = peers / "mega"
    bare(root, "fairseq", "fairseq.modules")

    def softmax(x: Tensor, dim: int, onnx_trace: bool = False) -> Tensor:
        return F.softmax(x, dim=dim, dtype=torch.float32)

    stand_in("fairseq.utils", softmax=softmax, get_activation_fn=lambda activation: {"silu": F.silu}[activation])
    vars(importlib.import_module("fairseq")).update(utils=importlib.import_module("fairseq.utils"))
    return root


def mega(chunk: int) -> Build:
    """The peer's layer, which takes (T, B, D), without a norm."""

    def build(peers: Path, length: int) -> Forward:
        _fairseq(peers)
        module = importlib.import_module("fairseq.modules.moving_average_gated_attention")
        net = module.MovingAverageGatedAttention(
            WIDTH, 64, 2 * WIDTH, 16, bidirectional=True, chunk_size=chunk, prenorm=False, max_positions=length
        )
        net.norm = nn.Identity()
        return lambda x: net(x.transpose(0, 1))[0].transpose(0, 1)

    return build


def mega_average(peers: Path, length: int) -> Forward:
    _fairseq(peers)
    module = importlib.import_module("fairseq.modules.exponential_moving_average")
    net = module.MultiHeadEMA(WIDTH, ndim=16, bidirectional=True)
    return lambda x: net(x.transpose(0, 1)).transpose(0, 1)


# Recurrences with the maps around them


def mamba(peers: Path, length: int) -> Forward:
    module = transformers("mamba.modeling_mamba")
    return module.MambaMixer(module.MambaConfig(hidden_size=WIDTH), 0)


def mamba2(peers: Path, length: int) -> Forward:
    module = transformers("mamba2.modeling_mamba2")
    settings = module.Mamba2Config(hidden_size=WIDTH, num_heads=8, head_dim=64, state_size=128, n_groups=1, expand=2)
    return module.Mamba2Mixer(settings, 0)


def rglru(peers: Path, length: int) -> Forward:
    module = transformers("recurrent_gemma.modeling_recurrent_gemma")
    settings = module.RecurrentGemmaConfig(hidden_size=WIDTH, lru_width=WIDTH, num_attention_heads=HEADS)
    net, steps = module.RecurrentGemmaRecurrentBlock(settings, 0), torch.arange(length)[None]
    return lambda x: net(x, steps.expand(len(x), -1), None, use_cache=False)[0]


def griffin(peers: Path, length: int) -> Forward:
    """The authors' block, with only those files of its package that run on torch."""
    bare(peers / "recurrentgemma", "recurrentgemma", "recurrentgemma.torch")
    module = importlib.import_module("recurrentgemma.torch.modules")
    net = module.RecurrentBlock(WIDTH, HEADS, WIDTH)
    steps = torch.arange(length)[None]
    return lambda x: net(x, steps.expand(len(x), -1), return_cache=False)


def gated_deltanet(peers: Path, length: int) -> Forward:
    module = transformers("qwen3_next.modeling_qwen3_next")
    settings = module.Qwen3NextConfig(
        hidden_size=WIDTH, num_hidden_layers=1, layer_types=["linear_attention"], linear_key_head_dim=48,
        linear_num_key_heads=HEADS, linear_num_value_heads=HEADS, linear_value_head_dim=96,
    )  # fmt: skip
    return module.Qwen3NextGatedDeltaNet(settings, 0)


def mlstm(peers: Path, length: int) -> Forward:
    bare(peers / "xlstm", "xlstm", "xlstm.blocks", "xlstm.blocks.mlstm")
    module = importlib.import_module("xlstm.blocks.mlstm.layer")
    settings = module.mLSTMLayerConfig(embedding_dim=WIDTH, num_heads=HEADS, context_length=length)
    return module.mLSTMLayer(settings)


# State spaces and long convolutions


def s5(states: int) -> Build:
    """Their layer with the GELU and the gate of their block."""

    def build(peers: Path, length: int) -> Forward:
        bare(peers / "s5-pytorch", "s5")
        module = importlib.import_module("s5.s5_model")
        net, gate = module.S5(WIDTH, states, bcInit="complex_normal"), nn.Linear(WIDTH, WIDTH)

        def forward(x: Tensor) -> Tensor:
            y = F.gelu(net(x))
            return y * torch.sigmoid(gate(y))

        return forward

    return build


def sgconv(peers: Path, length: int) -> Forward:
    module = source(peers / "SGConv" / "gconv_standalone.py")
    return module.GConv(WIDTH, l_max=length, postact="glu", kernel_dim=64, transposed=False)


def hyena(peers: Path, length: int) -> Forward:
    module = source(peers / "safari" / "standalone_hyena.py")
    return module.HyenaOperator(WIDTH, l_max=length, order=2, filter_order=64, emb_dim=33, w=14)


# Limits


def traffic(peers: Path, length: int) -> tuple[Work, int]:
    """Reading and writing one layer's activations out of cache: 64 copies of 64 MiB, since clocks of CPU time may tick
    in steps longer than one of them takes."""
    steps, times = (64 << 20) // (4 * WIDTH), 64
    activations, copy = torch.randn(steps, WIDTH), torch.empty(steps, WIDTH)
    return lambda: [copy.copy_(activations) for _ in range(times)], times * steps


def one_map(peers: Path, length: int) -> Forward:
    return nn.Linear(WIDTH, WIDTH, bias=False)


# The table


PEERS: dict[str, dict[str, Build]] = {
    "attention": {"nn.MultiheadAttention": multihead},
    "longformer": {"transformers": longformer},
    "bigbird": {"transformers": bigbird},
    "reformer": {"transformers": reformer},
    "performer": {"performer-pytorch": performer},
    "linformer": {"linformer": linformer},
    "mega": {"mega repository": mega(-1)},
    "s4": {"s4 repository": s4_block()},
    "dlr": {"not-from-scratch": dlr},
    "s5": {"s5-pytorch": s5(WIDTH), "s5-pytorch, half the states": s5(WIDTH // 2)},
    "sgconv": {"SGConv repository": sgconv},
    "hyena": {"safari": hyena},
    "rglru": {"transformers": rglru, "recurrentgemma": griffin},
    "mamba": {"transformers": mamba},
    "mamba2": {"transformers": mamba2},
    "gated_deltanet": {"transformers": gated_deltanet},
    "mlstm": {"xlstm": mlstm},
}
_DIAGONAL: dict[str, Any] = {"form": "diagonal", "init": "lin", "discretisation": "zoh"}
VARIANTS: dict[str, dict[str, Build]] = {
    "s4: diagonal": {
        "ours": ours("s4", True, **_DIAGONAL),
        "s4 repository": s4_block(mode="diag", init="diag-lin"),
        "s4 repository, minimal": s4d_minimal,
    },
    "mega: chunks of 128": {"ours": ours("mega", False, chunk=128), "mega repository": mega(128)},
    "mega: average": {"ours": our_average, "mega repository": mega_average},
    "convolution: kernel given": {"ours": our_convolution, "plain torch": plain_convolution},
}
LABELS = (*(config.label for config in classes()), "convolution")


def _of(label: str) -> list[Case]:
    """The names of all groups of a mixer."""
    groups = {label: {"ours": mixer(label)} | PEERS.get(label, {})} if label != "convolution" else {}
    groups |= {group: sides for group, sides in VARIANTS.items() if group.startswith(f"{label}:")}
    cases = [
        Case(group, side, passes(build, batch_tokens))
        for group, sides in groups.items()
        for side, build in sides.items()
    ]
    cases += [case for case in RECURRENCES if case.group.startswith(f"{label}:")]
    return [replace(case, lengths=LENGTHS) for case in cases]


PRODUCTS, TRANSFORMS, TRAFFIC, MAP = (
    f"limit: {what}"
    for what in ("matrix products of 256 to 512", "five transforms", "a copy of the activations", "one linear map")
)
CASES: tuple[Case, ...] = (
    Case(PRODUCTS, "limit", products, LENGTHS[:1]),
    Case(TRAFFIC, "limit", traffic, LENGTHS[:1]),
    Case(MAP, "limit", passes(one_map, batch_tokens), LENGTHS[:1]),
    Case(TRANSFORMS, "limit", transforms, LENGTHS),
    *(case for label in LABELS for case in _of(label)),
)
