"""Prepares haystacks: essays, lines of noise, and lines that look like the needle.

A haystack is prepared once for a tokenizer. Its text has as many units (words or lines) as asked for, and can be cut
between any two of them:

    noise = RepeatedHaystack.of(composer, 4096)
    noise.units_within(3900)                                         # how many units have at most 3900 tokens
    noise.text_between(0, 40), noise.text_between(40, 162)           # pieces, to be joined by noise.joiner
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_
from typing import Protocol

import numpy as np

from levelfield.ruler.builders.sentences import starts
from levelfield.ruler.prompt.compose import Composer, Order, Piece, Slice, TokenBoundaryError, TokenTable
from levelfield.ruler.prompt.draws import NEEDLE, KeyValueSampler
from levelfield.tokenizer import Tokenizer

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
HEAD, SENTENCE, TAIL = "The", "The grass is green.", " again."  # its first word and sentence, its last word


class Haystack(Protocol):
    """One sample's haystack. Units are numbered from 0."""

    @property
    def joiner(self) -> str: ...

    def units_within(self, tokens: int) -> int:
        """How many units have about at most that many tokens."""
        ...

    def text_between(self, start: int, stop: int) -> list[str | Piece]:
        """The text of units `start` to `stop`, without a joiner at its ends."""
        ...

    def boundary(self, share: float, size: int) -> int:
        """The boundary between `size` units that is nearest to this share of the tokens."""
        ...

    def share(self, place: int, size: int) -> float:
        """The share of the tokens of `size` units that lies before this boundary."""
        ...

    def following(self, size: int) -> str:
        """The text of the unit that follows the first `size`."""
        ...


@dataclass(frozen=True)
class Lines:
    """What the two haystacks of lines share: all lines count as equally long."""

    joiner: str = "\n"

    def boundary(self, share: float, size: int) -> int:
        return round(share * size)

    def share(self, place: int, size: int) -> float:
        return place / size if size else 0.0


@dataclass(frozen=True)
class Essay:
    """Words of essays, starting at one of them and wrapping around at the end; needles go between sentences."""

    words: TokenTable  # each with a space before it
    sentences: np.ndarray  # places of first words
    begin: int = 0
    joiner: str = " "

    @staticmethod
    def of(composer: Composer, words: tuple[str, ...]) -> Essay:
        """Prepares essays, or takes those that were prepared for the same tokenizer, as many tasks and lengths need."""
        own = (composer.tokenizer, words)
        for *known, exact, essay in tuple(_PREPARED):
            if exact == composer.exact and all(map(is_, known, own)):
                return essay
        made = Essay(composer.clean_table([" " + w for w in words], ".", " a"), starts(words))
        _PREPARED.appendleft((*own, composer.exact, made))
        return made

    def from_sentence(self, number: int) -> Essay:
        """Starts the essays at this sentence."""
        return replace(self, begin=int(self.sentences[number % len(self.sentences)]))

    def _tokens(self, place: int) -> int:
        rounds, rest = divmod(self.begin + place, len(self.words))
        return int(rounds * self.words.starts[-1] + self.words.starts[rest] - self.words.starts[self.begin])

    def units_within(self, tokens: int) -> int:
        rounds, rest = divmod(int(self.words.starts[self.begin]) + max(tokens, 0), int(self.words.starts[-1]))
        inside = int(np.searchsorted(self.words.starts, rest, side="right")) - 1
        return max(rounds * len(self.words) + inside - self.begin, 0)

    def text_between(self, start: int, stop: int) -> list[str | Piece]:
        found: list[str | Piece] = []
        size = len(self.words)
        place = self.begin + start
        while place < self.begin + stop:
            rounds, first = divmod(place, size)
            last = min(self.begin + stop - rounds * size, size)
            lead = self.words.texts[first] if found else self.words.texts[first][1:]
            found += [lead, Slice(self.words, first + 1, last)]
            place = rounds * size + last
        return found

    @cached_property
    def _begins(self) -> np.ndarray:
        """(sentences,) starts of sentences after the first word, over three rounds, which suffice for most lengths."""
        rounds = np.arange(4)[:, None] * len(self.words)
        places = (self.sentences[None, :] + rounds).ravel() - self.begin
        return places[places >= 0]

    def sentences_in(self, size: int) -> np.ndarray:
        """Returns where sentences begin in the first `size` words: (sentences,) int64."""
        if self.begin + size > 4 * len(self.words):
            rounds = np.arange(-(-(self.begin + size) // len(self.words)))[:, None] * len(self.words)
            places = (self.sentences[None, :] + rounds).ravel() - self.begin
            return places[(places >= 0) & (places < size)]
        return self._begins[: np.searchsorted(self._begins, size)]

    def boundary(self, share: float, size: int) -> int:
        places = np.append(self.sentences_in(size), size)
        target = share * self._tokens(size)
        near = int(np.searchsorted(places, self.units_within(int(target))))
        around = places[max(near - 1, 0) : near + 1]
        return int(min(around, key=lambda place: abs(self._tokens(int(place)) - target)))

    def share(self, place: int, size: int) -> float:
        return self._tokens(place) / self._tokens(size) if size else 0.0

    def following(self, size: int) -> str:
        return self.words.texts[(self.begin + size) % len(self.words)]


_PREPARED: deque[tuple[Tokenizer, tuple[str, ...], bool, Essay]] = deque(maxlen=4)
"""The last essays, with the tokenizer and the words that they are of, and whether their ids are exact. Compared by
identity, since a tokenizer may be any object."""


@dataclass(frozen=True)
class RepeatedHaystack(Lines):
    """One line of noise, repeated: `NOISE`."""

    cycle: TokenTable | None = None  # a line but for its head, then the head of the next: over and over
    line_tokens: int = 1
    head: str = ""  # how a stretch begins; new text beside what is put there
    final: TokenTable | None = None  # the last line of a stretch, between head and end
    end: str = ""  # how a stretch ends

    @staticmethod
    def of(composer: Composer, tokens: int, between: str = "\n", end: str = "", joiner: str = "\n") -> RepeatedHaystack:
        """Prepares up to `tokens` tokens. between: the text between lines; end: the text after the last line."""
        head, final, last = SENTENCE, None, NOISE.removeprefix(SENTENCE)
        if composer.exact:
            with suppress(TokenBoundaryError):
                final = composer.clean_table([NOISE[len(HEAD) : -len(TAIL)]], HEAD, TAIL)
                head, last = HEAD, TAIL
        once = composer.clean_table([NOISE.removeprefix(head) + between + head], head[-1], " The")
        size = max(int(once.sizes[0]), 1)
        cycle = once.repeated(tokens // size + 2)
        return RepeatedHaystack(joiner, cycle=cycle, line_tokens=size, head=head, final=final, end=last + end)

    def units_within(self, tokens: int) -> int:
        return max(tokens // self.line_tokens, 0)

    def text_between(self, start: int, stop: int) -> list[str | Piece]:
        if start >= stop or self.cycle is None:
            return []
        final: list[str | Piece] = [Slice(self.final, 0, 1)] if self.final else []
        return [self.head, *_rows(self.cycle, stop - start - 1), *final, self.end]

    def following(self, size: int) -> str:
        return NOISE


def _rows(cycle: TokenTable, count: int) -> list[str | Piece]:
    """Takes `count` texts of a table that repeats one text."""
    found: list[str | Piece] = []
    while count > 0:
        found.append(Slice(cycle, 0, min(count, len(cycle))))
        count -= len(cycle)
    return found


@dataclass(frozen=True)
class NeedleLines(Lines):
    """Needle sentences with other keys, one a line, drawn without replacement from a pool of keys and of values."""

    pool: TokenTable | None = None  # the beginning; then keys; " is:"; then values, with the end of the line
    keys: int = 0
    order: np.ndarray | None = None  # (lines, parts) places in the pool
    ends: np.ndarray | None = None  # (lines,) tokens up to the end of each line
    tail: int = 1  # parts of a line that are its value
    exact: bool = True  # the pool's ids, not only about as many

    @staticmethod
    def of(
        composer: Composer, sampler: KeyValueSampler, kinds: tuple[str, str], tokens: int, rng: np.random.Generator
    ) -> NeedleLines:
        """Draws a pool for lines of up to that many tokens. kinds: of keys and of values."""
        key, value = kinds
        start, middle = NEEDLE.format(kind=value + "s", key="\0", value="\1").partition(" \1")[0].split("\0")
        fixed = composer.between(start[:-1], "\n", " key").size + composer.between(middle, "key", " 1").size
        some = [composer.encode(sampler.one(key, rng) + sampler.one(value, rng)).size for _ in range(64)]
        count = int(1.5 * tokens / (fixed + sum(some) / len(some))) + 64
        keys = list(dict.fromkeys(" " + sampler.one(key, rng) for _ in range(count)))
        values = [f" {sampler.one(value, rng)}.\n" for _ in range(count)]
        table = TokenTable.joined(
            composer.clean_table([start[:-1]], "\n", " key"),
            composer.clean_table(keys, "for", " is"),
            composer.clean_table([middle], "key", " 1"),
            composer.clean_table(values, ":", "One"),
        )
        return NeedleLines(pool=table, keys=len(keys), exact=composer.exact)

    def known(self) -> frozenset[str]:
        """Returns all keys of the pool."""
        return frozenset(t[1:] for t in self.pool.texts[1 : self.keys + 1]) if self.pool else frozenset()

    def drawn(self, rng: np.random.Generator) -> NeedleLines:
        """Draws one sample's lines."""
        assert self.pool is not None
        values = len(self.pool) - self.keys - 2
        lines = min(self.keys, values)
        order = np.zeros((lines, 4), np.int64)
        order[:, 1] = 1 + rng.permutation(self.keys)[:lines]
        order[:, 2] = 1 + self.keys
        order[:, 3] = 2 + self.keys + rng.permutation(values)[:lines]
        return replace(self, order=order, ends=np.cumsum(self.pool.sizes[order].sum(1)))

    def units_within(self, tokens: int) -> int:
        assert self.ends is not None
        return int(np.searchsorted(self.ends, tokens, side="right"))

    def text_between(self, start: int, stop: int) -> list[str | Piece]:
        if start >= stop or self.pool is None or self.order is None:
            return []
        stop = min(stop, len(self.order))
        if not self.exact:
            whole = [Order(self.pool, self.order[start : stop - 1].ravel())] if stop - start > 1 else []
            return [*whole, self.following(stop - 1)]
        places = self.order[start:stop].ravel()[: -self.tail]  # the last value is new: it has no line's end
        value = "".join(self.pool.texts[i] for i in self.order[stop - 1, -self.tail :]).removesuffix("\n")
        return [Order(self.pool, places, self._tokens(start, stop)), value]

    def _tokens(self, start: int, stop: int) -> int:
        """Counts the tokens of these lines without the last value."""
        assert self.pool is not None and self.order is not None and self.ends is not None
        before = self.ends[start - 1] if start else 0
        return int(self.ends[stop - 1] - before - self.pool.sizes[self.order[stop - 1, -self.tail :]].sum())

    def following(self, size: int) -> str:
        if self.pool is None or self.order is None or size >= len(self.order):
            return ""
        return "".join(self.pool.texts[i] for i in self.order[size]).rstrip("\n")
