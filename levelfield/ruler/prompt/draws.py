"""Draws random words, numbers, UUIDs and names.

KeyValueSampler(plain=True).one("word", rng)         # "tense-harbor"
"""

from __future__ import annotations

import random
import string
import uuid
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from levelfield.ruler.sources import wonderwords_of

NEEDLE = "One of the special magic {kind} for {key} is: {value}."


@dataclass(frozen=True)
class KeyValueSampler:
    """Draws keys and values as RULER does; `plain` leaves out words with a space, a hyphen or a capital."""

    plain: bool = True

    def one(self, kind: str, rng: np.random.Generator) -> str:
        """Draws one key or value: a word is adjective-noun, a number has seven digits, a UUID is of version 4."""
        if kind == "number":
            return str(rng.integers(1_000_000, 10_000_000))
        if kind == "uuid":
            return str(uuid.UUID(bytes=rng.bytes(16), version=4))
        adjectives, nouns = _words("adjectives", self.plain), _words("nouns", self.plain)
        return f"{adjectives[rng.integers(len(adjectives))]}-{nouns[rng.integers(len(nouns))]}"

    def distinct(self, kind: str, count: int, rng: np.random.Generator, without: frozenset[str]) -> list[str]:
        """Draws `count` different ones, none of them in `without`."""
        found: dict[str, None] = {}
        while len(found) < count:
            one = self.one(kind, rng)
            if one not in without:
                found[one] = None
        return list(found)


@lru_cache
def _words(kind: str, plain: bool) -> tuple[str, ...]:
    return tuple(w for w in wonderwords_of(kind) if not plain or (w.isascii() and w.isalpha() and w.islower()))


def plain_words(kind: str) -> tuple[str, ...]:
    """Lists the `adjectives` or `nouns` that consist of a-z only."""
    return _words(kind, True)


def random_words(count: int, size: int, rng: np.random.Generator, alphabet: str) -> list[str]:
    """Draws `count` different words of `size` random letters."""
    found: dict[str, None] = {}
    while len(found) < count:
        drawn = rng.integers(len(alphabet), size=(count - len(found), size))
        found.update(dict.fromkeys("".join(alphabet[i] for i in row) for row in drawn.tolist()))
    return list(found)


def variables(count: int, size: int, rng: np.random.Generator) -> list[str]:
    """Draws names of `size` capitals."""
    return random_words(count, size, rng, string.ascii_uppercase)


@lru_cache(maxsize=16)
def shuffled(count: int, seed: int) -> np.ndarray:
    """Shuffles 0 to count - 1 as Python does: (count,) int64, one order for all samples of a size, as in RULER."""
    places = list(range(count))
    random.Random(seed).shuffle(places)
    found = np.array(places, np.int64)
    found.setflags(write=False)
    return found
