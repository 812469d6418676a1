"""Checks the sizes in a config.json, which may hold anything.

    check_sizes({"d_model": 2560, "n_layer": 10**12, ...}, "models/mine")
    # UserError: n_layer of models/mine is 1000000000000: give a whole number from 1 to 10,000, or copy it again.

They are checked before any layer is made, because a model of 10^12 layers would take all memory before it failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from levelfield.pretrained.optional import first_line
from levelfield.spec import UserError

DEPTH, WIDTH, WORDS = 10_000, 2**20, 2**24
MOST = {
    **dict.fromkeys(("n_layer", "num_hidden_layers", "num_layers", "n_layers"), DEPTH),
    **dict.fromkeys(("d_model", "hidden_size", "intermediate_size", "num_attention_heads", "num_heads"), WIDTH),
    **dict.fromkeys(("num_key_value_heads", "num_heads_kv", "head_dim", "headdim", "n_groups", "ngroups"), WIDTH),
    **dict.fromkeys(("state_size", "d_state", "expand", "conv_kernel", "conv1d_width", "lru_width"), WIDTH),
    **dict.fromkeys(("d_conv", "d_intermediate", "rotary_emb_dim", "mlp_dim"), WIDTH),
    **dict.fromkeys(("attention_window_size", "vocab_size"), WORDS),
}
MAY_BE_ZERO = {"d_conv", "d_intermediate", "rotary_emb_dim", "mlp_dim"}  # 0 means that there is no such part


def check_sizes(config: Mapping[str, Any], where: str) -> None:
    """Raises UserError for a size that is not a whole number, or that no model has. A size that is null counts as
    absent."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            check_sizes(value, where)
        elif name in MOST and value is not None:
            least = 0 if name in MAY_BE_ZERO else 1
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST[name]:
                shown = repr(value)[:60]
                raise UserError(
                    f"{name} of {where} is {shown}: give a whole number from {least} to {MOST[name]:,}, or copy its "
                    "config.json again."
                )


@contextmanager
def understood(where: str) -> Iterator[None]:
    """Raises UserError where the code inside fails because a setting is absent or of the wrong type."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, IndexError, RuntimeError) as error:
        reason = f"{error.args[0]!r} is absent" if isinstance(error, KeyError) else first_line(error).rstrip(".")
        raise UserError(f"The config.json of {where} does not describe a model: {reason}. Copy it again.") from error
