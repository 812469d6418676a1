"""One split of a task as plain arrays: ragged sequences end to end.

Examples.of_sequences([np.array([3, 1], np.uint8), np.array([2], np.uint8)], y=np.array([0, 1]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Examples:
    """One split, in memory or memory-mapped: N sequences end to end, their targets, and columns to slice scores by.

    x: (total,) for Tokens, (total, C) for Signal, raw values in their storage type; sequence i is
    `x[offsets[i]:offsets[i + 1]]`. offsets: (N + 1,) int64. y: (N,) or (N, dims). slices: name -> (N,).
    """

    x: np.ndarray
    offsets: np.ndarray
    y: np.ndarray
    slices: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def sequence(self, index: int) -> np.ndarray:
        return self.x[self.offsets[index] : self.offsets[index + 1]]

    @staticmethod
    def of_equal_length(x: np.ndarray, y: np.ndarray, slices: Mapping[str, np.ndarray] | None = None) -> Examples:
        """From x: (N, T) or (N, T, C)."""
        count, length = x.shape[:2]
        offsets = np.arange(count + 1, dtype=np.int64) * length
        return Examples(x.reshape(count * length, *x.shape[2:]), offsets, y, slices or {})

    @staticmethod
    def of_sequences(
        sequences: Sequence[np.ndarray], y: np.ndarray, slices: Mapping[str, np.ndarray] | None = None
    ) -> Examples:
        offsets = np.concatenate([[0], np.cumsum([len(s) for s in sequences])]).astype(np.int64)
        return Examples(np.concatenate(sequences), offsets, y, slices or {})

    def take(self, indices: np.ndarray) -> Examples:
        """A subset, in the order given."""
        sequences = [self.sequence(int(i)) for i in indices]
        return Examples.of_sequences(sequences, self.y[indices], {k: v[indices] for k, v in self.slices.items()})
