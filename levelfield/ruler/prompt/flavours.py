"""Which RULER: NVIDIA's generator as it is, as huang2024 ran it, or one without their artefacts.

    FLAVOURS["official"]     NVIDIA/RULER at c3f5e3b (July 2026)
    FLAVOURS["paper"]        jhuang265/RULER at d573689 (June 2024), which huang2024 used
    FLAVOURS["sound"]        exact lengths, places drawn at random in every sample

The first two give samples of the same distribution as those generators, artefacts included, not the same random
stream. docs/ruler.md has the differences in a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from levelfield.spec import UserError, closest


@dataclass(frozen=True)
class Flavour:
    """What differs. Steps are those by which a sample that came out too long is made shorter."""

    name: str
    exact: bool  # lengths are filled to the budget; otherwise found on one sample, and samples step down
    search: Literal["none", "binary", "linear"]  # how the size of all samples is found on one
    fixed_order: bool  # needles, lists and documents lie in one order for all samples of a size
    essay_step: int  # words
    line_step: int  # lines of noise or needles where length >= 4096; 5 below
    tracking_step: int  # lines; where it is over 5, 5 below 4096
    word_step: int
    document_step: int


OFFICIAL = Flavour("official", False, "binary", True, 500, 25, 10, 10, 10)
PAPER = Flavour("paper", False, "linear", True, 50, 25, 1, 1, 1)
SOUND = Flavour("sound", True, "none", False, 1, 1, 1, 1, 1)
FLAVOURS: dict[str, Flavour] = {f.name: f for f in (OFFICIAL, PAPER, SOUND)}


def flavoured(name: str) -> Flavour:
    """The flavour of that name. Raises UserError."""
    if name not in FLAVOURS:
        raise UserError(f"RULER has no flavour '{name}': {closest(name, list(FLAVOURS))}")
    return FLAVOURS[name]
