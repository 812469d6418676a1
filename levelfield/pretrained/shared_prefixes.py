"""Which prompts begin alike: a plan that reads every shared beginning once.

    shared([[5, 6, 7, 1], [5, 6, 7, 2], [9, 9, 9, 9]], length=4, saving=2)
    #   nothing ─┬─ 5 6 7 ─┬─ prompt 0
    #            │         └─ prompt 1
    #            └─ prompt 2

Needles in one haystack differ from where the needle stands, so the text before it need not be read once per prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np


@dataclass
class Segment:
    """Steps `begin` to `end` of each prompt below it, which are the same in all of them.

    parent: index of the segment before it, -1 for the first; example: a prompt that has these steps; prompts: those
    that share no more with others; children: how many segments go on from here.
    """

    parent: int
    begin: int
    end: int
    example: int
    prompts: list[int] = field(default_factory=list)
    children: int = 0


def shared(prompts: Sequence[Sequence[int] | np.ndarray], length: int, saving: int) -> list[Segment]:
    """Segments of the first `length` >= 1 steps, each after its parent; the first one is empty.

    saving: how many steps a segment saves at least, its own times the other prompts that share it. At least the last
    step of a prompt is shared with none, so that every prompt has logits of its own.
    """
    arrays = [np.asarray(p[:length], dtype=">u4") for p in prompts]
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].tobytes())
    alike = np.zeros(len(order), dtype=np.int64)  # steps in common with the prompt before it in that order
    for place in range(1, len(order)):
        differ = arrays[order[place - 1]] != arrays[order[place]]
        alike[place] = min(length - 1, differ.argmax() if differ.any() else length)
    segments = [Segment(-1, 0, 0, order[0])]
    ranges = [(0, len(order), 0)]
    while ranges:
        first, end, under = ranges.pop()
        if end - first == 1:
            segments[under].prompts.append(order[first])
            continue
        inner = alike[first + 1 : end]
        common = int(inner.min())
        if (common - segments[under].end) * (end - first - 1) >= saving:
            segments[under].children += 1
            segments.append(Segment(under, segments[under].end, common, order[first]))
            under = len(segments) - 1
        cuts = [first, *(first + 1 + np.flatnonzero(inner == common)).tolist(), end]
        # The longest chain is taken last, when its parent has no other use.
        parts = sorted(pairwise(cuts), key=lambda part: part[1] - part[0], reverse=True)
        ranges += [(a, b, under) for a, b in parts]
    return segments
