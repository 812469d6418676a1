"""How far a model's positions reach, read from its settings alone, before any weight is.

    positions_of("models/gpt2")           # Positions(most=1024, made_for=1024): a table, which ends
    positions_of("models/pythia-160m")    # Positions(most=None, made_for=2048): rotary, which goes on

Beyond a table there is no answer. Rotary positions go on, and what a model makes of those that it was not made for is
what huang2024 asks: such lengths run, and are marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelfield.pretrained.optional import first_line, needed
from levelfield.spec import UserError

TABLES = ("n_positions", "n_ctx", "max_sequence_length")  # settings of models with a table of positions
MADE_FOR = ("max_position_embeddings", "positions")  # of transformers, and in the header of llama2.c
PADDED = 16  # rows that a table may have beyond its positions


@dataclass(frozen=True)
class Positions:
    """most: steps at most, where positions are a table. made_for: steps that the model was made for, as its settings
    say. None: no bound, and not known."""

    most: int | None = None
    made_for: int | None = None


def of_settings(config: Mapping[str, Any]) -> Positions:
    """Of a layout that our layers read: none of them has a table."""
    found = next((config[name] for name in MADE_FOR if name in config), None)
    return Positions(None, found if isinstance(found, int) and found > 0 else None)


def of_inner(inner: Any) -> Positions:
    """Of a model of transformers, with or without weights: a table is an embedding, other than that of its symbols,
    with a row for each of its positions."""
    config = inner.config.get_text_config()
    found = [getattr(config, name, None) for name in (*TABLES, MADE_FOR[0])]
    made_for = min((n for n in found if isinstance(n, int) and n > 0), default=None)
    if made_for is None or any(isinstance(n, int) and n > 0 for n in found[: len(TABLES)]):
        return Positions(made_for, made_for)
    symbols = inner.get_input_embeddings()
    tables = [m for m in inner.modules() if m is not symbols and type(m).__name__.endswith("Embedding")]
    sizes = [len(weight) for m in tables if (weight := getattr(m, "weight", None)) is not None]
    listed = any(made_for <= size <= made_for + PADDED for size in sizes)
    return Positions(made_for if listed else None, made_for)


def of_files(path: Path) -> Positions:
    """Of a folder that is left to transformers: its model is built without weights. Raises UserError."""
    import torch

    transformers = needed("transformers")
    try:
        config = transformers.AutoConfig.from_pretrained(str(path), trust_remote_code=False)
        with torch.device("meta"):
            return of_inner(transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False))
    except Exception as error:  # as many kinds as there are models
        raise UserError(f"transformers cannot read {path}: {first_line(error)}") from error
