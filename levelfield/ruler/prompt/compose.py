"""Composes prompts from pieces with known ids, equal to what tokenising the joined text gives.

    composer = Composer(tokenizer)
    words = composer.table([" the", " cat", ...], before=".", after=" a")    # each tokenised once, between neighbours
    composer.compose(["One of ", Slice(words, 10, 90000), "\nWhat is it?"])  # (n,) int32

A piece begins with a space or after a line end, where tokenizers start a new token; its ids are those between two
neighbours. What is new in a sample (a needle, a question) is tokenised together with the pieces beside it, whose ids
must come out unchanged. Otherwise `TokenBoundaryError` is raised and the sample is tokenised as a whole, so that ids
are right at every boundary, whatever the tokenizer.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from levelfield.ruler.sample import PromptPart
from levelfield.tokenizer import Tokenizer

NEAR = 24  # characters of a piece that a new text is tokenised with
CACHED = 512  # newly tokenised texts that are kept, since fitting a sample meets the same ones several times
CUT = re.compile(r"(?<=\S) (?=\S)")  # where a known text may begin or end


class TokenBoundaryError(Exception):
    """Raised where the ids of parts are not those of the whole."""


class Piece(PromptPart, Protocol):
    """Text with known ids. `first` and `last` are the texts at its ends, needed to tokenise its neighbours."""

    @property
    def size(self) -> int: ...

    @property
    def first(self) -> str: ...

    @property
    def last(self) -> str: ...

    def ids(self) -> np.ndarray: ...


class TokenTable:
    """Texts and their ids, concatenated. `dirty` lists the texts whose tokens merge with their neighbours'."""

    def __init__(self, texts: Sequence[str], ids: Sequence[np.ndarray], dirty: frozenset[int] = frozenset()) -> None:
        self.texts = list(texts)
        self.sizes = np.array([len(i) for i in ids], np.int64)
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])
        self.flat = np.concatenate([np.zeros(0, np.int32), *ids]).astype(np.int32)
        self.dirty = dirty

    def __len__(self) -> int:
        return len(self.texts)

    def pick(self, order: np.ndarray) -> np.ndarray:
        """Concatenates the ids of the texts at these (m,) indices: (n,) int32."""
        sizes = self.sizes[order]
        ends = np.cumsum(sizes)
        places = np.repeat(self.starts[order] - ends + sizes, sizes)
        places += np.arange(len(places))
        return self.flat.take(places)

    def repeated(self, times: int) -> TokenTable:
        """Repeats the texts, for slices of any length."""
        return TokenTable(self.texts * times, [self.flat[a:b] for a, b in zip(self.starts, self.starts[1:])] * times)

    @staticmethod
    def joined(*tables: TokenTable) -> TokenTable:
        """Joins several tables into one; indices count on from table to table."""
        ids = [t.flat[a:b] for t in tables for a, b in zip(t.starts, t.starts[1:])]
        return TokenTable([text for t in tables for text in t.texts], ids)


@dataclass(frozen=True, eq=False)
class Slice:
    """Texts `start` to `stop` of a table."""

    table: TokenTable
    start: int
    stop: int

    @property
    def size(self) -> int:
        return int(self.table.starts[self.stop] - self.table.starts[self.start])

    @property
    def first(self) -> str:
        return self.table.texts[self.start]

    @property
    def last(self) -> str:
        return self.table.texts[self.stop - 1]

    def ids(self) -> np.ndarray:
        return self.table.flat[self.table.starts[self.start] : self.table.starts[self.stop]]

    def text(self) -> str:
        return "".join(self.table.texts[self.start : self.stop])


@dataclass(frozen=True, eq=False)
class Order:
    """Texts of a table in any order, with repetitions."""

    table: TokenTable
    order: np.ndarray  # (m,) indices of texts
    tokens: int | None = None  # how many ids they have, if that is known

    @property
    def size(self) -> int:
        return self.tokens if self.tokens is not None else int(self.table.sizes[self.order].sum())

    @property
    def first(self) -> str:
        return self.table.texts[self.order[0]]

    @property
    def last(self) -> str:
        return self.table.texts[self.order[-1]]

    def ids(self) -> np.ndarray:
        return self.table.pick(self.order)

    def text(self) -> str:
        texts = self.table.texts
        return "".join([texts[i] for i in self.order.tolist()])


@dataclass(frozen=True, eq=False)
class Joined:
    """Several pieces composed once, to be used as one."""

    parts: tuple[str | Piece, ...]
    first: str
    last: str
    whole: np.ndarray

    @property
    def size(self) -> int:
        return len(self.whole)

    def ids(self) -> np.ndarray:
        return self.whole

    def text(self) -> str:
        return text_of(self.parts)


Pieces = Sequence[str | Piece]


class Composer:
    """Composes ids of pieces with one tokenizer. `exact=False` accepts tokens that merge; ids are then an estimate."""

    def __init__(self, tokenizer: Tokenizer, exact: bool = True) -> None:
        self.tokenizer = tokenizer
        self.exact = exact
        self._ends: dict[tuple[str, str], list[int]] = {}
        self._recent: OrderedDict[tuple[str, str, str], np.ndarray] = OrderedDict()
        self._known: dict[str, list[str | Piece]] = {}

    def encode(self, text: str) -> np.ndarray:
        return np.array(self.tokenizer.encode(text), np.int32)

    def between(self, text: str, before: str = "", after: str = "") -> np.ndarray:
        """Returns the (n,) ids of `text` between the two. Raises TokenBoundaryError if they merge."""
        key = (text, before, after)
        if key not in self._recent:
            self._recent[key] = self._between(*key)
            if len(self._recent) > CACHED:
                self._recent.popitem(last=False)
        return self._recent[key]

    def _between(self, text: str, before: str, after: str) -> np.ndarray:
        whole = self.tokenizer.encode(before + text + after)
        head, tail = self._before(before), self._after(text[-1:], after)
        stop = len(whole) - len(tail)
        if len(head) > stop or whole[: len(head)] != head or whole[stop:] != tail:
            if self.exact:
                raise TokenBoundaryError(f"{before!r} + {text!r} + {after!r}")
            whole = self.tokenizer.encode(text)
            head, stop = [], len(whole)
        return np.array(whole[len(head) : stop], np.int32)

    def _before(self, text: str) -> list[int]:
        """Returns the ids of `text` before a letter, since line ends often have other ids at the end of a text."""
        if not text:
            return []
        if (text, "") not in self._ends:
            letter = self._after(text[-1], "A") if text[-1].isspace() else []
            whole = self.tokenizer.encode(text + "A" if letter else text)
            stop = len(whole) - len(letter)
            if whole[stop:] != letter and self.exact:
                raise TokenBoundaryError(f"{text!r} + 'A'")
            self._ends[text, ""] = whole[:stop]
        return self._ends[text, ""]

    def _after(self, letter: str, text: str) -> list[int]:
        """Returns the ids of `text` after one letter."""
        if not text:
            return []
        if (letter, text) not in self._ends:
            head, whole = self.tokenizer.encode(letter) if letter else [], self.tokenizer.encode(letter + text)
            if whole[: len(head)] != head and self.exact:
                raise TokenBoundaryError(f"{letter!r} + {text!r}")
            self._ends[letter, text] = whole[len(head) :]
        return self._ends[letter, text]

    def table(self, texts: Sequence[str], before: str, after: str) -> TokenTable:
        """Tokenises each text once between the same neighbours, and marks those that merge with them."""
        known: dict[str, np.ndarray] = {}
        dirty: set[str] = set()
        for text in dict.fromkeys(texts):
            try:
                known[text] = self._between(text, before, after)
            except TokenBoundaryError:
                known[text] = self.encode(text)
                dirty.add(text)
        return TokenTable(texts, [known[t] for t in texts], frozenset(i for i, t in enumerate(texts) if t in dirty))

    def clean_table(self, texts: Sequence[str], before: str, after: str) -> TokenTable:
        """Makes the same table, but raises TokenBoundaryError if any text merges with its neighbours."""
        table = self.table(texts, before, after)
        if table.dirty and self.exact:
            raise TokenBoundaryError(f"{before!r} + {table.texts[min(table.dirty)]!r} + {after!r}")
        return table

    def known(self, text: str) -> list[str | Piece]:
        """Tokenises a text that many samples share once, but for its first and last word, which stay text because their
        neighbours vary. All of it stays text if nothing is saved or tokens would merge."""
        if text not in self._known:
            self._known[text] = self._cut_out(text)
        return list(self._known[text])

    def _cut_out(self, text: str) -> list[str | Piece]:
        cuts = [found.start() for found in CUT.finditer(text)]
        if not self.exact or not cuts or cuts[-1] - cuts[0] <= NEAR:
            return [text]
        lead, middle, end = text[: cuts[0]], text[cuts[0] : cuts[-1]], text[cuts[-1] :]
        try:
            return [lead, Slice(self.clean_table([middle], lead[-NEAR:], end[:NEAR]), 0, 1), end]
        except TokenBoundaryError:
            return [text]

    def slotted(self, texts: Sequence[str], value: str) -> list[str | Piece]:
        """Makes the pieces of `value.join(texts)`, where the texts are known and the value is new."""
        found = self.known(texts[0])
        for text in texts[1:]:
            found += [value, *self.known(text)]
        return found

    def joined(self, pieces: Pieces) -> list[str | Piece]:
        """Joins the pieces into few, so that fitting beside them is cheap. New texts at the ends stay as they are."""
        parts = merged(pieces)
        places = [i for i, part in enumerate(parts) if not isinstance(part, str)]
        if not self.exact or len(places) < 2:
            return parts
        begin, end = places[0], places[-1]
        inner = tuple(parts[begin : end + 1])
        first, last = inner[0], inner[-1]
        assert not isinstance(first, str) and not isinstance(last, str)
        return [*parts[:begin], Joined(inner, first.first, last.last, self.compose(inner)), *parts[end + 1 :]]

    def size(self, pieces: Pieces) -> int:
        """Counts the ids that `compose` would return, without composing them."""
        return sum(len(p) if isinstance(p, np.ndarray) else p.size for p in self._filled(merged(pieces)))

    def compose(self, pieces: Pieces) -> np.ndarray:
        """Composes the ids of the whole: (n,) int32. Raises TokenBoundaryError."""
        filled = self._filled(merged(pieces))
        return np.concatenate([p if isinstance(p, np.ndarray) else p.ids() for p in filled])

    def _filled(self, pieces: Pieces) -> list[np.ndarray | Piece]:
        """Tokenises new texts between the ends of the pieces beside them."""
        filled: list[np.ndarray | Piece] = []
        for i, piece in enumerate(pieces):
            if not isinstance(piece, str):
                filled.append(piece)
                continue
            left, right = pieces[i - 1] if i else "", pieces[i + 1] if i + 1 < len(pieces) else ""
            before = "" if isinstance(left, str) else left.last[-NEAR:]
            filled.append(self.between(piece, before, "" if isinstance(right, str) else right.first[:NEAR]))
        return filled


def text_of(pieces: Pieces) -> str:
    return "".join(piece if isinstance(piece, str) else piece.text() for piece in pieces)


def merged(pieces: Pieces) -> list[str | Piece]:
    """Merges neighbouring new texts into one, and drops empty pieces."""
    found: list[str | Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, str):
            if isinstance(last, str):
                found[-1] = last + piece
            elif piece:
                found.append(piece)
        elif piece.size:
            found.append(piece)
    return found
