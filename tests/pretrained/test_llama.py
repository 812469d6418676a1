"""Attention and Block as LLaMA and Transformer++, against a LLaMA written from its equations and, where it is
installed, against that of the transformers library."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from levelfield.mixers.attention import Attention, AttentionLayer
from levelfield.model import Net
from levelfield.ops.attention.rotary import neighbours_from_halves
from levelfield.spec import Block, Head, Model, Tokens

WIDTH, HEADS, KV_HEADS, HIDDEN, DEPTH, EPS = 24, 6, 2, 40, 2, 1e-5
LLAMA = Model(
    mixers=(Attention(heads=HEADS, kv_heads=KV_HEADS, rotary="per_head", bias=False),),
    depth=DEPTH,
    width=WIDTH,
    causal=True,
    block=Block(norm="rms", feedforward=HIDDEN, activation="swiglu", bias=False, eps=EPS),
)
Weights = dict[str, Tensor]


def _weights() -> Weights:
    """Under the names of published checkpoints, in float64."""
    generator, keys = Generator().manual_seed(0), WIDTH // HEADS * KV_HEADS
    shapes = {"embed_tokens.weight": (11, WIDTH), "norm.weight": (WIDTH,)}
    for i in range(DEPTH):
        shapes |= {f"layers.{i}.self_attn.{n}_proj.weight": (WIDTH, WIDTH) for n in ("q", "o")}
        shapes |= {f"layers.{i}.self_attn.{n}_proj.weight": (keys, WIDTH) for n in ("k", "v")}
        shapes |= {f"layers.{i}.mlp.{n}_proj.weight": (HIDDEN, WIDTH) for n in ("gate", "up")}
        shapes |= {f"layers.{i}.mlp.down_proj.weight": (WIDTH, HIDDEN)}
        shapes |= {f"layers.{i}.{n}_layernorm.weight": (WIDTH,) for n in ("input", "post_attention")}
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) / 5 for name, shape in shapes.items()}


def _ours(theirs: Weights) -> Net:
    net = Net(LLAMA, Tokens(9), (Head("next", 9, "step"),), mask_flag=False, seed=0).double().eval()
    ours = {"encoder.embed.weight": theirs["embed_tokens.weight"], "norm.norm.weight": theirs["norm.weight"]}
    for i in range(DEPTH):
        q, k, v, o = (theirs[f"layers.{i}.self_attn.{n}_proj.weight"] for n in "qkvo")
        q, k = neighbours_from_halves(q, HEADS), neighbours_from_halves(k, KV_HEADS)
        ours |= {f"blocks.{i}.mixer.qkv.weight": torch.cat([q, k, v]), f"blocks.{i}.mixer.out.weight": o}
        ours[f"blocks.{i}.norm.norm.weight"] = theirs[f"layers.{i}.input_layernorm.weight"]
        ours[f"blocks.{i}.norm2.norm.weight"] = theirs[f"layers.{i}.post_attention_layernorm.weight"]
        for name in ("gate", "up", "down"):
            ours[f"blocks.{i}.feedforward.{name}.weight"] = theirs[f"layers.{i}.mlp.{name}_proj.weight"]
    net.load_trunk(ours)
    return net


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def _halves_turned(x: Tensor, step: int) -> Tensor:
    """touvron2023's code: channel i of a head is paired with channel i + dim / 2. x: (heads, dim)."""
    half = x.shape[-1] // 2
    angles = step * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def llama_naive(w: Weights, ids: Tensor) -> Tensor:
    """One step, one head, one key at a time. ids: (T,) -> (T, D)."""
    x, dim = w["embed_tokens.weight"][ids], WIDTH // HEADS
    for i in range(DEPTH):
        h = _norm(x, w[f"layers.{i}.input_layernorm.weight"])
        q, k, v = (h @ w[f"layers.{i}.self_attn.{n}_proj.weight"].T for n in "qkv")
        q = torch.stack([_halves_turned(z.view(HEADS, dim), t) for t, z in enumerate(q)])
        k = torch.stack([_halves_turned(z.view(KV_HEADS, dim), t) for t, z in enumerate(k)])
        rows = []
        for t in range(len(ids)):
            parts = []
            for head in range(HEADS):
                mine = head // (HEADS // KV_HEADS)
                seen = torch.softmax(k[: t + 1, mine] @ q[t, head] / math.sqrt(dim), 0)
                parts.append(seen @ v[: t + 1].view(t + 1, KV_HEADS, dim)[:, mine])
            rows.append(torch.cat(parts))
        x = x + torch.stack(rows) @ w[f"layers.{i}.self_attn.o_proj.weight"].T
        h = _norm(x, w[f"layers.{i}.post_attention_layernorm.weight"])
        gate, up, down = (w[f"layers.{i}.mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
        x = x + (F.silu(h @ gate.T) * (h @ up.T)) @ down.T
    return _norm(x, w["norm.weight"])


def test_it_is_llama_written_out() -> None:
    weights, ids = _weights(), torch.tensor([2, 5, 3, 3, 8, 2, 4])
    torch.testing.assert_close(
        _ours(weights).hidden_states(ids[None], None)[0], llama_naive(weights, ids), rtol=1e-10, atol=1e-10
    )


def test_it_is_the_model_of_transformers_and_so_is_its_cache() -> None:
    transformers: Any = pytest.importorskip("transformers", reason="compares with transformers' LlamaModel")
    theirs = transformers.LlamaModel(
        transformers.LlamaConfig(
            vocab_size=11,
            hidden_size=WIDTH,
            intermediate_size=HIDDEN,
            num_hidden_layers=DEPTH,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            rms_norm_eps=EPS,
        )
    )
    weights = _weights()
    theirs = theirs.double().eval()
    theirs.load_state_dict(weights)
    net, ids = _ours(weights), torch.randint(2, 11, (3, 150), generator=Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(ids).last_hidden_state
        torch.testing.assert_close(
            net.hidden_states(ids, None), expected, rtol=1e-5, atol=1e-5
        )  # its angles are float32
        first, state = net.step(ids[:, :100], None)
        rest, _ = net.step(ids[:, 100:], state)
        torch.testing.assert_close(torch.cat([first, rest], 1), expected, rtol=1e-5, atol=1e-5)
        print(f"largest error {(net.features(ids, None) - expected).abs().max():.1e}")


def test_it_is_the_local_attention_of_recurrentgemma() -> None:
    """One head of keys for four of queries, half of each head turned, a window, and a bias at the end alone."""
    pytest.importorskip("transformers", reason="compares with transformers' RecurrentGemmaAttention")
    from transformers.models.recurrent_gemma import modeling_recurrent_gemma as source  # pyright: ignore

    config = source.RecurrentGemmaConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=1)
    config._attn_implementation = "sdpa"
    theirs = source.RecurrentGemmaAttention(config, 0).double()
    ours = Attention(heads=4, kv_heads=1, window=6, rotary="per_head", rotary_width=4, bias=False, out_bias=True).build(
        32, causal=True, layer=0, generator=Generator()
    )
    assert isinstance(ours, AttentionLayer)
    ours = ours.double()
    q, k, v, o = theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.o_proj
    maps = neighbours_from_halves(q.weight, 4, 4), neighbours_from_halves(k.weight, 1, 4), v.weight
    ours.load_state_dict({"qkv.weight": torch.cat(maps), "out.weight": o.weight, "out.bias": o.bias})
    x, steps = torch.randn(2, 20, 32, dtype=torch.float64, generator=Generator().manual_seed(0)), torch.arange(20)
    near = (steps <= steps[:, None]) & (steps > steps[:, None] - 6)
    with torch.no_grad():
        expected, _ = theirs(x, steps[None], near[None, None])
        torch.testing.assert_close(ours(x), expected, rtol=1e-5, atol=1e-6)
        print(f"largest error {(ours(x) - expected).abs().max():.1e}")
