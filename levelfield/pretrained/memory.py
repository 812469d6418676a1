"""Predicts the memory that a checkpoint takes, from its settings and the headers of its files, before it is loaded.

    memory = predicted(Path("models/llama-7b"), "bfloat16")     # Memory(weights=13.5e9, per_token=524288, ...)
    check("llama-7b", memory, 4096, Place("cuda:0"))            # UserError where one question would not fit
    batching(memory, Place("cuda:0"))                           # as many rows as fit

Three things take memory: the weights; keys and values of the questions in a batch, counted twice, since a batch is
copied when rows leave it; and what a chunk of prompts takes while it is read. States of recurrent layers do not grow
with the prompt and are small beside the weights, so they are not counted. For a Llama of 69 million parameters on a CPU
the prediction was 0.8 to 1.5 times what was measured, by precision, length and rows; on GPUs it was not compared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch

from levelfield.pretrained.checkpoints import llama2c_file
from levelfield.pretrained.checkpoints.files import Folder, read_tensors
from levelfield.pretrained.decoding import Batching
from levelfield.pretrained.language_model import CHUNK
from levelfield.spec import UserError

BYTES = {"float32": 4, "bfloat16": 2, "float64": 8}
USED = 0.9  # of a device's memory: the rest is for torch itself and for what is freed late
COPIES = 2  # of keys and values
ACTIVATIONS = 6  # of the width of a feed-forward layer and twice that of a block, for each token of a chunk
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers")
WIDTH = ("hidden_size", "n_embd", "d_model", "dim", "width")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "heads")
KV_HEADS = ("num_key_value_heads", "num_heads_kv", "n_kv_heads", "kv_heads")
FEEDFORWARD = ("intermediate_size", "n_inner", "d_intermediate", "hidden_dim", "hidden")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class Memory(NamedTuple):
    """Bytes. per_token: of keys and values, for each token of each row. reading: of a chunk of prompts."""

    weights: int
    per_token: int
    reading: int

    def needed(self, length: int) -> int:
        """Returns what one question of a length takes at least."""
        return self.weights + COPIES * self.per_token * length + self.reading * min(length, CHUNK) // CHUNK


@dataclass(frozen=True)
class Place:
    """The place where a model is to be loaded. copies: of it in the same memory. spread: devices of one copy."""

    device: str = "cpu"
    copies: int = 1
    spread: int = 1

    @property
    def total(self) -> int:
        """The bytes that one copy may use."""
        return int(USED * total(torch.device(self.device)) * self.spread / self.copies)


def predicted(path: Path, precision: str) -> Memory:
    """Predicts the memory of a checkpoint. Raises UserError where its files cannot be read."""
    folder, each = Folder(path), BYTES[precision]
    config = folder.config.get("text_config", folder.config)
    width, layers, heads = (_first(config, names) for names in (WIDTH, LAYERS, HEADS))
    with_keys = len(found) if isinstance(found := config.get("attn_layer_idx"), list) else layers
    size = _first(config, ("head_dim",)) or (width // heads if heads else 0)
    keys = 2 * with_keys * (_first(config, KV_HEADS) or heads) * size * each
    wide = max(_first(config, FEEDFORWARD), 4 * width)
    return Memory(each * parameters(folder), keys, CHUNK * each * ACTIVATIONS * (2 * width + wide))


def parameters(folder: Folder) -> int:
    """Counts the numbers in a checkpoint's files, which most formats say in their headers."""
    if folder.config.get("llama2.c"):
        return sum(map(prod, llama2c_file.shapes(folder.config).values()))
    return sum(_numbers(file) for file in folder.files())


def _numbers(file: Path) -> int:
    if file.suffix != ".safetensors":
        return sum(value.numel() for value in read_tensors(file).values())  # mapped, so nothing is read yet
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            return sum(prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file} cannot be read as weights ({error}): copy the file again.") from error


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """Returns the first of these settings that is a number, 0 where none is."""
    return next((value for name in names if isinstance(value := config.get(name), int)), 0)


def total(device: torch.device) -> int:
    """Returns the memory of a device in bytes; on a CPU that of the machine, or less where a container has less."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            found.append(int(path.read_text()))
    return min(found)


def check(name: str, memory: Memory, length: int, place: Place) -> None:
    """Raises UserError where a model and one question of a length do not fit into the memory of a place."""
    needed, there = memory.needed(length), place.total
    if needed > there:
        shared = f" for each of {place.copies} copies" if place.copies > 1 else ""
        raise UserError(
            f"{name} takes about {_size(needed)} ({_size(memory.weights)} of them weights) with a question of "
            f"{length:,} tokens, and {place.device} has {_size(there)}{shared}: {_remedy(memory, there, place)}."
        )


def _remedy(memory: Memory, there: int, place: Place) -> str:
    if memory.weights < there:
        return "give shorter --lengths"
    if place.copies > 1:
        return "give fewer --devices"
    return "give --precision bfloat16, or --spread for several GPUs"


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def batching(memory: Memory, place: Place) -> Batching:
    """Returns the batches that fit, of the usual size where that does, whatever else is in the memory now."""
    room = place.total - memory.weights - memory.reading
    fit = room // (COPIES * memory.per_token) if memory.per_token else Batching.tokens
    return Batching(tokens=max(1, min(Batching.tokens, fit)))
