"""Tiny random checkpoints in the layout of `mamba_ssm`, and that model once more, written from its equations.

The twin goes step by step in float64, knows no state, and takes tensors by their published names.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Weights = dict[str, Tensor]
Config = dict[str, Any]
WIDTH, VOCABULARY = 16, 40
ATTENTION = {"causal": True, "num_heads": 2, "qkv_proj_bias": False, "out_proj_bias": False}
BASE: Config = {
    "d_model": WIDTH,
    "d_intermediate": 0,
    "n_layer": 3,
    "vocab_size": 37,
    "ssm_cfg": {"layer": "Mamba2", "d_state": 3, "headdim": 8},
    "attn_layer_idx": [],
    "attn_cfg": {},
    "rms_norm": True,
    "residual_in_fp32": True,
    "fused_add_norm": True,
    "pad_vocab_size_multiple": 8,
    "tie_embeddings": True,
}
HYBRID = BASE | {
    "attn_layer_idx": [1],
    "attn_cfg": ATTENTION | {"head_dim": 12, "d_conv": 4, "rotary_emb_dim": 6},
}
TRANSFORMER = BASE | {
    "attn_layer_idx": [0, 1, 2],
    "attn_cfg": ATTENTION | {"rotary_emb_dim": 8, "mlp_dim": 0},
    "d_intermediate": 100,
}
ODD = BASE | {
    "attn_layer_idx": [2],
    "attn_cfg": {"num_heads": 4, "num_heads_kv": 2, "rotary_emb_dim": 4, "rotary_emb_interleaved": True, "d_conv": 2},
    "ssm_cfg": {"d_state": 3, "d_conv": 3, "expand": 3, "dt_rank": 2},
    "rms_norm": False,
    "tie_embeddings": False,
}


def hidden(config: Config) -> int:
    return math.ceil(config["d_intermediate"] / 128) * 128


def random_weights(config: Config, seed: int = 0) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {"backbone.embedding.weight": (VOCABULARY, WIDTH)}
    norms = ("weight",) if config["rms_norm"] else ("weight", "bias")
    for i in range(config["n_layer"]):
        own = (
            _attention_shapes(config["attn_cfg"]) if i in config["attn_layer_idx"] else _space_shapes(config["ssm_cfg"])
        )
        shapes |= {f"backbone.layers.{i}.mixer.{name}": shape for name, shape in own.items()}
        shapes |= {f"backbone.layers.{i}.norm.{name}": (WIDTH,) for name in norms}
        if config["d_intermediate"]:
            shapes |= {f"backbone.layers.{i}.norm2.{name}": (WIDTH,) for name in norms}
            shapes[f"backbone.layers.{i}.mlp.fc1.weight"] = (2 * hidden(config), WIDTH)
            shapes[f"backbone.layers.{i}.mlp.fc2.weight"] = (WIDTH, hidden(config))
    shapes |= {f"backbone.norm_f.{name}": (WIDTH,) for name in norms}
    found = {name: torch.randn(shape, generator=generator) / 2 for name, shape in shapes.items()}
    head = torch.randn(VOCABULARY, WIDTH, generator=generator)
    return found | {"lm_head.weight": found["backbone.embedding.weight"] if config["tie_embeddings"] else head}


def _attention_shapes(c: Config) -> dict[str, tuple[int, ...]]:
    dim = c.get("head_dim", WIDTH // c["num_heads"])
    rows = dim * (c["num_heads"] + 2 * c.get("num_heads_kv", c["num_heads"]))
    shapes: dict[str, tuple[int, ...]] = {"in_proj.weight": (rows, WIDTH)}
    shapes["out_proj.weight"] = (WIDTH, dim * c["num_heads"])
    if c.get("d_conv"):
        shapes |= {"conv1d.weight": (rows, 1, c["d_conv"]), "conv1d.bias": (rows,)}
    if c.get("qkv_proj_bias", True):
        shapes |= {"in_proj.bias": (rows,), "out_proj.bias": (WIDTH,)}
    return shapes


def _space_shapes(c: Config) -> dict[str, tuple[int, ...]]:
    inner, state, taps = c.get("expand", 2) * WIDTH, c["d_state"], c.get("d_conv", 4)
    shapes: dict[str, tuple[int, ...]] = {"out_proj.weight": (WIDTH, inner)}
    if c.get("layer") == "Mamba2":
        mixed, heads = inner + 2 * state, inner // c["headdim"]
        shapes |= dict.fromkeys(("dt_bias", "A_log", "D"), (heads,))
        shapes |= {"norm.weight": (inner,), "in_proj.weight": (inner + mixed + heads, WIDTH)}
        return shapes | {"conv1d.weight": (mixed, 1, taps), "conv1d.bias": (mixed,)}
    rank = c["dt_rank"]
    shapes |= {"in_proj.weight": (2 * inner, WIDTH), "conv1d.weight": (inner, 1, taps), "conv1d.bias": (inner,)}
    shapes |= {"x_proj.weight": (rank + 2 * state, inner), "dt_proj.weight": (inner, rank), "dt_proj.bias": (inner,)}
    return shapes | {"A_log": (inner, state), "D": (inner,)}


def write_native(folder: Path, config: Config, weights: Weights) -> Path:
    """Saves a model as `mamba_ssm`'s save_pretrained does, with a vocabulary of single bytes beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=4))
    torch.save(weights, folder / "pytorch_model.bin")
    write_vocabulary(folder)
    return folder


def write_vocabulary(folder: Path, pieces: tuple[bytes, ...] = ()) -> None:
    listed = [*(bytes([i]) for i in range(256)), *pieces]
    lines = [f"{i} {_literal(piece)} {len(piece)}" for i, piece in enumerate(listed, 1)]
    (folder / "rwkv_vocab_tiny.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _literal(piece: bytes) -> str:
    """A token as text where its bytes are text, as in the published file."""
    try:
        return repr(piece.decode())
    except UnicodeDecodeError:
        return repr(piece)


def naive_logits(config: Config, weights: Weights, ids: list[int], prompt: int | None = None) -> Tensor:
    """The logits, (T, V). prompt: steps whose state was kept as `mamba_ssm` wrongly keeps it, or None."""
    w = {name: value.double() for name, value in weights.items()}
    x = w["backbone.embedding.weight"][ids]
    for i in range(config["n_layer"]):
        own = {
            k.removeprefix(f"backbone.layers.{i}."): v for k, v in w.items() if k.startswith(f"backbone.layers.{i}.")
        }
        mixer = {k.removeprefix("mixer."): v for k, v in own.items() if k.startswith("mixer.")}
        h = _normed(x, own["norm.weight"], own.get("norm.bias"))
        if i in config["attn_layer_idx"]:
            x = x + naive_attention(config["attn_cfg"], mixer, h, prompt)
        elif config["ssm_cfg"].get("layer") == "Mamba2":
            x = x + naive_mamba2(mixer, h)
        else:
            x = x + naive_mamba(mixer, h)
        if config["d_intermediate"]:
            h = _normed(x, own["norm2.weight"], own.get("norm2.bias"))
            value, gate = (h @ own["mlp.fc1.weight"].T).chunk(2, -1)
            x = x + (value * F.silu(gate)) @ own["mlp.fc2.weight"].T
    return _normed(x, w["backbone.norm_f.weight"], w.get("backbone.norm_f.bias")) @ w["lm_head.weight"].T


def _normed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def _convolved(x: Tensor, w: Weights, prompt: int | None = None) -> Tensor:
    """The short convolution, one step and one tap at a time."""
    taps = w["conv1d.weight"][:, 0]
    out: list[Tensor] = []
    for t in range(len(x)):
        total = w["conv1d.bias"].clone()
        for tap in range(taps.shape[1]):
            s = t - taps.shape[1] + 1 + tap
            if s >= 0:
                mistaken = prompt is not None and t >= prompt > s
                total += taps[:, tap] * (out[s] if mistaken else x[s])
        out.append(total)
    return torch.stack(out)


def naive_attention(c: Config, w: Weights, x: Tensor, prompt: int | None) -> Tensor:
    heads, groups = c["num_heads"], c.get("num_heads_kv", c["num_heads"])
    qkv = x @ w["in_proj.weight"].T + w.get("in_proj.bias", torch.zeros(1))
    if c.get("d_conv"):
        qkv = _convolved(qkv, w, prompt)
    dim = qkv.shape[1] // (heads + 2 * groups)
    q, k, v = (part.unflatten(1, (-1, dim)) for part in qkv.split((heads * dim, groups * dim, groups * dim), 1))
    q, k = (_rotated(part, c["rotary_emb_dim"], c.get("rotary_emb_interleaved", False)) for part in (q, k))
    rows = []
    for t in range(len(x)):
        seen = [torch.softmax(k[: t + 1, h * groups // heads] @ q[t, h] / math.sqrt(dim), 0) for h in range(heads)]
        rows.append(torch.cat([p @ v[: t + 1, h * groups // heads] for h, p in enumerate(seen)]))
    return torch.stack(rows) @ w["out_proj.weight"].T + w.get("out_proj.bias", torch.zeros(1))


def _rotated(x: Tensor, turned: int, interleaved: bool) -> Tensor:
    """Rotates x, (T, heads, dim): channel i of the first `turned` with i + turned / 2, or with its neighbour."""
    out = x.clone()
    for t in range(len(x)):
        for i in range(turned // 2):
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + turned // 2)
            angle = t * 10000.0 ** (-2 * i / turned)
            out[t, :, a] = x[t, :, a] * math.cos(angle) - x[t, :, b] * math.sin(angle)
            out[t, :, b] = x[t, :, a] * math.sin(angle) + x[t, :, b] * math.cos(angle)
    return out


def naive_mamba2(w: Weights, x: Tensor) -> Tensor:
    inner, heads = len(w["norm.weight"]), len(w["D"])
    state = (w["conv1d.weight"].shape[0] - inner) // 2
    z, mixed, dt = (x @ w["in_proj.weight"].T).split((inner, inner + 2 * state, heads), 1)
    values, b, c = F.silu(_convolved(mixed, w)).split((inner, state, state), 1)
    dt, memory, rows = F.softplus(dt + w["dt_bias"]), torch.zeros(heads, inner // heads, state).double(), []
    for t in range(len(x)):
        value = values[t].view(heads, -1)
        decay = torch.exp(-dt[t] * w["A_log"].exp())[:, None, None]
        memory = memory * decay + (dt[t, :, None] * value)[:, :, None] * b[t]
        rows.append((memory @ c[t] + w["D"][:, None] * value).flatten())
    return _normed(torch.stack(rows) * F.silu(z), w["norm.weight"], None) @ w["out_proj.weight"].T


def naive_mamba(w: Weights, x: Tensor) -> Tensor:
    inner, state = w["A_log"].shape
    u, z = (x @ w["in_proj.weight"].T).chunk(2, 1)
    u = F.silu(_convolved(u, w))
    low, b, c = (u @ w["x_proj.weight"].T).split((w["dt_proj.weight"].shape[1], state, state), 1)
    dt = F.softplus(low @ w["dt_proj.weight"].T + w["dt_proj.bias"])
    memory, rows = torch.zeros(inner, state).double(), []
    for t in range(len(x)):
        memory = memory * torch.exp(-dt[t, :, None] * w["A_log"].exp()) + (dt[t] * u[t])[:, None] * b[t]
        rows.append(memory @ c[t] + w["D"] * u[t])
    return (torch.stack(rows) * F.silu(z)) @ w["out_proj.weight"].T


def rwkv6_shapes(width: int = 12, head: int = 4, mix: int = 3, decay: int = 5) -> dict[str, tuple[int, ...]]:
    """The tensors of an RWKV-6 of 50 symbols and two layers. mix, decay: ranks of its small maps."""
    shapes: dict[str, tuple[int, ...]] = {"emb.weight": (50, width), "head.weight": (50, width)}
    shapes |= {f"{name}.{kind}": (width,) for name in ("blocks.0.ln0", "ln_out") for kind in ("weight", "bias")}
    for i in range(2):
        b, a, f = f"blocks.{i}.", f"blocks.{i}.att.", f"blocks.{i}.ffn."
        shapes |= {f"{b}{name}.{kind}": (width,) for name in ("ln1", "ln2", "att.ln_x") for kind in ("weight", "bias")}
        shapes |= {f"{a}time_maa_{part}": (1, 1, width) for part in ("x", *"wkvrg")}
        shapes |= {f"{a}time_maa_w1": (width, 5 * mix), f"{a}time_maa_w2": (5, mix, width)}
        shapes |= {f"{a}time_decay": (1, 1, width), f"{a}time_decay_w1": (width, decay)}
        shapes |= {f"{a}time_decay_w2": (decay, width), f"{a}time_faaaa": (width // head, head)}
        shapes |= {f"{a}{m}.weight": (width, width) for m in ("receptance", "key", "value", "gate", "output")}
        shapes |= {f"{f}time_maa_{part}": (1, 1, width) for part in "kr"}
        shapes |= {f"{f}key.weight": (3 * width, width), f"{f}value.weight": (width, 3 * width)}
        shapes[f"{f}receptance.weight"] = (width, width)
    return shapes
