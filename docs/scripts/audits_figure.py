"""Draws what audits found as one picture: a line per task, and from left to right what windows, models that see
everything, sequences without order and rules without a sequence have of what was learnt.

    draw(found)        # PNG bytes, the tasks from top to bottom in the order that is given
    caption(found)     # the same in words, for those who do not see it
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from levelfield.report import style
from levelfield.report.audit import words
from levelfield.report.audit.reading import Number, Reading
from levelfield.report.audit.shares import DISORDERED, FREE, RULE, WINDOW

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.35  # between the four parts, in cells
LINE, HEAD, FOOT = 0.34, 0.95, 0.2  # inches
FACTS = (-2.25, -1.5, -0.65)  # where the names of tasks, their steps and what was learnt end, in cells
LEFT, NAMES = -4.65, 2.0  # where the names begin, and the room for those of rules
NONE, BEST = "none", "best"  # of the order of steps; of the rules, whose name stands beside it
COLOURS = "cividis"  # even in lightness, and the same to readers of any colour vision
DARK = 0.55  # shares from which letters are dark
ACROSS = 160  # letters in a line of the sentence at the foot


class Part(NamedTuple):
    """Some columns under one title: what is written above each, and the share of it that an audit found."""

    title: str
    names: tuple[str, ...]
    shares: dict[str, dict[str, Number]]


def draw(audits: Sequence[Reading]) -> bytes:
    """Returns the picture. Tasks of which nothing is claimed stand below a line that says so; those in which nothing
    is shown to be learnt have no shares, and a sentence at the foot names them."""
    foot = _unlearnt([found for found in audits if not found.learnable])
    audits = [found for found in audits if found.learnable]
    parts = list(_parts(audits))
    with style.canvas() as make:
        height = HEAD + FOOT + LINE * (len(audits) + 1 + 0.6 * len(foot))
        figure, (axes,) = style.panels(make, 1, height=height, width=style.WIDTH + 3)
        axes.set_axis_off()
        left = 0.0
        for part in parts:
            _columns(axes, part, audits, left)
            left += len(part.names) + GAP
        for row, found in enumerate(audits):
            y = _height(row, audits)
            facts = f"{found.fact('steps', 'test', 'median'):,.0f}", f"{100 * max(0, found.learnt):.0f} %"
            name = f"{found.task} (by proof {found.enough.steps:.0f})" if found.proved else found.task
            for x, said in zip(FACTS, (name, *facts), strict=True):
                axes.text(x, y, said, ha="right", va="center", fontsize=9)
        for x, said in zip(FACTS[1:], ("steps", "learnt"), strict=True):
            axes.text(x, -0.72, said, ha="right", va="bottom", fontsize=8.5)
        if 0 < (clear := _clear(audits)) < len(audits):
            said = "Nothing is claimed of these: less than half was learnt, or not by windows, or not by what sees all."
            axes.text(LEFT, clear + 0.02, said, va="center", fontsize=8.5, color=style.FAINT)
        below = len(audits) + (0.6 if clear < len(audits) else -0.4)
        axes.text(LEFT, below, "\n".join(foot), va="top", fontsize=8.5, color=style.FAINT, linespacing=1.4)
        axes.set_xlim(LEFT, left - GAP - 0.45 + NAMES)
        axes.set_ylim(below + 0.6 * len(foot), -1.75)
        return style.render(figure, "audits")[1]


def _unlearnt(audits: Sequence[Reading]) -> list[str]:
    """Returns the lines of the sentence that names these tasks; none where there are none."""
    names = ", ".join(found.task for found in audits)
    return textwrap.wrap(f"No score above guessing is shown: {names}.", ACROSS) if audits else []


def _clear(audits: Sequence[Reading]) -> int:
    """Returns of how many of the tasks, which come first, something is claimed."""
    return sum(words.claims(found) for found in audits)


def _height(row: int, audits: Sequence[Reading]) -> float:
    """Returns where a task's line is, with room for a sentence above those of which nothing is claimed."""
    return row + (1 if 0 < _clear(audits) <= row else 0)


def _parts(audits: Sequence[Reading]) -> Iterator[Part]:
    """Yields the windows by their steps, what sees everything, what is left without order, and the best rule."""
    steps = sorted({int(share.place) for f in audits for share in f.of_kind(WINDOW).values()})
    windows = {f.task: {share.place: share for share in f.of_kind(WINDOW).values()} for f in audits}
    title = "share of what was learnt that windows of so many steps have"
    yield Part(title, tuple(f"{most}" for most in steps), windows)
    free = {f.task: f.of_kind(FREE) for f in audits}
    yield Part("models that\nsee all", tuple(dict.fromkeys(n for shares in free.values() for n in shares)), free)
    shuffled = {f.task: {NONE: found} for f in audits if (found := f.of_kind(DISORDERED).get("unordered"))}
    yield Part("order\nof steps", (NONE,), shuffled)
    best = {f.task: {BEST: f.shares[f.best_rule()]} for f in audits if f.of_kind(RULE)}
    yield Part("rules without\na sequence", (BEST,), best)


def _columns(axes: Axes, part: Part, audits: Sequence[Reading], left: float) -> None:
    """Draws the cells of one part, each with its share in percent; a cell that was not tried stays empty."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    colour = colormaps[COLOURS]
    middle = left + (len(part.names) - 1) / 2
    axes.text(middle, -1.15, part.title, ha="center", va="bottom", fontsize=8.5, weight="bold")
    for column, name in enumerate(part.names):
        axes.text(left + column, -0.72, name, ha="center", va="bottom", fontsize=8.5)
        for row, found in enumerate(audits):
            share = part.shares.get(found.task, {}).get(name)
            if share is None:
                continue
            seen, y = min(1.0, max(0.0, share.value)), _height(row, audits)
            axes.add_patch(Rectangle((left + column - 0.48, y - 0.45), 0.96, 0.9, color=colour(seen)))
            letters = style.INK if seen > DARK else style.PAPER
            text = f"{100 * share.value:z.0f}"
            axes.text(left + column, y, text, ha="center", va="center", fontsize=9, color=letters)
            if name == BEST:
                axes.text(left + column + 0.6, y, words.rule_words(share.place), va="center", fontsize=8.5)


def caption(audits: Sequence[Reading]) -> str:
    """Returns the tasks of which something is claimed, each with the window that is enough for it."""
    said = [f"{found.task}: {_enough(found)}" for found in audits[: _clear(audits)]]
    return f"Windows that have 95 % of what was learnt, where something is claimed. {'; '.join(said)}."


def _enough(found: Reading) -> str:
    return f"{found.enough.steps:.0f} steps{', by proof' if found.proved else ''}"
