"""Finds where sentences begin, so that needles stand between them.

    starts(["Mr.", "Bell", "left.", "It", "rained."])      # [0, 3]

A plain rule instead of a trained splitter: a word that ends in . ! or ?, perhaps with closing quotes, ends a sentence
unless it is a known abbreviation, an initial, or the next word begins in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

END = re.compile(r"""[.!?]+["'”’)\]]*$""")
ABBREVIATIONS = frozenset(
    (
        "mr.", "mrs.", "ms.", "dr.", "st.", "prof.", "sr.", "jr.",
        "gen.", "col.", "capt.", "rev.", "hon.", "inc.", "co.", "corp.", "ltd.",
        "vs.", "etc.", "e.g.", "i.e.", "cf.", "no.", "vol.", "fig.",
        "a.m.", "p.m.", "u.s.", "u.k.", "ph.d.",
    )
)  # fmt: skip
INITIAL = re.compile(r"^[\"'(“]*[A-Z]\.$")


def starts(words: Sequence[str]) -> np.ndarray:
    """Returns the indices of first words: (sentences,) int64, the first of which is 0."""
    found = [0]
    for place, (word, following) in enumerate(pairwise(words)):
        if END.search(word) and not following[:1].islower():
            bare = word.rstrip("\"'”’)]").lower().lstrip("\"'“(")
            if bare not in ABBREVIATIONS and not INITIAL.match(word):
                found.append(place + 1)
    return np.array(found, np.int64)
