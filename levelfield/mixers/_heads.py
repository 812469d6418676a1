"""Checks that channels can be split into heads, before a layer is built."""

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
