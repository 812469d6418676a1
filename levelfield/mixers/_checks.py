"""Checks that a layer can be built as its settings and the model ask, and refuses in the words that all mixers share.

check_channels("GLA", keys=32, values=64, heads=4)     # channels that are split into heads
"""

from __future__ import annotations

from levelfield.spec import UserError


def check_width(name: str, width: int, heads: int) -> None:
    """Raises UserError where a layer's width cannot be split into heads."""
    if heads < 1 or width % heads:
        raise UserError(f"{name} cannot split width {width} into {heads} heads: choose a divisor of it.")


def check_channels(name: str, keys: int, values: int, heads: int) -> None:
    """Raises UserError where the channels of all keys, or those of all values, cannot be split into heads."""
    if heads < 1 or min(keys, values) < 1 or keys % heads or values % heads:
        raise UserError(
            f"{name} cannot split {keys} key and {values} value channels into {heads} heads: choose a divisor of both."
        )


def check_taps(name: str, taps: int) -> None:
    """Raises UserError where the short convolutions would have no tap."""
    if taps < 1:
        raise UserError(f"{name}'s convolutions have at least one tap, not {taps}.")
