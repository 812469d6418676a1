"""Draws the scores of many tasks that have one arm each: a line for each task, all on one scale.

    draw(cells)         # None where a task has several arms, or a few panels show as much

Grey is what guessing leaves to be had, and a tick in it each further rule that needs no training. Tasks are ranked by
the share of the grey that the arm has, so that those of which little was learnt are the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from levelfield.report import style
from levelfield.report.cells import Cell, Cells
from levelfield.report.plots import Figure, score_label
from levelfield.report.scorecard import on_the_scale, share
from levelfield.report.tables import baseline_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST = 9  # tasks; of fewer, a panel for each has room to name every rule
NAME, RULE = 103, 121  # where the name of the model begins, and that of the best rule, on the axis of scores


def draw(cells: Cells) -> Figure | None:
    """Returns the lines; None where there are fewer than FEWEST tasks, several arms on one, or no scores in percent."""
    scored = on_the_scale(cells)
    if len(scored) < FEWEST or len({cell.arm.task for cell in cells.cells}) < len(cells.cells):
        return None
    ranked = sorted(scored, key=share, reverse=True)
    shade = style.colours(cells.models)
    with style.canvas() as make:
        figure, (axes,) = style.panels(make, 1, 0.9 + 0.23 * len(ranked), columns=1)
        for place, cell in enumerate(ranked):
            _line(axes, place, cell, shade[cell.arm.model_label], cells.baselines.get(cell.arm.task, {}))
        axes.set_yticks(range(len(ranked)), [style.short(cell.arm.task, 24) for cell in ranked])
        axes.set_ylim(len(ranked) - 0.4, -1.6)
        axes.set_xlim(0, 101)
        axes.set_xlabel(score_label(cells))
        for x, head in ((NAME, "model"), (RULE, "best simple rule")):
            axes.text(x, -1.1, head, fontsize=8, color=style.FAINT, va="center_baseline")
        told = "grey: what guessing leaves; tick: a simple rule; dot: median, with a 95 % interval where it is wider"
        figure.suptitle(told, fontsize=8.5, x=0.01, ha="left", color=style.FAINT)
        drawn = style.render(figure, "compare")
    return Figure(*drawn, f"Test scores, best first: {', '.join(_words(cell) for cell in ranked)}.")


def _words(cell: Cell) -> str:
    assert cell.summary is not None
    return f"{cell.arm.task} {cell.summary.median:.0f} %"


def _line(axes: Axes, place: int, cell: Cell, shade: str, rules: Mapping[str, float]) -> None:
    """Draws one task. rules: the score of each rule, in percent."""
    floor = cell.floor or 0.0
    axes.barh(place, 100 - floor, left=floor, height=0.7, color=style.GRID, alpha=0.6, zorder=0)
    above = {name: value for name, value in rules.items() if value > floor}
    for value in above.values():
        axes.plot([value, value], [place - 0.35, place + 0.35], color=style.FAINT, linewidth=1.4, zorder=1)
    assert cell.summary is not None
    ends: Sequence[float] = cell.summary.interval or cell.summary.test or ()
    axes.plot(ends, [place] * len(ends), color=shade, linewidth=1.8, zorder=2)
    dot = {"color": shade, "markersize": 6, "zorder": 3, "clip_on": False, "url": style.url(cell.anchor)}
    axes.plot(cell.summary.median, place, "o", **dot)
    axes.text(NAME, place, style.short(cell.arm.model_label, 20), fontsize=8, color=shade, va="center_baseline")
    if above:
        best = max(above, key=lambda name: above[name])
        text = style.short(baseline_name(best), 20)
        axes.text(RULE, place, text, fontsize=8, color=style.FAINT, va="center_baseline")
