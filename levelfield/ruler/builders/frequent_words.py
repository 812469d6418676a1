"""Builds texts of random words whose counts follow a zeta distribution; the most frequent word is dots.

... coded words. ... qwkzub ... ... atlpye ... qwkzub ...
Question: ... What are the three most frequently appeared words in the above coded text? Answer: ...
"""

from __future__ import annotations

import string

import numpy as np

from levelfield.ruler.prompt.compose import Order, Piece, TokenTable
from levelfield.ruler.prompt.draws import random_words, shuffled
from levelfield.ruler.prompt.fit import SLACK, PromptDraft, too_short
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.tasks import FrequentWords

TASK = (
    "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared "
    "coded words. {context}\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the "
    "three most frequently appeared words in the above coded text?"
)
ANSWER = " Answer: According to the coded text above, the three most frequently appeared words are:"
LETTERS = 6
ASKED = 3
TERMS = 100_000  # of the zeta function


def zeta(alpha: float) -> float:
    """Computes Riemann's zeta function for alpha > 1 to ten digits: a sum and two Euler-Maclaurin terms."""
    k = np.arange(1, TERMS, dtype=np.float64)
    return float((k**-alpha).sum() + TERMS ** (1 - alpha) / (alpha - 1) + 0.5 * TERMS**-alpha)


class CodedTexts:
    """Builds samples of coded frequent words at one length."""

    def __init__(self, setting: Setting, task: FrequentWords) -> None:
        self.setting, self.task = setting, task
        self.composer, self.flavour = setting.composer, setting.flavour
        before, after = setting.around
        self.head, _, self.rest = (before + TASK + after + ANSWER).partition("{context}")
        self.room = setting.room
        ranks = max(self.room // 50, ASKED + 2)
        self.shares = np.arange(1, ranks + 1) ** -task.alpha / zeta(task.alpha)
        self.vocabulary = int(np.count_nonzero(self._counts(self.room)))
        self.by = max(self.room // 32, 1)
        self.size = 0
        if not self.flavour.exact:
            self.size = self._common_size(setting.rng("search"))

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        table = self._table(rng)
        size = self.size or self._largest(table, room)
        if not self.flavour.exact:
            while self._total(table, self._counts(size)) > room:
                size -= self.by
                if size <= 0:
                    raise too_short(self.room, self._fixed(table))
        counts = self._counts(size)
        if self.flavour.exact:
            left = room - self._total(table, counts)
            counts[0] += max(0, -(-(left - SLACK) // int(table.sizes[0])))
        if counts[ASKED] <= counts[ASKED + 1]:
            raise too_short(self.room, self._fixed(table) + 100 * int(table.sizes.max()))
        words = np.repeat(np.arange(len(counts)), counts)
        order = words[self._order(len(words), rng)]
        pieces: list[str | Piece] = [self.head.rstrip(" "), Order(table, order), self.rest]
        answers = tuple(text[1:] for text in table.texts[1 : ASKED + 1])
        return PromptDraft(pieces, answers, (), (("entries", len(order)), ("words", int(np.count_nonzero(counts)))))

    def _counts(self, size: int) -> np.ndarray:
        """Returns how often each rank occurs among about `size` words: (ranks,) int64."""
        counts = (size * self.shares).astype(np.int64)
        return counts[: max(int(np.count_nonzero(counts)), ASKED + 2)]

    def _table(self, rng: np.random.Generator) -> TokenTable:
        """Makes a table of the dots, then new words by rank."""
        words = random_words(max(self.vocabulary, ASKED + 2) - 1, LETTERS, rng, string.ascii_lowercase)
        return self.composer.clean_table([" ...", *(" " + word for word in words)], "a", " a")

    def _order(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return shuffled(count, self.setting.seed) if self.flavour.fixed_order else rng.permutation(count)

    def _fixed(self, table: TokenTable) -> int:
        """Counts the tokens of the prompt without the coded text."""
        both = self.composer.size([self.head.rstrip(" "), Order(table, np.arange(2)), self.rest])
        return both - int(table.sizes[:2].sum())

    def _total(self, table: TokenTable, counts: np.ndarray) -> int:
        return self._fixed(table) + int(counts @ table.sizes[: len(counts)])

    def _largest(self, table: TokenTable, room: int) -> int:
        """Finds the largest number of words that fits."""
        low, high = 0, room
        while low < high:
            middle = (low + high + 1) // 2
            if self._total(table, self._counts(middle)) <= room:
                low = middle
            else:
                high = middle - 1
        return low

    def _common_size(self, rng: np.random.Generator) -> int:
        """Finds RULER's size: from a sixth of the length up by 32nds until one text is too long, then one step back."""
        table, size = self._table(rng), self.room // LETTERS
        while size <= self.room and self._total(table, self._counts(size)) < self.room:
            size += self.by
        return max(size - self.by, 1)
