"""Defines the base of tasks on plain text: bytes in windows, without labels.

    windows([b"to be or", b"not"], length=5)         # sequences b"to be", b" or", b"not"

A task on a text derives from `Windows` and reads the text into three lists of documents. Its baselines look back at
most one byte.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from levelfield.spec import DRAW_ORDER, Examples, Progress, SplitName, Task, Tokens, Unlabelled, UserError, no_progress

LATEST = 8  # the slice `window` counts up to it
Texts = Mapping[SplitName, Sequence[bytes]]


@dataclass(frozen=True)
class Windows(Task):
    """Text cut into windows of 2 to `length` bytes. most: the first n windows of each split; None for all."""

    length: int = 1024
    most: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 2 or (self.most is not None and self.most < 1):
            raise UserError(f"{self.name} needs windows of 2 bytes or more, and at least one of each split.")

    @property
    def input(self) -> Tokens:
        return Tokens(256)

    @property
    def output(self) -> Unlabelled:
        return Unlabelled()

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 1 / 256

    def at_length(self, length: int, examples: int | None = None) -> Self:
        """Returns the same text in windows of another length."""
        return replace(self, length=length, most=self.most if examples is None else examples)

    @abstractmethod
    def texts(self, sources: Path | None, progress: Progress) -> Texts:
        """Reads the documents of each split. Raises UserError where there are none."""

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        texts = self.texts(sources, progress)
        splits: dict[SplitName, Examples] = {}
        taken: set[bytes] = set()
        for split in DRAW_ORDER:  # a window that repeats is dropped from the later split, so train comes last
            cut = windows(texts[split], self.length)
            new = [i for i in range(len(cut)) if not taken or cut.sequence(i).tobytes() not in taken][: self.most]
            if not new:
                raise UserError(f"The text of {self.name} is too short for a window in {split}: give more text.")
            splits[split] = cut if len(new) == len(cut) else cut.take(np.array(new))
            if split != "train":
                taken |= {cut.sequence(i).tobytes() for i in new}
        return splits

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Returns the accuracies of the commonest byte (`label_prior`) and of the commonest after a byte (`bigram`)."""
        before, after = _pairs(train)
        counts = np.bincount(before.astype(np.int64) * 256 + after, minlength=256 * 256).reshape(256, 256)
        commonest = counts.sum(0).argmax()
        guess = np.where(counts.sum(1) > 0, counts.argmax(1), commonest)
        before, after = _pairs(test)
        return {"label_prior": float(np.mean(after == commonest)), "bigram": float(np.mean(after == guess[before]))}


def identify(texts: Sequence[bytes]) -> str:
    """Returns the SHA-256 of the documents in order, each preceded by its length in eight bytes."""
    state = hashlib.sha256()
    for text in texts:
        state.update(len(text).to_bytes(8, "big"))
        state.update(text)
    return state.hexdigest()


def windows(texts: Sequence[bytes], length: int) -> Examples:
    """Cuts each text into windows of `length` bytes and a shorter last one.

    The slice `window` numbers the windows of a text, 0 to 8. A last window of one byte is left out, since it has no
    next byte.
    """
    kept = [t[:-1] if len(t) % length == 1 else t for t in texts]
    sizes = np.array([len(t) for t in kept], np.int64)
    counts = -(-sizes // length)
    lengths = np.full(counts.sum(), length, np.int64)
    ends = np.cumsum(counts)[counts > 0] - 1
    lengths[ends] = (sizes - (counts - 1) * length)[counts > 0]
    place = np.arange(len(lengths)) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    x = np.frombuffer(b"".join(kept), np.uint8)
    return Examples(x, offsets, np.zeros(len(lengths), np.int64), {"window": np.minimum(place, LATEST)})


def _pairs(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Returns every byte that has a next one in its window, and those next bytes: (pairs,) each."""
    inside = np.ones(len(examples.x), bool)
    inside[examples.offsets[1:] - 1] = False
    at = np.flatnonzero(inside)
    return examples.x[at], examples.x[at + 1]
