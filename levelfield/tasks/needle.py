"""Needles in generated text: which value followed this key, at any distance and in any context?

    the cat sat . k7 v3 the cat sat . k2 v9 the cat sat . the  ? k7        -> v3

Pairs of a key and a value are hidden in a haystack of words, and at the end a key is asked for. These are RULER's
needle tests (Hsieh et al. 2024; huang2024, section 4) at the size of models that are trained here: words are symbols,
and a model can know only the distributions of the haystacks beforehand. Three haystacks are mixed, as in RULER:

    repeat      one repeated sentence                             RULER's noise
    essay       words drawn from a fixed Markov chain             RULER's essays
    pairs       other pairs of keys and values                    RULER's needles

Training sequences ask for several keys, with the values between them. In validation and test one key is asked for, at
the last step, and the slices `depth` and `format` say where in the text it is and in which haystack. Depth 0 is the
first tenth of the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import ClassVar

import numpy as np

from levelfield.spec import (
    SPLITS,
    Examples,
    Progress,
    SplitName,
    StepLabels,
    Task,
    Tokens,
    UserError,
    derive_seed,
    no_progress,
)
from levelfield.tasks._commonest import commonest_share
from levelfield.tasks._distinct_rows import Draw, Rows, choose, narrow, narrow_label, splits
from levelfield.tasks._layouts import BINS, examples, require
from levelfield.tasks._standing_out import answered

FORMATS = ("repeat", "essay", "pairs")
SENTENCE = 8  # words of the repeated sentence
FOLLOWERS = 4  # words that may come after a word of the essays
TEXTS = 1 << 20  # symbols of the texts by which `standing_out` is estimated


@dataclass(frozen=True)
class Needle(Task):
    """Needles in a haystack of symbols.

    length: symbols of a sequence. needles: pairs in it, with distinct keys. asked: the largest number of keys asked for
    in a training sequence, 1 to `needles`; the number is uniform. words, keys, values: symbols of each kind; a last one
    marks the question. formats: the haystacks, equally often. train, val, test: sequences.
    """

    length: int = 256
    needles: int = 4
    asked: int = 4
    words: int = 64
    keys: int = 64
    values: int = 64
    formats: tuple[str, ...] = FORMATS
    train: int = 100_000
    val: int = 1_000
    test: int = 3_000
    seed: int = 0

    name: ClassVar[str] = "needle"
    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    causal: ClassVar[bool] = True
    source: ClassVar[str] = "generated; after RULER's needle tasks, Hsieh et al. 2024 (arXiv:2404.06654)"
    split_rule: ClassVar[str] = (
        "drawn independently, each split from its own seed; no sequence is in two splits; training sequences ask for "
        "several keys, the others for one"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.asked <= self.needles:
            raise UserError(f"Needle asks for 1 to needles={self.needles} keys of a sequence, not {self.asked}.")
        if self.length < self.shortest:
            raise UserError(
                f"Needle with needles={self.needles} and asked={self.asked} takes at least {self.shortest} steps, "
                f"not {self.length}."
            )
        require("Needle", self.formats, FORMATS)
        if self.keys <= self.needles or self.values < 2 or self.words <= FOLLOWERS:
            raise UserError(f"Needle needs more keys than needles, two values, and more than {FOLLOWERS} words.")
        if self.symbols > 65_535:
            raise UserError(f"Needle has room for 65,535 symbols in all, not {self.symbols:,}.")
        if min(self.train, self.val, self.test) < 1:
            raise UserError("Needle needs at least one sequence in each of train, val and test.")

    @property
    def shortest(self) -> int:
        """The shortest length: it has room for the needles, one word, and the questions."""
        return 2 * self.needles + 1 + 3 * self.asked - 1

    @property
    def symbols(self) -> int:
        """The number of symbols: words, keys, values, and the question mark, in this order."""
        return self.words + self.keys + self.values + 1

    @property
    def input(self) -> Tokens:
        return Tokens(self.symbols)

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.values)

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 1 / self.values

    def keyless(self, form: str) -> float:
        """Returns the expected accuracy, 0 to 1, of naming the text's commonest value, for which no key need be known.

        Any value of the text may be the one that is asked for. In `repeat` and `essay` the needles' are the only ones,
        so that two needles leave a model that knows no key one half and more.
        """
        pairs = (self.length - 2) // 2 if form == "pairs" else self.needles
        return commonest_share(pairs, self.values)

    @property
    def passage_only(self) -> float:
        """The mean of `keyless` over the haystacks."""
        return fmean(self.keyless(form) for form in self.formats)

    def standing_out(self, form: str) -> float:
        """Returns about the best accuracy, 0 to 1, of who reads the text, but not which key is asked for.

        Among `pairs` needles stand out: they lie anywhere, and so may part a key of the haystack from its value; and
        their keys occur once, while others repeat. In the other haystacks it is that of `keyless`.
        """
        return _standing_out(replace(self, formats=("pairs",))) if form == "pairs" else self.keyless(form)

    def at_length(self, length: int, examples: int | None = None) -> Needle:
        """Returns the same number of needles in a haystack of another length."""
        counts = {} if examples is None else {"train": examples, "val": examples, "test": examples}
        return replace(self, length=length, **counts)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        laws = (self.length, self.needles, self.asked, self.words, self.keys, self.values, *self.formats)
        counts: dict[SplitName, int] = {"train": self.train, "val": self.val, "test": self.test}
        one = self._drawer(1)
        draws: dict[SplitName, Draw] = {"test": one, "val": one, "train": one}
        if self.asked > 1:
            draws["train"] = self._drawer(self.asked)
        made = splits("needle", self.seed, laws, counts=counts, draw=draws, progress=progress)
        return {split: examples(self.formats, *made[split]) for split in SPLITS}

    def _drawer(self, asked: int) -> Draw:
        """Returns a function that draws sequences with up to `asked` questions.

        It gives x and y, (count, length), and depth and format of the first key that is asked for, (count,).
        """

        def draw(rng: np.random.Generator, count: int) -> Rows:
            asks = rng.integers(1, asked, count, endpoint=True)
            parts = [self._draw(rng, int(np.sum(asks == n)), n) for n in range(1, asked + 1)]
            order = rng.permutation(count)
            x, y, depth, form = (np.concatenate(columns)[order] for columns in zip(*parts, strict=True))
            return x, y, depth, form

        return draw

    def _draw(self, rng: np.random.Generator, count: int, asks: int) -> Rows:
        body = self.length - (3 * asks - 1)
        keys, values = choose(rng, count, self.keys, self.needles), rng.integers(0, self.values, (count, self.needles))
        form = rng.integers(0, len(self.formats), count)
        places = self._places(rng, count, body)
        hay = self._hay(rng, form, body - 2 * self.needles, np.sort(keys, axis=1))
        x = np.empty((count, self.length), narrow(self.symbols - 1))
        straw = np.ones((count, body), bool)
        rows = np.arange(count)[:, None]
        straw[rows, places] = straw[rows, places + 1] = False
        x[:, :body][straw] = hay.ravel()
        x[rows, places], x[rows, places + 1] = self.words + keys, self.words + self.keys + values
        which = rng.permuted(np.tile(np.arange(self.needles), (count, 1)), axis=1)[:, :asks]
        x[:, body::3] = self.symbols - 1
        at = body + 1 + 3 * np.arange(asks)
        answer = np.take_along_axis(values, which, 1)
        x[:, at] = self.words + np.take_along_axis(keys, which, 1)
        x[:, at[:-1] + 1] = self.words + self.keys + answer[:, :-1]
        y = np.full(x.shape, -1, narrow_label(self.values))
        y[:, at] = answer
        first = np.take_along_axis(places, which[:, :1], 1)[:, 0]
        return x, y, first * BINS // (body - 1), form

    def _places(self, rng: np.random.Generator, count: int, body: int) -> np.ndarray:
        """Draws the positions of keys, each followed by its value, uniformly without overlap: (count, needles)."""
        spots = choose(rng, count, body - self.needles, self.needles)  # in the text with every pair as a single word
        return spots + (spots[:, None, :] < spots[:, :, None]).sum(2)

    def _hay(self, rng: np.random.Generator, form: np.ndarray, size: int, own: np.ndarray) -> np.ndarray:
        """Draws haystacks, (count, size), without the keys of the needles. own: (count, needles), these in order."""
        made = {"repeat": self._repeated, "essay": self._essay, "pairs": self._pairs}
        hay = np.empty((len(form), size), narrow(self.symbols - 1))
        for number, name in enumerate(self.formats):
            mine = form == number
            hay[mine] = made[name](rng, size, own[mine])
        return hay

    def _repeated(self, rng: np.random.Generator, size: int, own: np.ndarray) -> np.ndarray:
        """Repeats the task's one sentence, from its beginning."""
        sentence = np.random.default_rng(derive_seed(self.seed, "needle sentence")).integers(0, self.words, SENTENCE)
        return np.tile(np.resize(sentence, size), (len(own), 1))

    def _essay(self, rng: np.random.Generator, size: int, own: np.ndarray) -> np.ndarray:
        """Draws a Markov chain: each word has FOLLOWERS successors, with probabilities 1/2, 1/4, 1/8 and 1/8."""
        fixed = np.random.default_rng(derive_seed(self.seed, "needle essay"))
        follow = np.argsort(fixed.random((self.words, self.words)), axis=1)[:, :FOLLOWERS]
        steps = np.minimum(rng.geometric(0.5, (len(own), size)) - 1, FOLLOWERS - 1)
        words = np.empty((len(own), size), np.int64)
        now = rng.integers(0, self.words, len(own))
        for t in range(size):
            words[:, t] = now
            now = follow[now, steps[:, t]]
        return words

    def _pairs(self, rng: np.random.Generator, size: int, own: np.ndarray) -> np.ndarray:
        """Draws pairs of a key that is not asked for and a value; keys may repeat."""
        keys = rng.integers(0, self.keys - self.needles, (len(own), -(-size // 2)))
        for key in own.T:  # maps the drawn ranks to keys that are not the sequence's needles
            keys += keys >= key[:, None]
        values = rng.integers(0, self.values, keys.shape)
        pairs = np.stack([self.words + keys, self.words + self.keys + values], 2)
        return pairs.reshape(len(own), 2 * keys.shape[1])[:, :size]

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Finds the key after each question mark, and returns the value that follows its first occurrence."""
        x = examples.x.reshape(-1, self.length).astype(np.int64)
        y = np.full(x.shape, -1, examples.y.dtype)
        for row, (words, labels) in enumerate(zip(x, y, strict=True)):
            for at in np.flatnonzero(words == self.symbols - 1) + 1:
                labels[at] = words[np.flatnonzero(words == words[at])[0] + 1] - self.words - self.keys
            y[row] = labels
        return y.reshape(-1)

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and answering the last value before the question."""
        x = test.x.reshape(-1, self.length).astype(np.int64) - self.words - self.keys
        value = (x >= 0) & (x < self.values)
        last = np.where(value, np.arange(self.length), -1).max(1)
        right = np.take_along_axis(x, last[:, None], 1)[:, 0] == test.y.reshape(-1, self.length)[:, -1]
        return {**super().baselines(train, test), "last_value": float(np.mean(right))}


@cache
def _standing_out(task: Needle) -> float:
    """Estimates `standing_out` among pairs, by texts that are drawn for it."""
    count = min(2_000, max(200, TEXTS // task.length))
    x, y, _, _ = task._draw(np.random.default_rng(derive_seed(task.seed, "needle standing out")), count, 1)
    return answered(x[:, :-2].astype(np.int64) - task.words, y[:, -1], task.keys, task.values)


TASKS: dict[str, Task] = {"needle": Needle()}
EXAMPLES: tuple[Task, ...] = (
    Needle(40, 2, 2, words=12, keys=10, values=9, train=60, val=20, test=30),
    Needle(33, 3, 1, words=9, keys=300, values=7, formats=("pairs",), train=40, val=10, test=10, seed=2),
)
