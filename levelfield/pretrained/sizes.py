"""Sizes in a config.json, which may hold anything: whole numbers of a range that some model has, or a complaint.

    checked({"d_model": 2560, "n_layer": 10**12, ...}, "models/mine")
    # UserError: n_layer of models/mine is 1000000000000: give a whole number from 1 to 10,000, or copy it again.

Looked at before anything is made of them: a model of 10^12 layers would take all memory before it is refused.
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
NOTHING = {"d_conv", "d_intermediate", "rotary_emb_dim", "mlp_dim"}  # of which 0 means that there is none


def checked(config: Mapping[str, Any], where: str) -> None:
    """Raises UserError for a size that is no whole number, and for one that no model has. A size that is null is not
    given."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            checked(value, where)
        elif name in MOST and value is not None:
            least = 0 if name in NOTHING else 1
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST[name]:
                shown = repr(value)[:60]
                raise UserError(
                    f"{name} of {where} is {shown}: give a whole number from {least} to {MOST[name]:,}, or copy its "
                    "config.json again."
                )


@contextmanager
def understood(where: str) -> Iterator[None]:
    """Settings of other kinds than a layout has raise UserError, whatever was tried with them."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, IndexError, RuntimeError) as error:
        reason = f"{error.args[0]!r} is absent" if isinstance(error, KeyError) else first_line(error).rstrip(".")
        raise UserError(f"The config.json of {where} does not describe a model: {reason}. Copy it again.") from error
