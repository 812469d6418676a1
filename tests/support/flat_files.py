"""Tiny random models in the layout of llama2.c, each with a tokenizer beside it."""

from __future__ import annotations

import struct
from pathlib import Path

import torch
from torch import Generator, Tensor

WIDTH, HIDDEN, LAYERS, HEADS, KEYS, POSITIONS = 24, 20, 2, 6, 3, 8
DIM = WIDTH // HEADS
LETTERS = [b" ", b"a", b"b", b"c", b"."]
JOINED = {b"ab": -1.0, b" a": -2.0, b" ab": -3.0, b"bc": -0.5, b"aa": -4.0}
VOCABULARY = 3 + 256 + len(LETTERS) + len(JOINED)


def write_tokenizer(path: Path) -> None:
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % i for i in range(256)), *JOINED, *LETTERS]
    scores = [0.0] * 259 + list(JOINED.values()) + [-9.0] * len(LETTERS)
    parts = [struct.pack("<fi", score, len(piece)) + piece for score, piece in zip(scores, pieces, strict=True)]
    path.write_bytes(struct.pack("<i", max(map(len, pieces))) + b"".join(parts))


def write_model(folder: Path, tied: bool = True) -> dict[str, Tensor]:
    """Random weights, stacked over layers, in the order of the file. A head of its own soon says the end."""
    folder.mkdir(parents=True, exist_ok=True)
    stacked = {"wq": WIDTH, "wk": KEYS * DIM, "wv": KEYS * DIM, "wo": WIDTH}
    shapes: dict[str, tuple[int, ...]] = {"embedding": (VOCABULARY, WIDTH), "rms_att": (LAYERS, WIDTH)}
    shapes |= {name: (LAYERS, rows, WIDTH) for name, rows in stacked.items()}
    shapes |= {"rms_ffn": (LAYERS, WIDTH), "w1": (LAYERS, HIDDEN, WIDTH), "w2": (LAYERS, WIDTH, HIDDEN)}
    shapes |= {"w3": (LAYERS, HIDDEN, WIDTH), "rms_final": (WIDTH,)}
    shapes |= {"freq_real": (POSITIONS, DIM // 2), "freq_imag": (POSITIONS, DIM // 2)}
    shapes |= {} if tied else {"wcls": (VOCABULARY, WIDTH)}
    generator = Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) / 2 for name, shape in shapes.items()}
    if not tied:
        weights["wcls"][2] *= 30
    sizes = (WIDTH, HIDDEN, LAYERS, HEADS, KEYS, VOCABULARY if tied else -VOCABULARY, POSITIONS)
    data = b"".join(w.numpy().astype("<f4").tobytes() for w in weights.values())
    (folder / "tiny.bin").write_bytes(struct.pack("<7i", *sizes) + data)
    write_tokenizer(folder / "tok269.bin")
    return weights
