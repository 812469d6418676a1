"""Builds numbered lists in which ten words are more frequent than all others, after one solved example.

Below is a numbered list of words. ... 1. harbor 2. tense 3. harbor ...
Question: What are the 10 most common words in the above list? Answer: ...
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from levelfield.ruler.prompt.compose import Order, Piece, TokenTable
from levelfield.ruler.prompt.draws import shuffled
from levelfield.ruler.prompt.fit import SLACK, DoesNotFit, PromptDraft, common_size, shrink_to_fit, too_short
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.sources import dictionary, wonderwords
from levelfield.ruler.tasks import CommonWords

TASK = (
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
    "appear most often.\n{context}\nQuestion: What are the 10 most common words in the above list?"
)
ANSWER = " Answer: The top 10 words that appear most often in the list are:"
LONG, SHORT, EVEN = (30, 3), (6, 1), (10, 1)  # how often common words and others are listed

FIRST_SEARCH = 4096  # words of the sample from which RULER estimates the size


@dataclass(frozen=True)
class Example:
    """How many words the solved example has, and how often it lists common words and others."""

    words: int
    common: int
    others: int


LONG_EXAMPLE, SHORT_EXAMPLE = Example(40, 10, 3), Example(20, 3, 1)


@dataclass(frozen=True)
class Distinct:
    """The index of each text of a table, and (n,) which are not part of another text, in it or in the small table."""

    places: dict[str, int]
    alone: np.ndarray

    @staticmethod
    def of(table: TokenTable, small: TokenTable) -> Distinct:
        alone = inside_none(frozenset(text[1:] for part in (table, small) for text in part.texts))
        places = {text: place for place, text in enumerate(table.texts)}
        return Distinct(places, np.array([text[1:] in alone for text in table.texts]))


@lru_cache(maxsize=4)
def inside_none(words: frozenset[str]) -> frozenset[str]:
    """Returns the words that are not part of another one."""
    parts = {word[i:j] for word in words for i, j in combinations(range(len(word) + 1), 2) if j - i < len(word)}
    return words - parts


class WordLists:
    """Builds samples of common words at one length."""

    def __init__(self, setting: Setting, task: CommonWords) -> None:
        self.setting, self.common = setting, task.common
        self.composer, self.flavour = setting.composer, setting.flavour
        before, after = setting.around
        whole = before + TASK.replace(" 10 ", f" {task.common} ") + after + ANSWER.replace(" 10 ", f" {task.common} ")
        self.head, _, self.rest = whole.partition("{context}")
        least = 0 if self.flavour.exact else 3 * FIRST_SEARCH + 400
        self.numbers = self.composer.clean_table(
            [f" {n + 2}." for n in range(max(setting.length // 2 + 400, least))], "a", " a"
        )
        self.small = self._with_numbers(self._plain(wonderwords()))
        self._large: TokenTable | None = None
        self._distinct: dict[TokenTable, Distinct] = {}
        self.repeats, self.example = self._frequencies()
        self.size = 0
        if not self.flavour.exact:
            rng = setting.rng("search")
            most = len(wonderwords()) if self.flavour.search == "linear" else None
            high = int(setting.length // (self._searched(FIRST_SEARCH, rng) / FIRST_SEARCH)) * 2
            search = lambda n: self._searched(n, rng)  # noqa: E731
            self.size = common_size(
                self.flavour, search, setting.room, step=self.flavour.word_step, high=high, most=most
            )

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        if self.flavour.exact:
            return self._filled(rng, room)
        return shrink_to_fit(
            lambda size: self._drawn(size, rng), self.composer, room, self.size, self.flavour.word_step
        )

    def _plain(self, words: tuple[str, ...]) -> tuple[str, ...]:
        exact = self.flavour.exact
        return tuple(w for w in words if not exact or (w.isascii() and w.isalpha() and w.islower()))

    def _with_numbers(self, words: tuple[str, ...]) -> TokenTable:
        """Makes a table of the numbers from 2 on, then the words."""
        return TokenTable.joined(self.numbers, self.composer.clean_table([" " + w for w in words], "1.", " 2."))

    def _words(self, count: int) -> TokenTable:
        """Returns a table with at least that many words: RULER's own, or the dictionary."""
        if count <= len(self.small) - len(self.numbers):
            return self.small
        self._large = self._large or self._with_numbers(self._plain(dictionary(self.setting.sources.words)))
        if count > len(self._large) - len(self.numbers):
            raise DoesNotFit(
                f"A list of {count:,} different words needs a larger dictionary: name a file of them (--words FILE)."
            )
        return self._large

    def _frequencies(self) -> tuple[tuple[int, int], Example]:
        """Chooses how often words are listed: by the length as in RULER; in `sound` always ten to one, or 30 to 3 if
        common words then fill at most half the list."""
        if not self.flavour.exact:
            return (LONG, LONG_EXAMPLE) if self.setting.length >= 4096 else (SHORT, SHORT_EXAMPLE)
        entry = float(self.small.sizes[len(self.numbers) :].mean() + self.numbers.sizes[:999].mean())
        example = LONG_EXAMPLE.common * self.common + LONG_EXAMPLE.others * (LONG_EXAMPLE.words - self.common)
        fixed = 2 * self.composer.size([self.head, " a", self.rest])
        room = self.setting.room - fixed - example * entry
        return (LONG, LONG_EXAMPLE) if LONG[0] * self.common * entry <= room / 2 else (EVEN, SHORT_EXAMPLE)

    def _list(self, table: TokenTable, entries: np.ndarray) -> list[str | Piece]:
        """Makes the pieces of "1. word 2. word ..."; entries are indices of words in the table."""
        if len(entries) - 1 > len(self.numbers):
            raise too_short(self.setting.room, len(entries) * 2)
        order = np.empty(2 * len(entries) - 1, np.int64)
        order[0::2] = entries
        order[1::2] = np.arange(len(entries) - 1)
        return [self.head, "1.", Order(table, order), self.rest]

    def _solved(self, words: np.ndarray, rng: np.random.Generator) -> list[str | Piece]:
        """Builds the solved example. Its words are new in every sample; in RULER's own variants their order is not."""
        example = self.example
        entries = self._entries(words, example.common, example.others)
        texts = [self.small.texts[i] for i in words[: self.common]]
        gap = "" if self.flavour.search == "linear" else " "
        answer = gap + " ".join(f"{i + 1}.{word}" for i, word in enumerate(texts)) + "\n"
        return [*self._list(self.small, entries[self._order(len(entries), rng)]), answer]

    def _chosen(self, table: TokenTable, count: int, rng: np.random.Generator) -> np.ndarray:
        first = len(self.numbers)
        return first + rng.permutation(len(table) - first)[:count]

    def _apart(self, table: TokenTable, words: np.ndarray, shown: np.ndarray) -> np.ndarray:
        """Drops the example's words and puts words that are part of no other word first, as answers. Then neither
        copying the example nor naming a longer word names an answer."""
        if table not in self._distinct:
            self._distinct[table] = Distinct.of(table, self.small)
        known = self._distinct[table]
        shown_here = [known.places[text] for i in shown if (text := self.small.texts[i]) in known.places]
        words = words[~np.isin(words, shown_here)]
        answers = words[known.alone[words]][: self.common]
        return np.concatenate([answers, words[~np.isin(words, answers)]])

    def _entries(self, words: np.ndarray, common: int, others: int) -> np.ndarray:
        return np.concatenate([np.tile(words[: self.common], common), np.tile(words[self.common :], others)])

    def _order(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return shuffled(count, self.setting.seed) if self.flavour.fixed_order else rng.permutation(count)

    def _drawn(self, size: int, rng: np.random.Generator) -> PromptDraft:
        table = self._words(size)
        example = self._solved(self._chosen(self.small, self.example.words, rng), rng)
        words = self._chosen(table, size, rng)
        entries = self._entries(words, *self.repeats)
        return self._made(example, table, entries[self._order(len(entries), rng)], words, size)

    def _searched(self, size: int, rng: np.random.Generator) -> int:
        """Counts the tokens of a new sample; `paper` counts the answer too."""
        draft = self._drawn(size, rng)
        answer = "".join(f" {i + 1}. {word}" for i, word in enumerate(draft.references))
        return self.composer.size([*draft.pieces, answer] if self.flavour.search == "linear" else draft.pieces)

    def _made(
        self, example: list[str | Piece], table: TokenTable, entries: np.ndarray, words: np.ndarray, size: int
    ) -> PromptDraft:
        answers = tuple(table.texts[i][1:] for i in words[: self.common])
        return PromptDraft(
            [*example, *self._list(table, entries)], answers, (), (("words", size), ("entries", len(entries)))
        )

    def _filled(self, rng: np.random.Generator, room: int) -> PromptDraft:
        """Fills the room with other words; the last ones are listed once, to reach the length exactly."""
        common, others = self.repeats
        shown = self._chosen(self.small, self.example.words, rng)
        example = self._solved(shown, rng)
        table = self._words(self.common + max(room // (2 * others + 1), 1) if room > 60_000 else 0)
        words = self._apart(table, self._chosen(table, len(table), rng), shown)
        entries = np.tile(words[: self.common], common)
        left = room - self.composer.size([*example, *self._list(table, entries)])
        if left < 0:
            raise too_short(room, room - left)
        whole, once = self._chosen_to_fit(table, words[self.common :], left, len(entries), others)
        rare = words[self.common : self.common + whole]
        entries = np.concatenate([entries, np.tile(rare, others), once])
        return self._made(example, table, rng.permutation(entries), words, self.common + whole + len(once))

    def _chosen_to_fit(
        self, table: TokenTable, words: np.ndarray, left: int, listed: int, times: int
    ) -> tuple[int, np.ndarray]:
        """Returns how many words are listed `times`, and which once, so that at most SLACK of `left` remain."""
        numbers = np.concatenate([[0], np.cumsum(table.sizes[listed - 1 : len(self.numbers)])])
        count = min(len(words), (len(numbers) - 1) // times)
        costs = numbers[times : times * count + 1 : times] + times * np.cumsum(table.sizes[words[:count]])
        whole = int(np.searchsorted(costs, left, side="right"))
        for fewer in range(whole, -1, -1):
            rest = left - int(costs[fewer - 1]) if fewer else left
            once = self._once(table, words[fewer:], rest, numbers[times * fewer :])
            if once is not None:
                return fewer, once
        raise too_short(left, left + SLACK)

    def _once(self, table: TokenTable, words: np.ndarray, left: int, numbers: np.ndarray) -> np.ndarray | None:
        """Chooses words listed once that leave at most SLACK; None if no such choice is found."""
        found: list[int] = []
        sizes = table.sizes[words]
        while left > SLACK:
            number = int(numbers[len(found) + 1] - numbers[len(found)])
            exact = np.flatnonzero((sizes <= left - number) & (sizes >= left - number - SLACK))
            if len(exact):
                return words[[*found, exact[0]]]
            if not len(found) < min(8, len(words)) or number + sizes.max() > left:
                return None
            left -= number + int(sizes[len(found)])
            found.append(len(found))
            sizes = sizes.copy()
            sizes[: len(found)] = -1_000_000  # taken
        return words[found]
