"""How long a sample gets: filled to the budget, or as RULER does it.

    fill(build, pen, room, fits, following)    # at most SLACK tokens under the room
    step(build, pen, room, size, by)           # the size, or less by steps, until it fits

RULER finds the size (words, lines, documents) that fits one sample and takes it for all; whatever comes out longer is
drawn again one step smaller, so lengths scatter over a step. Filling draws once, takes as many whole units as fit, and
adds a part of one more: whole words of it, then letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from levelfield.ruler.prompt.compose import Composer, Pieces
from levelfield.ruler.prompt.flavours import Flavour
from levelfield.spec import UserError

SLACK = 8  # tokens a filled sample may be under its budget
ROUNDS = 8


@dataclass(frozen=True)
class Draft:
    """A sample before its ids."""

    pieces: Pieces
    references: tuple[str, ...]
    depths: tuple[float, ...] = ()
    slices: tuple[tuple[str, str | int | float], ...] = ()


class Misfit(UserError):
    """A prompt that cannot be made: too few tokens, or texts too small. Others of the same call may be well."""


def too_short(room: int, least: int) -> Misfit:
    return Misfit(
        f"The smallest prompt takes {least} tokens and there is room for {room}: give a longer length, or a tokenizer "
        "with fewer tokens to the word."
    )


class _Drafts:
    """Drafts by size and tail, each built and counted once."""

    def __init__(self, build: Callable[[int, str], Draft], pen: Composer) -> None:
        self.build, self.pen = build, pen
        self.made: dict[tuple[int, str], tuple[Draft, int]] = {}

    def __call__(self, size: int, tail: str = "") -> tuple[Draft, int]:
        """The draft and its tokens."""
        if (size, tail) not in self.made:
            draft = self.build(size, tail)
            self.made[size, tail] = draft, self.pen.size(draft.pieces)
        return self.made[size, tail]


def fill(
    build: Callable[[int, str], Draft],
    pen: Composer,
    room: int,
    fits: Callable[[int], int],
    following: Callable[[int], str],
    least: int = 0,
) -> Draft:
    """The longest draft of at most `room` tokens. Raises Misfit.

    build(size, tail): a draft of that many units and the beginning of one more, the same whenever asked; fits(tokens):
    how many units have at most that many; following(size): the text of the next unit.
    """
    drafts = _Drafts(build, pen)
    _, empty = drafts(least)
    if empty > room:
        raise too_short(room, empty)
    best, best_total, tokens = least, empty, room - empty
    for _ in range(ROUNDS):
        size = max(fits(tokens), least)
        _, total = drafts(size)
        if total <= room and total >= best_total:
            best, best_total = size, total
        if total == room or (total < room and size == best and fits(tokens + room - total) <= size):
            break
        tokens += room - total
    return _stretched(drafts, pen, room, best, best_total, following(best))


def _stretched(drafts: _Drafts, pen: Composer, room: int, size: int, total: int, text: str) -> Draft:
    """With the longest beginning of `text` that still fits, in words, or in letters where words are too long."""

    def left(stop: int) -> int:
        return room - drafts(size, text[:stop])[1]

    if room - total <= 1:
        return drafts(size)[0]
    ends = [0, *(m.end() for m in re.finditer(r"\S+", text))]
    costs = np.cumsum([pen.between(" " + word).size for word in text.split()])
    guess = first = int(np.searchsorted(costs, room - total, side="right"))
    while guess and left(ends[guess]) < 0:
        guess -= 1
    while guess >= first and guess + 1 < len(ends) and left(ends[guess + 1]) >= 0:
        guess += 1
    stop = ends[guess]
    if guess + 1 < len(ends) and costs[guess] - (costs[guess - 1] if guess else 0) > SLACK and left(stop) > SLACK:
        low, high = stop, ends[guess + 1] - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if left(middle) >= 0 else (low, middle - 1)
        stop = low
    return drafts(size, text[:stop].rstrip())[0]


def common_size(
    flavour: Flavour, size_of: Callable[[int], int], room: int, step: int, high: int, most: int | None = None
) -> int:
    """The size that RULER would find on one sample: by halving, or by counting up until it is too long.

    size_of(size): tokens of a newly drawn sample; high: where halving starts; most: there are no more units than that.
    Raises Misfit where not even one step fits.
    """
    if flavour.search == "linear":
        size = step
        while (total := size_of(size)) <= room:
            if most is not None and size > most:
                return most
            size += step
        if size == step:
            raise too_short(room, total)
        return size - step
    low, found, high = step, step, max(high, 2 * step)
    while low <= high:
        middle = (low + high) // 2
        if size_of(middle) <= room:
            found, low = middle, middle + 1
        else:
            high = middle - 1
    return found


def step(build: Callable[[int], Draft], pen: Composer, room: int, size: int, by: int) -> Draft:
    """A newly drawn sample of that size or, step by step, less. Raises Misfit where RULER would try for ever."""
    failures = 0
    while True:
        draft = build(size)
        total = pen.size(draft.pieces)
        if total <= room:
            return draft
        if size > by:
            size -= by
        elif (failures := failures + 1) > 20:
            raise too_short(room, total)
