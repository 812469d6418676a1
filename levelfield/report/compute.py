"""Says which arms of equal parameters take unequal compute, as equal steps are no equal FLOPs.

unequal_compute(tables)
# "Compute is not equal at equal parameters: on recall, a step of tied takes 2.78 TFLOP, 12 times as many ..."
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations

from levelfield.report.arms import Arm
from levelfield.report.cells import Cells
from levelfield.report.links import marked
from levelfield.report.tables import si

TOLD = 3  # times as many FLOPs, from which on it is told
ALIKE = 1.1  # times as many parameters, below which `cells.unequal` tells nothing
NOBODY = (0.0, Arm("", "", ""))


def unequal_compute(tables: Iterable[Cells], anchor: Callable[[Arm], str] = lambda arm: "") -> str:
    """Says of two arms of equal parameters how far the FLOPs of a step of training are apart, on the task and under the
    protocol where it is furthest; "" where it is less than TOLD times. anchor: as of `cells.unequal`.

    All phases of an arm count together. Arms that took the same FLOPs in all, in unequal numbers of steps, are equal.
    """
    groups: dict[tuple[str, str], list[tuple[float, float, float, Arm]]] = {}
    for cell in (cell for of in tables for cell in of.cells):
        count, flops, steps = (cell.cost(key) or 0 for key in ("parameters", "flops", "steps"))
        if count and flops and steps:
            groups.setdefault((cell.arm.task, cell.arm.protocol), []).append((flops / steps, flops, count, cell.arm))
    pairs = [
        (more / less, (more, dearer), (less, cheaper))
        for arms in groups.values()
        for (less, low, fewer, cheaper), (more, high, many, dearer) in permutations(arms, 2)
        if max(fewer, many) < ALIKE * min(fewer, many) and high > ALIKE * low
    ]
    times, (most, dearer), (least, cheaper) = max(pairs, key=lambda pair: pair[0], default=(0, NOBODY, NOBODY))
    if times < TOLD:
        return ""
    return (
        f"Compute is not equal at equal parameters: on {dearer.task} ({dearer.protocol}), a step of "
        f"{dearer.model_label} takes {marked(f'{si(most)}FLOP', anchor(dearer))}, {times:.3g} times as many as one of "
        f"{cheaper.model_label} with {marked(f'{si(least)}FLOP', anchor(cheaper))}."
    )
