"""Draws a scorecard: one small panel for each model, and in it one line for each task, all on one scale.

    draw(cells)         # None for fewer than two tasks

Scores of tasks that differ in difficulty and in what guessing gives cannot share an axis. What can is the share that a
model has of what guessing leaves to be had: 0 is guessing, and 100 is a perfect score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from levelfield.report import style
from levelfield.report.cells import Cell, Cells
from levelfield.report.plots import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 4  # panels side by side
LEFT = -8.0  # where the axis begins: a score below guessing is drawn there at the lowest


def gained(value: float, floor: float) -> float:
    """Returns the share, in percent, that a score has of what guessing leaves: gained(55, 10) is 50.0."""
    return 100 * (value - floor) / (100 - floor)


def draw(cells: Cells) -> Figure | None:
    """Returns the scorecard of all models with scores in percent; None where fewer than two tasks have one."""
    scored = [cell for cell in cells.cells if cell.unit == "percent" and cell.summary and (cell.floor or 0.0) < 100]
    tasks, models, protocols = (
        list(dict.fromkeys(getattr(cell.arm, name) for cell in scored)) for name in ("task", "model_label", "protocol")
    )
    if len(tasks) < 2:
        return None
    shade, best = style.colours(models), {task: max(_middle(c) for c in scored if c.arm.task == task) for task in tasks}
    columns = COLUMNS if len(models) % 3 else 3
    with style.canvas() as make:
        figure, axes = style.panels(make, len(models), 1.0 + 0.17 * len(tasks) * (1 + len(protocols)), columns=columns)
        for number, (panel, model) in enumerate(zip(axes, models, strict=True)):
            _panel(panel, [cell for cell in scored if cell.arm.model_label == model], best, protocols, shade[model])
            panel.set_title(style.short(model, 24))
            panel.set_yticks(range(len(tasks)), [style.short(t, 18) if number % columns == 0 else "" for t in tasks])
        marks = " · ".join(f"{mark} {protocol}" for mark, protocol in zip(MARKS, protocols, strict=False))
        told = f"0 is guessing, 100 perfect; whisker: 95 % interval; grey line: the best model · {marks}"
        figure.suptitle(told, fontsize=8.5, x=0.01, ha="left", color=style.FAINT)
        drawn = style.render(figure, "scorecard")
    return Figure(*drawn, f"Share of what guessing leaves, on {', '.join(tasks)}, of {', '.join(models)}.")


MARKS = "●○■□▲△"  # of protocols, in their order
SHAPES = ("o", "o", "s", "s", "^", "^")


def _middle(cell: Cell) -> float:
    assert cell.summary is not None
    return gained(cell.summary.median, cell.floor or 0.0)


def _panel(axes: Axes, mine: Sequence[Cell], best: Mapping[str, float], protocols: Sequence[str], shade: str) -> None:
    """Draws the lines of one model, those of several protocols one below the other."""
    step = 0.7 / len(protocols)
    for place, (task, most) in enumerate(best.items()):
        axes.barh(place, 100, height=0.84, color=style.GRID, alpha=0.45, zorder=0)
        axes.plot([most, most], [place - 0.42, place + 0.42], color=style.FAINT, linewidth=1.4, zorder=1)
        for cell in (cell for cell in mine if cell.arm.task == task):
            rank = protocols.index(cell.arm.protocol)
            height, middle = place + step * (rank - (len(protocols) - 1) / 2), max(LEFT, _middle(cell))
            interval = cell.summary and (cell.summary.interval or cell.summary.test)
            if interval:
                ends = [max(LEFT, gained(end, cell.floor or 0.0)) for end in interval]
                axes.plot(ends, [height, height], color=shade, linewidth=1.6, zorder=2)
            fill = style.PAPER if rank % 2 else shade
            shape, url = SHAPES[rank % len(SHAPES)], style.url(cell.anchor)
            axes.plot(middle, height, shape, color=shade, mfc=fill, markersize=5.5, zorder=3, url=url)
    axes.set_xlim(LEFT, 103)
    axes.set_ylim(len(best) - 0.4, -0.6)
    axes.set_xticks([0, 50, 100])
    axes.set_xlabel("% of what guessing leaves")
