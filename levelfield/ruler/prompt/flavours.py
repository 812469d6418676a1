"""Defines three variants of RULER: NVIDIA's generator, the fork that huang2024 ran, and one without their artefacts.

    FLAVOURS["official"]     NVIDIA/RULER at c3f5e3b (July 2026)
    FLAVOURS["paper"]        jhuang265/RULER at d573689 (June 2024), which huang2024 used
    FLAVOURS["sound"]        corrected: exact lengths, and positions drawn anew in every sample

The first two give samples of the same distribution as those generators, artefacts included, not the same random
stream. docs/ruler.md has the differences in a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from levelfield.spec import UserError, closest


@dataclass(frozen=True)
class Flavour:
    """What differs between variants. Steps are those by which a sample that came out too long is shortened."""

    name: str
    exact: bool  # the budget is filled; otherwise one size is found for all samples, and shrunk where needed
    search: Literal["none", "binary", "linear"]  # how the size of all samples is found on one
    fixed_order: bool  # needles, lists and documents have one order in all samples of a size
    essay_step: int  # words
    line_step: int  # lines of noise or needles where length >= 4096; 5 below
    tracking_step: int  # lines; where it is over 5, 5 below 4096
    word_step: int
    document_step: int


OFFICIAL = Flavour(
    name="official",
    exact=False,
    search="binary",
    fixed_order=True,
    essay_step=500,
    line_step=25,
    tracking_step=10,
    word_step=10,
    document_step=10,
)
PAPER = replace(OFFICIAL, name="paper", search="linear", essay_step=50, tracking_step=1, word_step=1, document_step=1)
SOUND = Flavour(
    name="sound",
    exact=True,
    search="none",
    fixed_order=False,
    essay_step=1,
    line_step=1,
    tracking_step=1,
    word_step=1,
    document_step=1,
)
FLAVOURS: dict[str, Flavour] = {f.name: f for f in (OFFICIAL, PAPER, SOUND)}


def flavoured(name: str) -> Flavour:
    """Returns the variant of that name. Raises UserError."""
    if name not in FLAVOURS:
        raise UserError(f"RULER has no variant '{name}': {closest(name, list(FLAVOURS))}")
    return FLAVOURS[name]
