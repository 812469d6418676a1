"""Gives the distances at which probes report."""

from __future__ import annotations


def doublings(length: int) -> list[int]:
    """Returns 0, 1, 2, 4, ..., length - 1."""
    powers = [1 << k for k in range(length.bit_length()) if 1 << k < length - 1]
    return [0, *powers, length - 1] if length > 1 else [0]
