"""Splits of generated rows of which no two are alike, each from a random stream of its own.

draw(rng, count) -> (x, y, ...), arrays of `count` rows; a row whose x was seen before is dropped and drawn again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from levelfield.spec import DRAW_ORDER, Progress, SplitName, UserError, derive_seed

Rows = tuple[np.ndarray, ...]
Draw = Callable[[np.random.Generator, int], Rows]

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
    """The rows of each split. `settings` are those that change the law: other ones draw from other streams.

    draw: one law for all, or one for each split.

    Raises UserError where there are too few different rows.
    """
    made: dict[SplitName, Rows] = {}
    taken: set[bytes] = set()
    for split in DRAW_ORDER:
        rng = np.random.default_rng(derive_seed(seed, name, split, *settings))
        law = draw[split] if isinstance(draw, Mapping) else draw
        made[split] = _fresh(name, rng, counts[split], law, taken)
        progress(f"{name}: {split}", counts[split], counts[split])
    return made


def _fresh(name: str, rng: np.random.Generator, count: int, draw: Draw, taken: set[bytes]) -> Rows:
    """`count` rows that are not in `taken`, which grows by them."""
    parts: list[Rows] = []
    missing = count
    for _ in range(TRIES):
        drawn = draw(rng, count)
        new = np.array([_is_new(row, taken) for row in drawn[0]], bool)
        parts.append(tuple(column[new][:missing] for column in drawn))
        missing -= len(parts[-1][0])
        if not missing:
            return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
    raise UserError(
        f"Task {name} has too few different sequences for {count} more: ask for fewer, or for longer sequences or "
        "more symbols."
    )


def _is_new(row: np.ndarray, taken: set[bytes]) -> bool:
    key = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
    new = key not in taken
    taken.add(key)
    return new


def choose(rng: np.random.Generator, rows: int, population: int, size: int) -> np.ndarray:
    """(rows, size): in each row, `size` different numbers below `population`, in random order (Floyd's algorithm)."""
    chosen = np.empty((rows, size), np.int64)
    for column, highest in enumerate(range(population - size, population)):
        drawn = rng.integers(0, highest, rows, endpoint=True)
        repeated = (chosen[:, :column] == drawn[:, None]).any(1)
        chosen[:, column] = np.where(repeated, highest, drawn)
    return rng.permuted(chosen, axis=1)


def narrow(highest: int) -> type[np.unsignedinteger]:
    """The smallest type that holds symbols 0..highest."""
    return np.uint8 if highest < 1 << 8 else np.uint16


def narrow_label(classes: int) -> type[np.signedinteger]:
    """The smallest type that holds classes 0..classes - 1 and -1 for no label."""
    return np.int8 if classes <= 1 << 7 else np.int16 if classes <= 1 << 15 else np.int32
