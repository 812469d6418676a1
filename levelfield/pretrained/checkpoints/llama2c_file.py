"""Reads files of llama2.c: seven whole numbers and then every weight as float32, nothing else.

    int32 x 7                                       width, hidden, layers, heads, key heads, vocabulary, positions
    embedding, then of all layers: norm, wq, wk, wv, wo, norm, w1, w2, w3; the last norm, two tables of angles, (head)

This is version 0 of the format, which has no mark: a file is recognised because the seven numbers account for its every
byte. A negative vocabulary means that the head has weights of its own. Source: karpathy/llama2.c, export.py and run.c.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from levelfield.spec import UserError

FIELDS = ("width", "hidden", "layers", "heads", "kv_heads", "vocabulary", "positions")
HEADER = 4 * len(FIELDS)
MARK = b"24ka"  # the first bytes of later versions


def header(path: Path) -> dict[str, Any] | None:
    """Reads the settings of a file, among them whether the head is `tied`; None for any other kind of file.

    Raises UserError for a later version of the format, which is known by its mark.
    """
    with path.open("rb") as file:
        data = file.read(HEADER)
    if data[:4] == MARK:
        raise UserError(f"{path} is of a later version of llama2.c: export the model with `--version 0`.")
    if len(data) < HEADER:
        return None
    found: dict[str, Any] = dict(zip(FIELDS, struct.unpack("<7i", data), strict=True))
    found |= {"tied": found["vocabulary"] > 0, "vocabulary": abs(found["vocabulary"])}
    if min(found[name] for name in FIELDS) < 1 or found["width"] % found["heads"]:
        return None
    size = HEADER + 4 * sum(prod(shape) for shape in shapes(found).values())
    return {"llama2.c": path.name, **found} if size == path.stat().st_size else None


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every tensor by name, in the order of the file."""
    width, hidden, layers, vocabulary = (config[name] for name in ("width", "hidden", "layers", "vocabulary"))
    head = width // config["heads"]
    keys, angles = head * config["kv_heads"], (config["positions"], head // 2)
    found: dict[str, tuple[int, ...]] = {
        "embedding": (vocabulary, width),
        "norm": (layers, width),
        "wq": (layers, width, width),
        "wk": (layers, keys, width),
        "wv": (layers, keys, width),
        "wo": (layers, width, width),
        "norm2": (layers, width),
        "w1": (layers, hidden, width),
        "w2": (layers, width, hidden),
        "w3": (layers, hidden, width),
        "last": (width,),
        "cosines": angles,
        "sines": angles,
    }
    return found if config["tied"] else found | {"head": (vocabulary, width)}


def tensors(path: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Reads the weights, by the names and with the shapes of `shapes`."""
    values, place, found = np.fromfile(path, "<f4", offset=HEADER), 0, {}
    for name, shape in shapes(config).items():
        found[name] = torch.from_numpy(values[place : place + prod(shape)].reshape(shape))
        place += prod(shape)
    return found
