"""Predicts the memory that a checkpoint takes, from its settings and the headers of its files, before it is loaded.

    memory = predicted(Path("models/llama-7b"), "bfloat16")     # Memory(weights=13.5e9, row=..., reading=...)
    memory.row(4096)                                            # 2.1e9: keys and values after so many tokens
    check("llama-7b", memory, 4096, Place("cuda:0"))            # UserError where one question would not fit
    batching(memory, Place("cuda:0"))                           # as many rows as fit

Three things take memory: the weights; keys, values and states of the questions in a batch, counted twice, since a batch
is copied when rows leave it; and what a chunk of prompts takes while it is read. Layers of ours declare what they keep,
so a checkpoint that they can represent is converted without its weights. For others it is guessed from the usual names
of settings. For a Llama of 69 million parameters on a CPU the prediction was 0.8 to 1.5 times what was measured, by
precision, length and rows; on GPUs it was not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from levelfield.pretrained import matching_formats
from levelfield.pretrained.checkpoints.files import Folder
from levelfield.pretrained.decoding import Batching
from levelfield.pretrained.language_model import CHUNK
from levelfield.pretrained.sizes import understood
from levelfield.spec import Model, UserError
from levelfield.spec import memory as machine

BYTES = {"float32": 4, "bfloat16": 2, "float64": 8}
STATE_BYTES = 4  # at least, of a number in a recurrent state, which is not kept in bfloat16
USED = 0.9  # of a device's memory: the rest is for torch itself and for what is freed late
COPIES = 2  # of keys, values and states
ACTIVATIONS = 6  # of the width of a feed-forward layer and twice that of a block, for each token of a chunk
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WIDTH = ("hidden_size", "n_embd", "d_model", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "n_kv_heads")
FEEDFORWARD = ("intermediate_size", "n_inner", "hidden_dim")
WITHOUT_KEYS = ("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm")  # model types of transformers


class Memory(NamedTuple):
    """Bytes. row: of what a question keeps after so many tokens. reading: of a chunk of prompts."""

    weights: int
    row: Callable[[int], int]
    reading: int

    def needed(self, length: int) -> int:
        """Returns what one question of a length takes at least."""
        return self.weights + COPIES * self.row(length) + self.reading * min(length, CHUNK) // CHUNK


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
    folder, each, where = Folder(path), BYTES[precision], str(path)
    shapes = folder.shapes()
    weights = each * sum(value.numel() for value in shapes.values())
    if known := matching_formats(folder.config, where):
        with understood(where):
            model = known[0].convert(folder.config, shapes, where).model
        return Memory(weights, _declared(model, each), _reading(model.width, model.block.feedforward, each))
    config = folder.config.get("text_config", folder.config)
    per_token, width = each * _keys(config), _first(config, WIDTH)
    return Memory(weights, lambda length: per_token * length, _reading(width, _first(config, FEEDFORWARD), each))


def parameters(folder: Folder) -> int:
    """Counts the numbers in a checkpoint's files, which most formats say in their headers."""
    return sum(value.numel() for value in folder.shapes().values())


def _declared(model: Model, each: int) -> Callable[[int], int]:
    """Returns the bytes that the layers of a model keep for a row, by its length. each: bytes of a key's number."""

    def numbers(length: int) -> int:
        mixers = (model.mixers[i % len(model.mixers)] for i in range(model.depth))
        return sum(mixer.state_size(model.width, length) or 0 for mixer in mixers)

    fixed = numbers(0)
    return lambda length: max(each, STATE_BYTES) * fixed + each * (numbers(length) - fixed)


def _keys(config: Mapping[str, Any]) -> int:
    """Guesses how many numbers all layers keep for a token: keys and values of every layer."""
    if config.get("model_type") in WITHOUT_KEYS:
        return 0
    width, layers, heads = (_first(config, names) for names in (WIDTH, LAYERS, HEADS))
    size = _first(config, ("head_dim",)) or (width // heads if heads else 0)
    return 2 * layers * (_first(config, KV_HEADS) or heads) * size


def _reading(width: int, feedforward: int, each: int) -> int:
    return CHUNK * each * ACTIVATIONS * (2 * width + max(feedforward, 4 * width))


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """Returns the first of these settings that is a number, 0 where none is."""
    return next((value for name in names if isinstance(value := config.get(name), int)), 0)


def total(device: torch.device) -> int:
    """Returns the memory of a device in bytes; on a CPU as `spec.memory.total` does."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return machine.total()


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
        return "give fewer --copies"
    return "give --precision bfloat16, or --spread for several GPUs"


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def batching(memory: Memory, place: Place) -> Batching:
    """Returns the batches that fit, of the usual size where that does, whatever else is in the memory now.

    R rows of T tokens together take at most R times what a row keeps at the start, and T times what its first token
    adds, since no later token adds more. Where rows keep both, the start has half of the room at most.
    """
    room = (place.total - memory.weights - memory.reading) // COPIES
    start, per_token = memory.row(0), memory.row(1) - memory.row(0)
    rows = min(Batching.rows, room // (start * (2 if per_token else 1))) if start else Batching.rows
    rows = max(1, rows)
    tokens = min(Batching.tokens, (room - rows * start) // per_token) if per_token else Batching.tokens
    return Batching(rows=rows, tokens=max(1, tokens))
