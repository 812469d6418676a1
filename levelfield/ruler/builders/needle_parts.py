"""Draws lines of needles whose keys and values are recombined in every sample, from parts tokenised once.

    parts = Parts.of(composer, KeyValueSampler(), ("word", "number"), rng)
    asked = parts.asked(1, 1, rng)             # one key with one value
    lines = parts.lines(600, rng, asked)       # 600 tokens of other keys and values

A key is cut at its hyphens, where tokenizers start a new token: 912 adjectives and 6,782 nouns give six million words,
and five columns of 1,024 parts give 10^15 UUIDs. So samples hardly share keys, and what is asked for is drawn like all
other lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from levelfield.ruler.builders.haystack import NeedleLines
from levelfield.ruler.prompt.compose import Composer, TokenTable
from levelfield.ruler.prompt.draws import NEEDLE, KeyValueSampler, plain_words

UUIDS, NUMBERS = 1024, 8192  # how many are drawn: UUIDs to be cut into parts, numbers to stay whole


@dataclass(frozen=True)
class Columns:
    """Columns of a table that make up keys, or values. starts, sizes: where they lie in the table."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def at(start: int, columns: list[list[str]]) -> Columns:
        sizes = tuple(len(column) for column in columns)
        return Columns(tuple(int(start + sum(sizes[:i])) for i in range(len(sizes))), sizes)

    def drawn(self, count: int, rng: np.random.Generator, without: np.ndarray) -> np.ndarray:
        """Draws (count,) codes or fewer, all different and none of them in `without`."""
        total = prod(self.sizes)
        codes = rng.choice(total, min(count + len(without), total), replace=False)
        return codes[~np.isin(codes, without)][:count]

    def places(self, codes: np.ndarray) -> np.ndarray:
        """Turns (count,) codes into (count, columns) indices of the table."""
        return np.stack(np.unravel_index(codes, self.sizes), 1) + np.array(self.starts)


@dataclass(frozen=True)
class AskedKeys:
    """Codes of what is asked for, which other lines avoid, and its texts: each key with its values."""

    keys: np.ndarray
    values: np.ndarray
    texts: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class Parts:
    """Parts of keys and values in one table, with the text between them."""

    table: TokenTable  # the beginning; the keys' columns; " is:"; the values' columns, with the end of the line
    keys: Columns
    values: Columns
    exact: bool

    @staticmethod
    def of(composer: Composer, sampler: KeyValueSampler, kinds: tuple[str, str], rng: np.random.Generator) -> Parts:
        """Prepares the parts, which are the same at every length. kinds: of keys and of values."""
        keys, values = (_columns(kind, sampler, rng) for kind in kinds)
        values[-1] = [f"{text}.\n" for text in values[-1]]
        start, rest = NEEDLE.format(kind=kinds[1] + "s", key="\0", value="\1").split(" \0")
        middle = rest.partition(" \1")[0]
        parts = [
            ([start], "\n", " key"),
            *_neighbours(keys, " is"),
            ([middle], "key", " 1"),
            *_neighbours(values, "One"),
        ]
        table = TokenTable.joined(*(composer.clean_table(texts, before, after) for texts, before, after in parts))
        first = 2 + sum(map(len, keys))
        return Parts(table, Columns.at(1, keys), Columns.at(first, values), composer.exact)

    def asked(self, keys: int, values: int, rng: np.random.Generator) -> AskedKeys:
        """Draws `keys` keys, each with `values` values."""
        none = np.zeros(0, np.int64)
        chosen, given = self.keys.drawn(keys, rng, none), self.values.drawn(keys * values, rng, none)
        names, said = self._texts(self.keys.places(chosen)), self._texts(self.values.places(given))
        pairs = [(name, said[i * values : (i + 1) * values]) for i, name in enumerate(names)]
        return AskedKeys(chosen, given, pairs)

    def lines(self, tokens: int, rng: np.random.Generator, asked: AskedKeys) -> NeedleLines:
        """Draws one sample's lines, more than `tokens` tokens of them."""
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
        """Returns the mean number of tokens in a line."""
        both = (*zip(self.keys.starts, self.keys.sizes), *zip(self.values.starts, self.values.sizes))
        fixed = self.table.sizes[0] + self.table.sizes[self.values.starts[0] - 1]
        return float(fixed + sum(self.table.sizes[at : at + size].mean() for at, size in both))

    def _texts(self, places: np.ndarray) -> list[str]:
        texts = self.table.texts
        return ["".join(texts[i] for i in row)[1:].removesuffix(".\n") for row in places.tolist()]


def _columns(kind: str, sampler: KeyValueSampler, rng: np.random.Generator) -> list[list[str]]:
    """Lists the parts of a kind in columns; those of the first column begin with a space."""
    if kind == "word":
        adjectives, nouns = (plain_words(part) for part in ("adjectives", "nouns"))
        return [[f" {word}" for word in adjectives], [f"-{word}" for word in nouns]]
    if kind == "uuid":
        cut = [sampler.one(kind, rng).split("-") for _ in range(UUIDS)]
        first, *others = zip(*cut, strict=True)
        return [[f" {part}" for part in first], *([f"-{part}" for part in column] for column in others)]
    return [[f" {number}" for number in sampler.distinct(kind, NUMBERS, rng, frozenset())]]


def _neighbours(columns: list[list[str]], following: str) -> list[tuple[list[str], str, str]]:
    """Pairs each column with the text before it and after it."""
    last = len(columns) - 1
    return [(texts, "e" if i else "r", following if i == last else "-") for i, texts in enumerate(columns)]
