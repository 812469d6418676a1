"""Reads how many positions a model has from its settings, before any weight is loaded.

    positions_of("models/gpt2")           # Positions(most=1024, made_for=1024): a table of positions
    positions_of("models/pythia-160m")    # Positions(most=None, made_for=2048): rotary positions

A table ends, so longer prompts are refused. Rotary positions can be extrapolated, and how a model copes with that is
the question of huang2024: longer prompts run, and their results are marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelfield.pretrained.optional import first_line, needed
from levelfield.spec import UserError

TABLES = ("n_positions", "n_ctx", "max_sequence_length")  # settings that only models with a table have
MADE_FOR = ("max_position_embeddings", "positions")  # in transformers, and in the header of llama2.c
PADDED = 16  # rows that a table may have beyond its positions


@dataclass(frozen=True)
class Positions:
    """The positions of a model, in tokens.

    most: the size of its table of positions; None where it has no table. made_for: how many positions the model was
    made for, as its settings say; None where they do not.
    """

    most: int | None = None
    made_for: int | None = None


def positions_from_config(config: Mapping[str, Any]) -> Positions:
    """Reads the config.json of a format that our layers can represent; none of these has a table of positions."""
    found = next((config[name] for name in MADE_FOR if name in config), None)
    return Positions(None, found if isinstance(found, int) and found > 0 else None)


def positions_from_model(inner: Any) -> Positions:
    """Inspects a model of transformers, with or without weights.

    Its table of positions is an embedding, other than that of its tokens, with a row for each position.
    """
    config = inner.config.get_text_config()
    found = [getattr(config, name, None) for name in (*TABLES, MADE_FOR[0])]
    made_for = min((n for n in found if isinstance(n, int) and n > 0), default=None)
    if made_for is None or any(isinstance(n, int) and n > 0 for n in found[: len(TABLES)]):
        return Positions(made_for, made_for)
    tokens = inner.get_input_embeddings()
    tables = [m for m in inner.modules() if m is not tokens and type(m).__name__.endswith("Embedding")]
    sizes = [len(weight) for m in tables if (weight := getattr(m, "weight", None)) is not None]
    has_table = any(made_for <= size <= made_for + PADDED for size in sizes)
    return Positions(made_for if has_table else None, made_for)


def positions_from_files(path: Path) -> Positions:
    """Builds the model of a folder in transformers, without weights, and inspects it. Raises UserError."""
    import torch

    transformers = needed("transformers")
    try:
        config = transformers.AutoConfig.from_pretrained(str(path), trust_remote_code=False)
        with torch.device("meta"):
            return positions_from_model(transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False))
    except Exception as error:  # every model raises types of its own
        raise UserError(f"transformers cannot read {path}: {first_line(error)}") from error
