"""Lists what `train.py` measures: a training step of a small model around each mixer, in each way of computing it.

A group is a mixer at the reference setting of `mixer_cases.py`; its sides are "ours", which is float32, "ours bf16" and
"ours compiled", and the mixer's peers in float32: another's layer in a model of the same sizes, in the loop that its
users write; for attention torch's own encoder layers too. A step is all of it: gathering the batch, forward, loss,
backward, clipping and AdamW. The group "products" is what the machine can do at best: products, and copies out of
cache ("memory").
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import TOKENS, WIDTH, Case, Forward, Make, Work
from mixer_cases import HEADS, PEERS, causal, configured, traffic
from peers import bare
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_parameter_registration_hook

from levelfield.data.batches import SplitOnDevice
from levelfield.mixers import classes
from levelfield.model import Network
from levelfield.objectives import Classify
from levelfield.runs.compiled import compile_blocks
from levelfield.spec import Block, Duration, Examples, Head, Model, Numerics, Recipe, Tokens
from levelfield.train import Plan, State, make_optimizer, train

LENGTHS = (1024, 4096, 16384)
DEPTH, HIDDEN, CLASSES = 2, 1024, 10
FOREVER = 1 << 40  # steps
PRODUCTS, MEMORY = "products", "memory"
AGAIN = "ours again"  # in float32, measured right before the compiled steps, which may be measured on another day
SIDES = {"ours": Numerics(), "ours bf16": Numerics("bf16"), AGAIN: Numerics(), "ours compiled": Numerics(compile=True)}


def network(label: str, length: int, numerics: Numerics) -> Network:
    """The model around a mixer: two blocks with feed-forward layers, mean pooling and one head."""
    mixer = configured(label, length)
    model = Model((mixer,), DEPTH, WIDTH, causal=causal(label), block=Block(feedforward=HIDDEN))
    return Network(
        model, Tokens(256), (Head("label", CLASSES, "sequence"),), mask_flag=False, seed=0, numerics=numerics
    )


def examples(length: int) -> Examples:
    """Returns as many random sequences as a batch has."""
    draws, count = np.random.default_rng(0), max(1, TOKENS // length)
    x = draws.integers(0, 256, (count, length), dtype=np.uint8)
    return Examples.of_equal_length(x, draws.integers(0, CLASSES, count))


def recipe(batch: int) -> Recipe:
    never, none = Duration(FOREVER, "steps"), Duration(0, "steps")
    return Recipe(
        lr=1e-4,
        weight_decay=0.01,
        batch=batch,
        budget=never,
        warmup=none,
        schedule="constant",
        clip=1.0,
        validate_every=never,
    )


def ours(label: str, numerics: Numerics) -> Make:
    """Steps of the training loop itself. Kernels are compiled before anything is measured."""

    def make(peers: Path, length: int) -> tuple[Work, int]:
        net, split = network(label, length, numerics), SplitOnDevice(examples(length), torch.device("cpu"))
        numbers = recipe(len(split))
        state = State(net, make_optimizer(net, numbers, net.rules()))
        plan = Plan(Classify(), numbers, Tokens(256), FOREVER, 0, validate_every=FOREVER)
        steps = train(state, plan, split, 0, lambda: 0.0)
        compile_blocks(net, ragged=False)
        if numerics.compile:
            next(steps)
        return partial(next, steps), len(split) * length

    return make


def stepping(
    hidden_states: Callable[[Tensor], Tensor], body: list[nn.Parameter], bf16: bool, length: int
) -> tuple[Work, int]:
    """Returns steps of the loop that users write, and the tokens of each. `hidden_states`: (B, T) symbols -> (B, T, D).
    body: its weights."""
    head, given = nn.Linear(WIDTH, CLASSES), examples(length)
    parameters = [*body, *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=all(p.is_floating_point() for p in parameters))
    x, y = torch.from_numpy(np.array(given.x)).long().view(-1, length) + 2, torch.from_numpy(given.y)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            hidden = hidden_states(x)
        F.cross_entropy(head(hidden.float().mean(1)), y).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return step, x.numel()


def torch_encoder(bf16: bool) -> Make:
    """Returns steps of `torch.nn.TransformerEncoder` of the same sizes."""

    def make(peers: Path, length: int) -> tuple[Work, int]:
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, 0.0, "gelu", batch_first=True, norm_first=True)
        body = nn.TransformerEncoder(layer, DEPTH, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        embed, mask = nn.Embedding(258, WIDTH), nn.Transformer.generate_square_subsequent_mask(length)
        parameters = [*embed.parameters(), *body.parameters()]
        return stepping(lambda x: body(embed(x), mask=mask, is_causal=True), parameters, bf16, length)

    return make


def theirs(build: Callable[[Path, int], Forward]) -> Make:
    """Returns steps of a model of the same sizes around a peer's layer.

    Its builder may return a function around modules, so parameters are found as they are registered.
    """

    def make(peers: Path, length: int) -> tuple[Work, int]:
        made: dict[tuple[int, str], nn.Parameter] = {}

        def note(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
            if parameter is not None:
                made[id(module), name] = parameter

        hook = register_module_parameter_registration_hook(note)
        layers = [build(peers, length) for _ in range(DEPTH)]
        norms = [nn.LayerNorm(WIDTH) for _ in range(2 * DEPTH + 1)]
        wides = [nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH)) for _ in range(DEPTH)]
        embed = nn.Embedding(258, WIDTH)
        hook.remove()

        def hidden_states(x: Tensor) -> Tensor:
            h = embed(x)
            for number, (layer, wide) in enumerate(zip(layers, wides, strict=True)):
                y = layer(norms[2 * number](h))
                h = h + (y[0] if isinstance(y, tuple) else y)
                h = h + wide(norms[2 * number + 1](h))
            return norms[-1](h)

        return stepping(hidden_states, list(made.values()), False, length)

    return make


def llama(peers: Path, length: int) -> Forward:
    """The attention of transformers' Llama, by the same fused kernel of torch as ours, with rotary positions."""
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    settings = importlib.import_module("transformers").LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attn_implementation="sdpa", max_position_embeddings=length
    )
    net, rotary, steps = module.LlamaAttention(settings, 0), module.LlamaRotaryEmbedding(settings), torch.arange(length)
    return lambda x: net(x, rotary(x, steps[None]), None)[0]


def zoology(peers: Path, length: int) -> Forward:
    bare(peers / "zoology", "zoology", "zoology.mixers")
    return importlib.import_module("zoology.mixers.attention").MHA(WIDTH, HEADS)


def products(kind: torch.dtype) -> Make:
    """The products of one feed-forward layer, forward and backward, by themselves: the limit of this machine."""

    def make(peers: Path, length: int) -> tuple[Work, int]:
        x, grad = torch.randn(TOKENS, WIDTH).to(kind), torch.randn(TOKENS, HIDDEN).to(kind)
        weight = torch.randn(HIDDEN, WIDTH).to(kind)
        return lambda: (x @ weight.T, grad @ weight, grad.T @ x), TOKENS

    return make


LAYERS = PEERS | {"attention": {"transformers": llama, "zoology": zoology}}
PRODUCT_FLOPS = 3 * 2 * WIDTH * HIDDEN  # per token

CASES = [
    Case(PRODUCTS, "float32", products(torch.float32), LENGTHS[:1]),
    Case(PRODUCTS, "bf16", products(torch.bfloat16), LENGTHS[:1]),
    Case(PRODUCTS, MEMORY, traffic, LENGTHS[:1]),
    *(Case(c.label, side, ours(c.label, how), LENGTHS) for c in classes() for side, how in SIDES.items()),
    Case("attention", "torch.nn", torch_encoder(bf16=False), LENGTHS),
    Case("attention", "torch.nn bf16", torch_encoder(bf16=True), LENGTHS),
    *(Case(label, side, theirs(build), LENGTHS) for label, sides in LAYERS.items() for side, build in sides.items()),
]
