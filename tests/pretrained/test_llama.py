"""Attention and Block as LLaMA and Transformer++, against a LLaMA written from its equations and against that of
transformers."""

from __future__ import annotations

import math

import kept
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from levelfield.mixers.attention import Attention, AttentionLayer
from levelfield.model import Network
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


def _ours(theirs: Weights) -> Network:
    net = Network(LLAMA, Tokens(9), (Head("next", 9, "step"),), mask_flag=False, seed=0).double().eval()
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


@kept.modes
def test_it_is_the_model_of_transformers_and_so_is_its_cache(mode: kept.Mode) -> None:
    theirs = kept.case("llama", mode)
    net, ids = _ours(theirs.weights), theirs["ids"]
    with torch.no_grad():
        torch.testing.assert_close(
            net.hidden_states(ids, None), theirs["y"], rtol=1e-5, atol=1e-5
        )  # its angles are float32
        first, state = net.step(ids[:, :40], None)
        rest, _ = net.step(ids[:, 40:], state)
        torch.testing.assert_close(torch.cat([first, rest], 1), theirs["y"], rtol=1e-5, atol=1e-5)


@kept.modes
def test_it_is_the_local_attention_of_recurrentgemma(mode: kept.Mode) -> None:
    """One head of keys for four of queries, half of each head turned, a window, and a bias at the end alone."""
    theirs = kept.case("recurrentgemma_attention", mode)
    ours = Attention(heads=4, kv_heads=1, window=6, rotary="per_head", rotary_width=4, bias=False, out_bias=True).build(
        32, causal=True, layer=0, generator=Generator()
    )
    assert isinstance(ours, AttentionLayer)
    q, k, v, o = (theirs.weights[f"{name}_proj.weight"] for name in "qkvo")
    qkv = torch.cat([neighbours_from_halves(q, 4, 4), neighbours_from_halves(k, 1, 4), v])
    ours = ours.double()
    ours.load_state_dict({"qkv.weight": qkv, "out.weight": o, "out.bias": theirs.weights["o_proj.bias"]})
    x = theirs["x"].detach().requires_grad_()
    y = ours(x)
    torch.testing.assert_close(y, theirs["y"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(y.sin().sum(), x)[0], theirs["gradient"], rtol=1e-5, atol=1e-5)
