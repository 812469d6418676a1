"""Draws filler: random symbols, or stretches of a text of the user's own.

    fill = random_symbols(16)                                  # any of 16 symbols at every step
    fill = of_text(Path("book.txt"), 256, least=64)["test"]    # bytes that follow one another in the last tenth
    fill(rng, (count, steps), np.uint8)                        # (count, steps)

The splits of a text have parts of it to themselves, so that no filler of test occurs in training: the last tenth is
that of test, the tenth before it that of val, and all before them that of train.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from levelfield.files import unreadable
from levelfield.spec import SplitName, UserError

PARTS = 10  # of a text, of which val and test have one each
SHORTEST = 2  # range, and so stretch of filler, that a task may have
Fill = Callable[["np.random.Generator", tuple[int, int], type[np.integer]], np.ndarray]
"""fill(rng, (count, steps), dtype): rows of filler, (count, steps)."""


def random_symbols(symbols: int) -> Fill:
    """Returns filler that draws any symbol at every step."""
    return lambda rng, shape, dtype: rng.integers(0, symbols, shape, dtype=dtype)


def of_text(path: Path, symbols: int, least: int) -> dict[SplitName, Fill]:
    """Returns the filler of each split: the bytes of its part of a file.

    symbols: from which number on there are marks. least: the longest stretch that has to follow one another in the
    text. Raises UserError for a file that cannot be read, that holds a mark, or whose tenth is shorter than that.
    """
    text = _bytes(path)
    tenth = len(text) // PARTS
    if tenth < least:
        shorter = f", or take a range of at most {tenth:,}" if tenth >= SHORTEST else ""
        raise UserError(
            f"{path} has {len(text):,} bytes, of which val and test have a tenth each, too few for filler of {least:,} "
            f"steps: give a text of at least {PARTS * least:,} bytes{shorter}."
        )
    if int(text.max()) >= symbols:
        raise UserError(
            f"{path} holds the byte {text.max()}, but with symbols={symbols} the marks are numbered from {symbols} on, "
            f"and none may occur in the filler: take symbols={int(text.max()) + 1} or more; 256 takes any text."
        )
    train, val, test = np.split(text, [len(text) - 2 * tenth, len(text) - tenth])
    return {"train": _stretches(train), "val": _stretches(val), "test": _stretches(test)}


def longest_stretch(path: Path) -> int:
    """Returns the longest stretch of filler that val and test have of a file. Raises UserError where there is none."""
    return len(_bytes(path)) // PARTS


def _bytes(path: Path) -> np.ndarray:
    try:
        return np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise unreadable(path, error, "give the path of a text") from error


def _stretches(text: np.ndarray) -> Fill:
    """Returns filler that begins anywhere in the text, where a stretch fits; a longer one begins again at its end."""

    def fill(rng: np.random.Generator, shape: tuple[int, int], dtype: type[np.integer]) -> np.ndarray:
        count, steps = shape
        around = np.resize(text, max(len(text), steps) + steps - 1)
        starts = rng.integers(0, len(text) - steps + 1 if steps <= len(text) else len(text), count)
        return np.lib.stride_tricks.sliding_window_view(around, steps)[starts].astype(dtype)

    return fill
