"""Fits a sample into its token budget: fills the budget, or shrinks the sample as RULER does.

    fill_to_budget(build, composer, room, units_within=..., following=...)    # at most SLACK tokens under `room`
    shrink_to_fit(build, composer, room, size, by)                            # smaller step by step, until it fits

RULER finds the size (words, lines, documents) that fits one sample and uses it for all. A sample that comes out longer
is drawn again one step smaller, so lengths scatter over a step. Filling draws once, takes as many whole units as fit,
and adds part of one more: whole words of it, then letters.
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
class PromptDraft:
    """A sample before its ids are composed."""

    pieces: Pieces
    references: tuple[str, ...]
    depths: tuple[float, ...] = ()
    slices: tuple[tuple[str, str | int | float], ...] = ()


class DoesNotFit(UserError):
    """Raised for a prompt that cannot be made: too few tokens, or source texts too small. Other samples may fit."""


def too_short(room: int, least: int) -> DoesNotFit:
    return DoesNotFit(
        f"The smallest prompt takes {least} tokens and there is room for {max(0, room)}: give a longer length, or a "
        "tokenizer with fewer tokens to the word."
    )


class _Drafts:
    """Builds and counts each draft, by size and tail, once."""

    def __init__(self, build: Callable[[int, str], PromptDraft], composer: Composer) -> None:
        self.build, self.composer = build, composer
        self.made: dict[tuple[int, str], tuple[PromptDraft, int]] = {}

    def __call__(self, size: int, tail: str = "") -> tuple[PromptDraft, int]:
        """Returns the draft and its number of tokens."""
        if (size, tail) not in self.made:
            draft = self.build(size, tail)
            self.made[size, tail] = draft, self.composer.size(draft.pieces)
        return self.made[size, tail]


def fill_to_budget(
    build: Callable[[int, str], PromptDraft],
    composer: Composer,
    room: int,
    *,
    units_within: Callable[[int], int],
    following: Callable[[int], str],
    least: int = 0,
) -> PromptDraft:
    """Returns the longest draft of at most `room` tokens. Raises DoesNotFit.

    build(size, tail): a draft of `size` units and the beginning `tail` of one more, the same on every call;
    units_within(tokens): how many units have at most that many tokens; following(size): the text of the next unit.
    """
    drafts = _Drafts(build, composer)
    _, empty = drafts(least)
    if empty > room:
        raise too_short(room, empty)
    best, best_total, tokens = least, empty, room - empty
    for _ in range(ROUNDS):
        size = max(units_within(tokens), least)
        _, total = drafts(size)
        if total <= room and total >= best_total:
            best, best_total = size, total
        if total == room or (total < room and size == best and units_within(tokens + room - total) <= size):
            break
        tokens += room - total
    return _extended(drafts, room, best, following(best))


def _extended(drafts: _Drafts, room: int, size: int, text: str) -> PromptDraft:
    """Appends the longest beginning of `text` that still fits, in words, or in letters if words are too long."""

    def left(stop: int) -> int:
        return room - drafts(size, text[:stop])[1]

    draft, total = drafts(size)
    if room - total <= 1:
        return draft
    ends = [0, *(m.end() for m in re.finditer(r"\S+", text))]
    costs = np.cumsum([drafts.composer.between(" " + word).size for word in text.split()])
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
    flavour: Flavour, tokens_of: Callable[[int], int], room: int, *, step: int, high: int, most: int | None = None
) -> int:
    """Finds the size that RULER would find on one sample: by bisection, or by counting up until it is too long.

    tokens_of(size): tokens of a newly drawn sample; high: where bisection starts; most: the number of units there are.
    Raises DoesNotFit if not even one step fits.
    """
    if flavour.search == "linear":
        size = step
        while (total := tokens_of(size)) <= room:
            if most is not None and size > most:
                return most
            size += step
        if size == step:
            raise too_short(room, total)
        return size - step
    low, found, high = step, step, max(high, 2 * step)
    while low <= high:
        middle = (low + high) // 2
        if tokens_of(middle) <= room:
            found, low = middle, middle + 1
        else:
            high = middle - 1
    return found


def shrink_to_fit(
    build: Callable[[int], PromptDraft], composer: Composer, room: int, size: int, by: int
) -> PromptDraft:
    """Draws a new sample of that size or, step by step, less. Raises DoesNotFit where RULER would retry for ever."""
    failures = 0
    while True:
        draft = build(size)
        total = composer.size(draft.pieces)
        if total <= room:
            return draft
        if size > by:
            size -= by
        elif (failures := failures + 1) > 20:
            raise too_short(room, total)
