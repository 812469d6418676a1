"""Finds windows that share signal: if one is in the training split, a test on the other is not a test on unseen data.

    windows 32 s long, one every 3 s:     |-----a-----|
                                             |-----b-----|        29 s of b are in a, to the last digit

Whole seconds are compared by their bytes, so no list of patients is needed. A second in which a channel is constant is
ignored, because a monitor that has lost a sensor gives the same signal in every recording.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np


def seconds(x: np.ndarray, rate: int) -> list[set[int]]:
    """Hashes every whole second of each window, all channels together. x: (N, T, C) at `rate` samples per second."""
    blocks = x[:, : x.shape[1] // rate * rate].reshape(len(x), -1, rate, x.shape[2])
    moving = (np.ptp(blocks, axis=2) > 0).all(-1)
    return [{hash(b.tobytes()) for b, moves in zip(row, use) if moves} for row, use in zip(blocks, moving)]


def recordings(windows: list[set[int]]) -> np.ndarray:
    """Numbers the recordings that windows come from, (N,) int64, in order of appearance.

    Two windows are of one recording if they share a second, or are linked by other windows that do.
    """
    group = list(range(len(windows)))

    def root(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    first: dict[int, int] = {}
    for i, keys in enumerate(windows):
        for key in keys:
            group[root(i)] = root(first.setdefault(key, i))
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(root(i), len(numbers)) for i in range(len(windows))])


def nearest(train: list[set[int]], test: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Finds, for each test window, the train window that shares most seconds with it, and how many: two (tests,) int64.

    The index is -1 where no train window shares any.
    """
    holders: defaultdict[int, list[int]] = defaultdict(list)
    for i, keys in enumerate(train):
        for key in keys:
            holders[key].append(i)
    best, shared = np.full(len(test), -1), np.zeros(len(test), np.int64)
    for row, keys in enumerate(test):
        counts = Counter(i for key in keys for i in holders.get(key, ()))
        if counts:
            shared[row] = max(counts.values())
            best[row] = min(i for i, count in counts.items() if count == shared[row])
    return best, shared
