"""Finds the lengths at which a server may not have read all of its prompts, by the tokens that it counted.

    cut_lengths(answers, exact=True)      # {8192}: it counted less than nine tenths of what a prompt has there

Where our own counts are approximate, a server's may lie below them for prompts that it has read. Two things tell then:
all prompts of a length have one count although their texts differ, or counts hardly grow from one length to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from levelfield.longcontext.predictions import Prediction

ALIKE = 3  # answers with one and the same count that tell something
LONGER = 1.25  # times as many tokens that a prompt has to have before growth tells something
GROWTH = 0.7  # of the growth that is expected: whose counts grow less may have read no more


def cut_lengths(found: Iterable[Prediction], exact: bool) -> set[int]:
    """Returns the lengths of answers at which prompts may have been cut off. exact: whether our own counts are."""
    cells: dict[tuple[str, int], list[Prediction]] = {}
    for p in found:
        if "prompt" in p.counted:
            cells.setdefault((p.base_task, p.length), []).append(p)
    if exact:
        return {length for (_, length), group in cells.items() if any(p.cut_off for p in group)}
    sizes = {place: (median(p.tokens for p in group), median(map(_counted, group))) for place, group in cells.items()}
    return {
        length
        for (task, length), group in cells.items()
        if _all_alike(group) or any(_stays(size, sizes[task, length]) for (t, _), size in sizes.items() if t == task)
    }


def _counted(one: Prediction) -> int:
    return one.counted["prompt"]


def _all_alike(group: Sequence[Prediction]) -> bool:
    """Whether prompts of several sizes have one count, which is less than all of them have."""
    differ = len(group) >= ALIKE and len({p.tokens for p in group}) > 1
    return differ and len(set(map(_counted, group))) == 1 and all(p.cut_off for p in group)


def _stays(shorter: tuple[float, float], longer: tuple[float, float]) -> bool:
    """Whether the server's counts grow far less than ours. Each: tokens of a prompt by us and by the server."""
    (ours, theirs), (ours_then, theirs_then) = shorter, longer
    expected = min(1.0, theirs / ours) * (ours_then - ours)
    return ours_then >= LONGER * ours and theirs_then - theirs < GROWTH * expected
