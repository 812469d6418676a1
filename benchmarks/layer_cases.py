"""Lists what `layers.py` measures: our layers, the published ones, and what the machine could do at best.

A case builds its work in a process of its own: `make(peers, length)` gives a function of one forward and backward (or
one optimiser step) and how many tokens it handles. The peers' files are loaded from their checkouts as they are; the
two repairs they need, a stray pair of characters and a decorator of Lightning's, are made in memory.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measuring import WIDTH, Case, Forward, Make, Work, passes
from peers import source, stand_in
from torch import Tensor, nn

TOKENS, LENGTHS = 16384, (1024, 4096, 16384)
Build = Callable[[Path, int], Forward]


def ours(name: str, causal: bool, **settings: Any) -> Build:
    def build(peers: Path, length: int) -> Forward:
        from levelfield.mixers import find

        config = replace(find(name), **settings)
        return config.build(WIDTH, causal=causal, layer=0, generator=torch.Generator().manual_seed(0))

    return build


def s4_block(**settings: Any) -> Build:
    def build(peers: Path, length: int) -> Forward:
        module = source(peers / "s4" / "models/s4/s4.py")
        return module.S4Block(WIDTH, l_max=length, transposed=False, verbose=False, **settings)

    return build


def s4d_minimal(peers: Path, length: int) -> Forward:
    module = source(peers / "s4" / "models/s4/s4d.py")
    return module.S4D(WIDTH, transposed=False)


def dlr(peers: Path, length: int) -> Forward:
    """Loads the published file without the stray characters that make one of its lines invalid Python."""
    module = source(peers / "not-from-scratch" / "src/models/sequence/ss/dss.py", ("channels////", "channels"))
    rates = importlib.import_module("omegaconf").DictConfig({"Lambda": 1e-4, "Lambda_re": None, "W": 1e-4})
    return module.DSS(WIDTH, d_state=1024, transposed=False, postact="glu", lr=rates, trainable={})


def plain_convolution(peers: Path, length: int) -> Forward:
    """A free kernel and torch's own FFT under autograd: the least that a layer without its own backward pass costs."""
    kernel = nn.Parameter(torch.randn(WIDTH, length))

    def convolve(x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x.transpose(1, 2), n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
        return torch.fft.irfft(spectrum, n=2 * length)[..., :length].transpose(1, 2)

    return convolve


def our_convolution(peers: Path, length: int) -> Forward:
    from levelfield.ops.conv.fft import fft_conv

    kernel = nn.Parameter(torch.randn(WIDTH, length))
    return lambda x: fft_conv(x.transpose(1, 2), kernel).transpose(1, 2)


def output_map(peers: Path, length: int) -> Forward:
    """Only the gated linear map, with which every such layer ends."""
    return nn.Sequential(nn.GELU(), nn.Linear(WIDTH, 2 * WIDTH), nn.GLU())


def products(peers: Path, length: int) -> tuple[Work, int]:
    """The three matrix products of that map and its backward pass, in cache."""
    rows, grad, weight = torch.randn(1024, WIDTH), torch.randn(1024, 2 * WIDTH), torch.randn(2 * WIDTH, WIDTH)
    blocks = TOKENS // len(rows)

    def work() -> None:
        for _ in range(blocks):
            torch.mm(rows, weight.T)
            torch.mm(grad, weight)
            torch.mm(grad.T, rows)

    return work, TOKENS


def transforms(peers: Path, length: int) -> tuple[Work, int]:
    """Five real transforms of twice the length by torch, in cache: what a convolution and its gradient need."""
    rows = torch.randn(max(16, (1 << 18) // length), 2 * length)
    half = torch.fft.rfft(rows)
    blocks = WIDTH * TOKENS // length // len(rows)

    def work() -> None:
        for _ in range(blocks):
            for _ in range(2):
                torch.fft.rfft(rows)
            for _ in range(3):
                torch.fft.irfft(half, n=2 * length)

    return work, blocks * len(rows) * length // WIDTH


def whole(length: int) -> int:
    return TOKENS


LAYERS = (
    Case("S4, causal", "ours", passes(ours("s4", True), whole)),
    Case("S4, causal", "s4 repository", passes(s4_block(), whole)),
    Case("S4, bidirectional, 2 copies", "ours", passes(ours("s4", False, copies=2), whole)),
    Case("S4, bidirectional, 2 copies", "s4 repository", passes(s4_block(bidirectional=True, n_ssm=2), whole)),
    Case("S4D-Lin, causal", "ours", passes(ours("s4", True, form="diagonal", init="lin", discretisation="zoh"), whole)),
    Case("S4D-Lin, causal", "s4 repository", passes(s4_block(mode="diag", init="diag-lin"), whole)),
    Case("S4D-Lin, causal", "s4 repository, minimal", passes(s4d_minimal, whole)),
    Case("DLR, 1024 states, causal", "ours", passes(ours("dlr", True), whole)),
    Case("DLR, 1024 states, causal", "not-from-scratch", passes(dlr, whole)),
    Case("convolution with a given kernel", "ours", passes(our_convolution, whole)),
    Case("convolution with a given kernel", "plain torch", passes(plain_convolution, whole)),
    Case("limit: five transforms by torch", "limit", transforms),
    Case("limit: GELU, linear, GLU by torch", "limit", passes(output_map, whole)),
    Case("limit: its matrix products alone", "limit", products),
)


# One optimiser step, batch 8 of 1024 gray values, ten classes (recipes of amos2025, Image)

BATCH, STEPS = 8, 1024


def step(net: nn.Module) -> tuple[Work, int]:
    """One AdamW step of a net from (B, T, 1) to (B, 10)."""
    x, y = torch.randn(BATCH, STEPS, 1), torch.arange(BATCH) % 10
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def work() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

    return work, BATCH * STEPS


def our_step(name: str) -> Make:
    def make(peers: Path, length: int) -> tuple[Work, int]:
        from levelfield.mixers.attention import Attention
        from levelfield.mixers.s4 import S4
        from levelfield.model import Network
        from levelfield.spec import Block, Head, Model, Signal

        models = {
            "s4": Model((S4(copies=2),), 6, 512, block=Block(prenorm=False, dropout=0.1, final_norm=False)),
            "transformer": Model((Attention(4),), 3, 64, block=Block(feedforward=128), positions="sinusoidal"),
        }
        net = Network(
            models[name], Signal(1, (0.0,), (1.0,)), (Head("label", 10, "sequence"),), mask_flag=False, seed=0
        )

        class Classifier(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = net

            def forward(self, x: Tensor) -> Tensor:
                return self.net.head("label", self.net.hidden_states(x, None), None)

        return step(Classifier())

    return make


def their_step(name: str) -> Make:
    """The published backbone with its Image configuration, between a linear encoder and a mean-pooled classifier."""

    def make(peers: Path, length: int) -> tuple[Work, int]:
        stand_in("pytorch_lightning.utilities", rank_zero_only=lambda function: function)
        stand_in("pytorch_lightning", utilities=sys.modules["pytorch_lightning.utilities"])
        sys.path.insert(0, str(peers / "not-from-scratch"))
        backbone = importlib.import_module("src.models.sequence").SequenceModel
        shared: dict[str, Any] = {"residual": "R", "norm": "layer", "track_norms": False}
        if name == "s4":
            layer: dict[str, Any] = {"_name_": "s4", "d_state": 64, "bidirectional": True, "postact": "glu", "n_ssm": 2}
            layer |= {"measure": "legs", "lr": {"dt": None, "A": 1e-3, "B": 1e-3}, "l_max": STEPS, "tie_dropout": True}
            shared |= {"n_layers": 6, "prenorm": False, "dropout": 0.1, "tie_dropout": True, "transposed": True}
            width, layers = 512, [layer]
        else:
            width, layers = (
                64,
                [
                    {"_name_": "mhfa", "n_heads": 4, "causal": False},
                    {"_name_": "ff", "expand": 2, "activation": "gelu"},
                ],
            )
            shared |= {"n_layers": 3, "prenorm": True, "dropout": 0.0, "transposed": False}

        class Classifier(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encoder, self.head = nn.Linear(1, width), nn.Linear(width, 10)
                self.backbone = backbone(width, layer=layers, **shared)

            def forward(self, x: Tensor) -> Tensor:
                return self.head(self.backbone(self.encoder(x))[0].mean(1))

        return step(Classifier())

    return make


IMAGE = tuple(
    Case(f"training step, Image, {title}", side, make(name), (STEPS,))
    for name, title in (("s4", "S4"), ("transformer", "Transformer"))
    for side, make in (("ours", our_step), ("not-from-scratch", their_step))
)
