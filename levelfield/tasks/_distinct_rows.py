"""Draws splits of generated rows that all differ, each split from its own random stream.

    draw(rng, count) -> (x, y, ...)        # arrays of `count` rows

A row whose x occurred before is dropped and drawn again. Where a split finds too few new rows so, it is given those
that earlier splits with the same `draw` drew beyond what they needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from levelfield.spec import DRAW_ORDER, Progress, SplitName, UserError, derive_seed

Rows = tuple[np.ndarray, ...]
Draw = Callable[["np.random.Generator", int], Rows]  # quoted, as numpy.random is loaded when it is first used

TRIES = 100
Filler = Literal["blank", "noise"]


def splits(
    name: str,
    seed: int,
    settings: tuple[object, ...],
    counts: Mapping[SplitName, int],
    draw: Draw | Mapping[SplitName, Draw],
    progress: Progress,
) -> dict[SplitName, Rows]:
    """Draws the rows of each split.

    settings: those that the distribution depends on; other settings draw from other streams. draw: one function for
    all splits, or one for each. Raises UserError where there are too few different rows.
    """
    made: dict[SplitName, Rows] = {}
    rows = _DistinctRows(name)
    for split in DRAW_ORDER:
        rng = np.random.default_rng(derive_seed(seed, name, split, *settings))
        function = draw[split] if isinstance(draw, Mapping) else draw
        made[split] = rows.fresh(rng, counts[split], function)
        progress(f"{name}: {split}", counts[split], counts[split])
    return made


class _DistinctRows:
    """What splits of one task have drawn.

    `draw` gives as many rows as a split has, so that its last try may give new ones that it does not need. They are
    kept by the function that drew them, in the order of drawing, for a split with the same function that finds no new
    rows in all its tries: a draw of the same distribution like all others, which differs from all rows so far.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.taken: set[bytes] = set()
        self.spare: dict[Draw, Rows] = {}

    def fresh(self, rng: np.random.Generator, count: int, draw: Draw) -> Rows:
        """Draws `count` rows that differ from all before. Raises UserError where there are too few."""
        parts: list[Rows] = []
        missing = count
        for _ in range(TRIES):
            drawn = draw(rng, count)
            new = np.array([self._is_new(row) for row in drawn[0]], bool)
            rows = tuple(column[new] for column in drawn)
            parts.append(tuple(column[:missing] for column in rows))
            spare = tuple(column[missing:] for column in rows)
            missing -= len(parts[-1][0])
            if not missing:
                self.spare[draw] = _joined([self.spare[draw], spare]) if draw in self.spare else spare
                return _joined(parts)
        spare = self.spare.get(draw, ())
        if not spare or len(spare[0]) < missing:
            raise UserError(
                f"Task {self.name} has too few different sequences for {count} more: ask for fewer, or for longer "
                "sequences or more symbols."
            )
        self.spare[draw] = tuple(column[missing:] for column in spare)
        return _joined([*parts, tuple(column[:missing] for column in spare)])

    def _is_new(self, row: np.ndarray) -> bool:
        key = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        new = key not in self.taken
        self.taken.add(key)
        return new


def _joined(parts: list[Rows]) -> Rows:
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def choose(rng: np.random.Generator, rows: int, population: int, size: int) -> np.ndarray:
    """Draws `size` different numbers below `population` for each row, in random order: (rows, size).

    This is Floyd's algorithm (Bentley and Floyd 1987).
    """
    chosen = np.empty((rows, size), np.int64)
    for column, highest in enumerate(range(population - size, population)):
        drawn = rng.integers(0, highest, rows, endpoint=True)
        repeated = (chosen[:, :column] == drawn[:, None]).any(1)
        chosen[:, column] = np.where(repeated, highest, drawn)
    return rng.permuted(chosen, axis=1)


def narrow(highest: int) -> type[np.unsignedinteger]:
    """Returns the smallest type for symbols 0..highest."""
    return np.uint8 if highest < 1 << 8 else np.uint16


def narrow_label(classes: int) -> type[np.signedinteger]:
    """Returns the smallest type for classes 0..classes - 1, and -1 for no label."""
    return np.int8 if classes <= 1 << 7 else np.int16 if classes <= 1 << 15 else np.int32
