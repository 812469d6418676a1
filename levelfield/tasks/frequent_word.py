"""The most frequent word of a text, of any length: which one was there most often, wherever it was?

    cat the sat cat the cat mat cat ?                                -> cat

No place of the text has the answer: it has to be counted. This is after RULER's tests of aggregation, which ask for the
ten most common words or the three most frequent ones (Hsieh et al. 2024; huang2024, section 4), at the size of models
that are trained here. A few rivals come nearly as often as the answer, in shares of the text that are the same at every
length, so that a longer text is no harder in itself, and a part of it says less than the whole. Two layouts are mixed:

    spread      the answer's places are drawn from the whole text
    gathered    they are drawn from a third of it, which begins anywhere

The slices `depth` and `format` say in which tenth of the text the middle one of the answer's places is, and its layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
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
    no_progress,
)
from levelfield.tasks._distinct_rows import Rows, choose, narrow, narrow_label, splits
from levelfield.tasks._layouts import BINS, examples, require

FORMATS = ("spread", "gathered")
GATHERED = 3  # the answer's places are in one part of so many
AT_ONCE = 1 << 21  # random numbers: texts have many, and a split many texts
NEAR = 16  # words before the question that the rule `last_words` counts


@dataclass(frozen=True)
class FrequentWord(Task):
    """A text of words, and a last symbol that asks for the most frequent of them.

    length: symbols of a sequence. words: the vocabulary. share: of the text, what is the answer. rivals: words that
    come next. behind: what a rival has of the answer's number, at most; the other words are fewer still. formats: the
    layouts, equally often. train, val, test: sequences.
    """

    length: int = 256
    words: int = 64
    share: float = 0.25
    rivals: int = 3
    behind: float = 0.7
    formats: tuple[str, ...] = FORMATS
    train: int = 100_000
    val: int = 1_000
    test: int = 3_000
    seed: int = 0

    name: ClassVar[str] = "frequent_word"
    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    causal: ClassVar[bool] = True
    source: ClassVar[str] = "generated; after RULER's common and frequent words, Hsieh et al. 2024 (arXiv:2404.06654)"
    split_rule: ClassVar[str] = "drawn independently, each split from its own seed; no sequence is in two splits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1 / GATHERED or not 0 < self.behind < 1:
            raise UserError("FrequentWord takes a share of the text above 0, a third at most, and behind of 0 to 1.")
        require("FrequentWord", self.formats, FORMATS)
        if not 1 <= self.rivals < self.words - 1 or self.words >= 65_535:
            raise UserError("FrequentWord needs one rival, more words than rivals and answer, and 65,534 at most.")
        answer, rival, rest = self.counts
        if answer <= rival or rival < 1 or rest < 0 or rest > (self.words - 1 - self.rivals) * (rival - 1):
            raise UserError(
                f"FrequentWord of {self.length} steps has no text in which the answer comes {answer} times, "
                f"{self.rivals} rivals {rival} times and all others fewer times: change length, share, rivals or words."
            )
        if min(self.train, self.val, self.test) < 1:
            raise UserError("FrequentWord needs at least one sequence in each of train, val and test.")

    @property
    def body(self) -> int:
        """Words of the text, before the question."""
        return self.length - 1

    @property
    def counts(self) -> tuple[int, int, int]:
        """How often the answer comes and each rival, and how many other words there are together."""
        answer = round(self.share * self.body)
        rival = int(self.behind * answer)
        return answer, rival, self.body - answer - self.rivals * rival

    @property
    def passage_only(self) -> float:
        """The accuracy, 0 to 1, of naming any word of the text: the answer's share of it."""
        return self.counts[0] / self.body

    @property
    def input(self) -> Tokens:
        return Tokens(self.words + 1)

    @property
    def output(self) -> StepLabels:
        return StepLabels(self.words)

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 1 / self.words

    def at_length(self, length: int, examples: int | None = None) -> FrequentWord:
        """Returns the same shares of a text of another length."""
        counts = {} if examples is None else {"train": examples, "val": examples, "test": examples}
        return replace(self, length=length, **counts)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        laws = (self.length, self.words, self.share, self.rivals, self.behind, *self.formats)
        counts: dict[SplitName, int] = {"train": self.train, "val": self.val, "test": self.test}
        made = splits("frequent word", self.seed, laws, counts=counts, draw=self._draw, progress=progress)
        return {split: examples(self.formats, *made[split]) for split in SPLITS}

    def _draw(self, rng: np.random.Generator, count: int) -> Rows:
        """Draws x and y, (count, length), and depth and format of the answer, (count,)."""
        answer, rival, rest = self.counts
        chosen = choose(rng, count, self.words, 1 + self.rivals)
        form = rng.integers(0, len(self.formats), count)
        places = self._places(rng, answer, form)
        others = np.concatenate([np.repeat(chosen[:, 1:], rival, 1), self._rest(rng, chosen, rest, rival - 1)], 1)
        x = np.full((count, self.length), self.words, narrow(self.words))
        free = np.ones((count, self.body), bool)
        rows = np.arange(count)[:, None]
        free[rows, places] = False
        x[:, :-1][free] = rng.permuted(others, axis=1).ravel()
        x[rows, places] = chosen[:, :1]
        y = np.full(x.shape, -1, narrow_label(self.words))
        y[:, -1] = chosen[:, 0]
        return x, y, places[:, answer // 2] * BINS // self.body, form

    def _places(self, rng: np.random.Generator, answer: int, form: np.ndarray) -> np.ndarray:
        """Draws the answer's places of each text, in order, without repetition: (count, answer)."""
        keys = rng.random((len(form), self.body))
        part = max(answer, self.body // GATHERED)
        first = rng.integers(0, self.body - part, len(form), endpoint=True)[:, None]
        at = np.arange(self.body)
        outside = (at < first) | (at >= first + part)
        gathered = np.array([name == "gathered" for name in self.formats])[form][:, None]
        return np.sort(np.argsort(keys + (outside & gathered), axis=1)[:, :answer], axis=1)

    def _rest(self, rng: np.random.Generator, chosen: np.ndarray, size: int, most: int) -> np.ndarray:
        """Draws words that are neither answer nor rival, none more than `most` times: (count, size)."""
        others = np.array([np.setdiff1d(np.arange(self.words), row) for row in chosen])
        slots = others.shape[1] * most
        texts = max(1, AT_ONCE // max(1, slots))
        parts = np.split(chosen, range(texts, len(chosen), texts))
        drawn = [_least(rng.random((len(part), slots)), size) for part in parts]
        return np.take_along_axis(others, np.concatenate(drawn) // max(1, most), 1)

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Counts every word of a text, and returns the one with the highest count."""
        x = examples.x.reshape(-1, self.length).astype(np.int64)
        y = np.full(x.shape, -1, examples.y.dtype)
        y[:, -1] = [np.bincount(row[:-1]).argmax() for row in x]
        return y.reshape(-1)

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores the label prior, and the most frequent of the last words."""
        x = test.x.reshape(-1, self.length).astype(np.int64)[:, -1 - NEAR : -1]
        said = np.array([np.bincount(row).argmax() for row in x])
        right = said == test.y.reshape(-1, self.length)[:, -1]
        return {**super().baselines(train, test), "last_words": float(np.mean(right))}


def _least(keys: np.ndarray, size: int) -> np.ndarray:
    """Returns the places of the `size` least keys of each row, in their order, without sorting the others."""
    if not size:
        return np.empty((len(keys), 0), np.int64)
    found = np.argpartition(keys, size - 1, axis=1)[:, :size]
    return np.take_along_axis(found, np.argsort(np.take_along_axis(keys, found, 1), axis=1), 1)


TASKS: dict[str, Task] = {"frequent_word": FrequentWord()}
EXAMPLES: tuple[Task, ...] = (
    FrequentWord(32, words=16, train=60, val=20, test=30),
    FrequentWord(21, words=300, share=0.3, rivals=1, formats=("gathered",), train=40, val=10, test=10, seed=2),
)
