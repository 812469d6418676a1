"""Retrieval: does one paper cite the other? Two texts of the ACL Anthology Network, byte by byte or in characters.

    Retrieval()                        the first 4,000 bytes of each text, 256 symbols      miralles2025 (there 4,096)
    Retrieval(level="characters")      3,999 characters and an end symbol, 97 symbols       amos2025 and the S4 papers

This is the document matching task of Long Range Arena (Tay et al. 2021, section 2.3). A model reads each text by itself
and compares the pooled outputs. Texts are used as they are in the files, as in the original code. Those of the release
are said to be printed Python bytes, b'...' with escapes, and so all ASCII. No source says whether papers, rather than
only pairs, are disjoint between the splits. The slice `seen` counts the papers of a pair that occur in train, 0 to 2,
and is 3 if the pair itself does.

Printed numbers: the code of amos2025 drops the last incomplete batch of val and test (29 of 17,437 pairs at its batch
of 256), and its Transformers attend to padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from levelfield.spec import SPLITS, Archive, Examples, Label, Progress, SplitName, Task, Tokens, UserError, no_progress
from levelfield.tasks import _lra_release as release
from levelfield.tasks._texts import citation_pairs as files

OFFICIAL: dict[SplitName, int] = {"train": 147_086, "val": 18_090, "test": 17_437}
UNKNOWN, END, CHARACTERS = 95, 96, 97  # symbols after the 95 printable ASCII characters, and how many in all
CONTINUED = 255  # marks a continuation byte of UTF-8, which is not a symbol
RECENT = 1000  # texts whose words are cached: a paper is in many pairs, and the words of all would take 6 GB
STEP = 2  # percent between two values of the slice `overlap`

_SYMBOLS = np.full(256, UNKNOWN, np.uint8)
_SYMBOLS[32:127] = np.arange(95)
_SYMBOLS[128:192] = CONTINUED
_LOWER = bytes(c + 32 if 65 <= c <= 90 else c if 97 <= c <= 122 else 32 for c in range(256))  # letters, else blank
_WRITTEN = bytes(range(32, 127)).ljust(256)  # the character of each symbol at level="characters"


@dataclass(frozen=True)
class Retrieval(Task):
    """Pairs of papers, with label 1 where one cites the other, and the first `length` steps of each text."""

    name: ClassVar[str] = "retrieval"
    version: ClassVar[int] = 1
    hidden: ClassVar[float] = 0.15
    source: ClassVar[str] = (
        "ACL Anthology Network pairs of Long Range Arena (Tay et al. 2021, arXiv 2011.04006; code Apache-2.0); papers: "
        "Radev et al. 2013, The ACL Anthology Network Corpus, whose licence is that of the ACL Anthology's papers"
    )
    licence: ClassVar[str] = "that of the ACL Anthology's papers"
    split_rule: ClassVar[str] = (
        "the release's train, eval (val) and test files, in file order; a paper of val or test may be in train too: "
        "see the slice `seen`"
    )
    documents: ClassVar[int] = 2
    archives: ClassVar[tuple[Archive, ...]] = release.RELEASE

    length: int = 4000  # steps kept of each text, including the end symbol
    level: Literal["bytes", "characters"] = "bytes"
    train: int = OFFICIAL["train"]  # the first n pairs of the file are used
    val: int = OFFICIAL["val"]
    test: int = OFFICIAL["test"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 2 or min(self.train, self.val, self.test) < 1:
            raise UserError(f"Retrieval needs a length of 2 or more and a pair in every split, not {self}.")

    @property
    def input(self) -> Tokens:
        return Tokens(256 if self.level == "bytes" else CHARACTERS)

    @property
    def output(self) -> Label:
        return Label(2)

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 0.5

    def at_length(self, length: int, examples: int | None = None) -> Retrieval:
        """Returns the same pairs, or the first `examples` of them, with another number of steps of each text."""
        counts = {} if examples is None else {split: min(examples, getattr(self, split)) for split in SPLITS}
        return replace(self, length=length, **counts)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        encode = partial(leading_bytes if self.level == "bytes" else leading_characters, length=self.length)
        counts: dict[SplitName, int] = {split: getattr(self, split) for split in SPLITS}
        pairs = files.read(sources, counts, encode, progress)
        met = {frozenset(pair) for pair in pairs["train"].papers}
        known = frozenset().union(*met)
        splits: dict[SplitName, Examples] = {}
        for split in SPLITS:
            found = pairs.pop(split)
            offsets = np.concatenate([[0], np.cumsum(found.lengths)])
            examples = Examples(found.x, offsets, found.y, documents=2)
            slices = {
                "seen": np.array([3 if frozenset(p) in met else sum(id in known for id in p) for p in found.papers]),
                "length": 2 ** np.ceil(np.log2(found.sizes)).astype(np.int64),
                "overlap": self._overlap(examples),
            }
            splits[split] = replace(examples, slices=slices)
        return splits

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores `shared_words`: a citation if texts have enough words in common, with a threshold chosen on train."""
        mine, theirs = train.slices["overlap"], test.slices["overlap"]
        thresholds = np.unique(mine)
        right = [np.mean((mine >= threshold) == train.y) for threshold in thresholds]
        best = thresholds[int(np.argmax(right))]
        return {**super().baselines(train, test), "shared_words": float(np.mean((theirs >= best) == test.y))}

    def _overlap(self, examples: Examples) -> np.ndarray:
        """Returns the Jaccard index of the two texts' words, in percent, rounded down to a multiple of STEP: (N,)."""
        words, shared = lru_cache(RECENT)(self._words), np.empty(len(examples))
        for pair in range(len(examples)):
            first, second = (words(examples.sequence(2 * pair + i).tobytes()) for i in range(2))
            both = len(first & second)
            shared[pair] = both / max(1, len(first) + len(second) - both)
        return (100 * shared / STEP).astype(np.int64) * STEP

    def _words(self, text: bytes) -> set[bytes]:
        """Returns the words of a text: runs of letters, in lower case."""
        if self.level == "characters":
            text = text.translate(_WRITTEN)
        return set(text.translate(_LOWER).split())


def leading_bytes(text: np.ndarray, length: int) -> np.ndarray:
    """Returns the first `length` bytes: (n,) uint8."""
    return text[:length]


def leading_characters(text: np.ndarray, length: int) -> np.ndarray:
    """Returns the symbols of the first `length - 1` characters of a UTF-8 text, followed by END: (n,) uint8.

    Printable ASCII, which is all that the release has, is 0..94. Every other character is UNKNOWN.
    """
    symbols = _SYMBOLS[text[: 4 * length]]
    return np.append(symbols[symbols != CONTINUED][: length - 1], np.uint8(END))


TASKS: dict[str, Task] = {
    "retrieval": Retrieval(),
    "retrieval_char": Retrieval(level="characters"),
    "retrieval_small": Retrieval(length=500, train=10_000, val=1_000, test=2_000),
    "retrieval_2k": Retrieval(length=500, train=2_304, val=298, test=294),
}
EXAMPLES: tuple[Task, ...] = (
    Retrieval(length=200, train=60, val=20, test=20),
    Retrieval(length=100, level="characters", train=40, val=10, test=10),
)
