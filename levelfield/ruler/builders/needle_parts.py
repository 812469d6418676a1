"""Lines of needles whose keys and values are put together anew in every sample, from parts tokenised once.

    parts = Parts.of(pen, Drawn(), ("word", "number"), rng)
    keys, values = parts.asked(1, 1, rng)
    lines = parts.lines(600, rng, parts_of_the_asked)

A key is cut at its hyphens, where tokenizers start afresh: 912 adjectives and 6,782 nouns give six million words, five
columns of 1,024 parts more UUIDs than can be counted. So samples share no keys, and what is asked for is drawn as all
other lines are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from levelfield.ruler.builders.haystack import NeedleLines
from levelfield.ruler.prompt.compose import Composer, Table
from levelfield.ruler.prompt.draws import NEEDLE, Drawn, plain_words

UUIDS, NUMBERS = 1024, 8192  # that parts are cut from; numbers are not cut


@dataclass(frozen=True)
class Columns:
    """Keys, or values: one text of each column. starts, sizes: where columns lie in the table."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def at(start: int, columns: list[list[str]]) -> Columns:
        sizes = tuple(len(column) for column in columns)
        return Columns(tuple(int(start + sum(sizes[:i])) for i in range(len(sizes))), sizes)

    def drawn(self, count: int, rng: np.random.Generator, without: np.ndarray) -> np.ndarray:
        """(count,) or fewer codes, all different and none of those left out."""
        total = prod(self.sizes)
        codes = rng.choice(total, min(count + len(without), total), replace=False)
        return codes[~np.isin(codes, without)][:count]

    def places(self, codes: np.ndarray) -> np.ndarray:
        """(count, columns) places in the table."""
        return np.stack(np.unravel_index(codes, self.sizes), 1) + np.array(self.starts)


@dataclass(frozen=True)
class Asked:
    """Codes of what is asked for, which other lines do not have, and the texts: each key with its values."""

    keys: np.ndarray
    values: np.ndarray
    texts: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class Parts:
    table: Table  # the beginning; the keys' columns; " is:"; the values' columns, with the end of the line
    keys: Columns
    values: Columns
    exact: bool

    @staticmethod
    def of(pen: Composer, drawn: Drawn, kinds: tuple[str, str], rng: np.random.Generator) -> Parts:
        """The same at every length."""
        keys, values = (_columns(kind, drawn, rng) for kind in kinds)
        values[-1] = [f"{text}.\n" for text in values[-1]]
        start, rest = NEEDLE.format(kind=kinds[1] + "s", key="\0", value="\1").split(" \0")
        middle = rest.partition(" \1")[0]
        parts = [
            ([start], "\n", " key"),
            *_neighbours(keys, " is"),
            ([middle], "key", " 1"),
            *_neighbours(values, "One"),
        ]
        table = Table.joined(*(pen.clean_table(texts, before, after) for texts, before, after in parts))
        first = 2 + sum(map(len, keys))
        return Parts(table, Columns.at(1, keys), Columns.at(first, values), pen.exact)

    def asked(self, keys: int, values: int, rng: np.random.Generator) -> Asked:
        """So many keys, each with so many values."""
        none = np.zeros(0, np.int64)
        chosen, given = self.keys.drawn(keys, rng, none), self.values.drawn(keys * values, rng, none)
        names, said = self._texts(self.keys.places(chosen)), self._texts(self.values.places(given))
        pairs = [(name, said[i * values : (i + 1) * values]) for i, name in enumerate(names)]
        return Asked(chosen, given, pairs)

    def lines(self, tokens: int, rng: np.random.Generator, asked: Asked) -> NeedleLines:
        """One sample's lines, more than have so many tokens."""
        count = int(1.2 * tokens / self._usual()) + 64
        keys = self.keys.places(self.keys.drawn(count, rng, asked.keys))
        codes = rng.integers(prod(self.values.sizes), size=len(keys) + len(asked.values))  # values may come twice
        values = self.values.places(codes[~np.isin(codes, asked.values)])
        count = min(len(keys), len(values))
        start, middle = np.zeros((count, 1), np.int64), np.full((count, 1), self.values.starts[0] - 1)
        order = np.hstack([start, keys[:count], middle, values[:count]])
        ends = np.cumsum(self.table.sizes[order].sum(1))
        return NeedleLines(pool=self.table, order=order, ends=ends, tail=len(self.values.sizes), exact=self.exact)

    def _usual(self) -> float:
        """Tokens of a line, in the mean."""
        both = (*zip(self.keys.starts, self.keys.sizes), *zip(self.values.starts, self.values.sizes))
        fixed = self.table.sizes[0] + self.table.sizes[self.values.starts[0] - 1]
        return float(fixed + sum(self.table.sizes[at : at + size].mean() for at, size in both))

    def _texts(self, places: np.ndarray) -> list[str]:
        texts = self.table.texts
        return ["".join(texts[i] for i in row)[1:].removesuffix(".\n") for row in places.tolist()]


def _columns(kind: str, drawn: Drawn, rng: np.random.Generator) -> list[list[str]]:
    """The parts of a kind, the first ones with the space before them."""
    if kind == "word":
        adjectives, nouns = (plain_words(part) for part in ("adjectives", "nouns"))
        return [[f" {word}" for word in adjectives], [f"-{word}" for word in nouns]]
    if kind == "uuid":
        cut = [drawn.one(kind, rng).split("-") for _ in range(UUIDS)]
        first, *others = zip(*cut, strict=True)
        return [[f" {part}" for part in first], *([f"-{part}" for part in column] for column in others)]
    return [[f" {number}" for number in drawn.distinct(kind, NUMBERS, rng, frozenset())]]


def _neighbours(columns: list[list[str]], following: str) -> list[tuple[list[str], str, str]]:
    """Each column with the text before it and after it."""
    last = len(columns) - 1
    return [(texts, "e" if i else "r", following if i == last else "-") for i, texts in enumerate(columns)]
