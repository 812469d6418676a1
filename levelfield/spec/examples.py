"""Holds one split of a task as plain arrays: ragged sequences, end to end.

    Examples.of_sequences([np.array([3, 1], np.uint8), np.array([2], np.uint8)], y=np.array([0, 1]))

An example is one sequence, or several documents that are judged together, which then follow one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from levelfield.spec.identity import derive_seed


@dataclass(frozen=True)
class Examples:
    """One split, in memory or memory-mapped: N sequences end to end, their targets, and columns to slice scores by.

    x: (total,) for Tokens, (total, C) for Signal, raw values in their storage type; sequence i is
    `x[offsets[i]:offsets[i + 1]]`. offsets: (N * documents + 1,) int64. slices: name -> (N,).
    documents: sequences in an example; those of example i begin at sequence i * documents.
    y: (N,) or (N, dims); with `stepwise` (total,), a target at each step, -1 where there is none.
    """

    x: np.ndarray
    offsets: np.ndarray
    y: np.ndarray
    slices: Mapping[str, np.ndarray] = field(default_factory=dict)
    documents: int = 1
    stepwise: bool = False

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // self.documents

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each sequence, (N * documents,)."""
        return np.diff(self.offsets)

    @property
    def longest(self) -> np.ndarray:
        """Steps of the longest document of each example, (N,)."""
        return self.lengths.reshape(-1, self.documents).max(1)

    @property
    def sizes(self) -> np.ndarray:
        """Steps of all documents of each example, (N,)."""
        return self.lengths.reshape(-1, self.documents).sum(1)

    def sequence(self, index: int) -> np.ndarray:
        index = range(len(self.offsets) - 1)[index]  # -1 is the last; IndexError for one that is not there
        return self.x[self.offsets[index] : self.offsets[index + 1]]

    @staticmethod
    def of_equal_length(
        x: np.ndarray, y: np.ndarray, slices: Mapping[str, np.ndarray] | None = None, stepwise: bool = False
    ) -> Examples:
        """Makes a split of sequences of one length. x: (N, T) or (N, T, C); y as of the class, or (N, T)."""
        count, length = x.shape[:2]
        offsets = np.arange(count + 1, dtype=np.int64) * length
        flat = x.reshape(count * length, *x.shape[2:])
        return Examples(flat, offsets, y.reshape(-1) if stepwise else y, slices or {}, stepwise=stepwise)

    @staticmethod
    def of_sequences(
        sequences: Sequence[np.ndarray],
        y: np.ndarray,
        slices: Mapping[str, np.ndarray] | None = None,
        documents: int = 1,
        stepwise: bool = False,
    ) -> Examples:
        """Makes a split of N * documents arrays, (length,) or (length, C) each; y and slices as of the class."""
        offsets = np.concatenate([[0], np.cumsum([len(s) for s in sequences])]).astype(np.int64)
        x = np.concatenate(sequences) if len(sequences) else np.zeros(0, np.uint8)
        return Examples(x, offsets, y, slices or {}, documents=documents, stepwise=stepwise)

    def stratified(self, seed: int) -> np.ndarray:
        """Returns all indices (N,) in an order of which every beginning has the labels in the shares of the whole.

        It starts with each label once, the commonest first, and goes on in proportion. Targets that are no labels are
        only shuffled.
        """
        drawn = np.random.default_rng(seed).permutation(len(self))
        labelled = not self.stepwise and self.y.ndim == 1 and self.y.dtype.kind in "biu"
        labels = self.y[drawn] if labelled else np.zeros(len(self), int)
        _, label, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        rank = np.empty(len(self), int)  # among those of the same label
        rank[np.argsort(label, kind="stable")] = np.concatenate([np.arange(size) for size in sizes])
        size = sizes[label]
        return drawn[np.argsort(np.where(rank > 0, (rank + 0.5) / size, -size), kind="stable")]

    def subset(self, fraction: float) -> Examples:
        """Returns a share of the examples: the beginning of one stratified order, the same for every arm and seed.

        So smaller shares nest in larger ones, as in amos2025, and each has the labels in the shares of the whole.
        """
        if fraction >= 1:
            return self
        count = max(1, round(fraction * len(self)))
        return self.take(self.stratified(derive_seed(0, "subset"))[:count])

    def take(self, indices: np.ndarray) -> Examples:
        """Returns the examples of these indices, in their order."""
        each = (np.asarray(indices)[:, None] * self.documents + np.arange(self.documents)).ravel()
        sequences = [self.sequence(int(i)) for i in each]
        spans = [slice(self.offsets[i], self.offsets[i + 1]) for i in each]
        y = np.concatenate([self.y[span] for span in spans]) if self.stepwise else self.y[indices]
        slices = {k: v[indices] for k, v in self.slices.items()}
        return Examples.of_sequences(sequences, y, slices, self.documents, self.stepwise)
