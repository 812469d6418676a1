"""Draws a scorecard: one small panel for each model, and in it one line for each task, all on one scale.

    draw(cells)         # None for fewer than two tasks

Scores of tasks that differ in difficulty and in what guessing gives cannot share an axis. What can is the share that a
model has of what guessing leaves to be had: 0 is guessing, and 100 is a perfect score. What lies below the lower end of
the axis is marked at its edge: a score by a triangle and its value, the rest of a whisker by a small triangle. A task
on which a model has no score, as of runs that failed or have not ended, says so.
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
LEFT = -8.0  # where the axis begins; what lies further below guessing is marked at its edge


def gained(value: float, floor: float) -> float:
    """Returns the share, in percent, that a score has of what guessing leaves: gained(55, 10) is 50.0."""
    return 100 * (value - floor) / (100 - floor)


def on_the_scale(cells: Cells) -> list[Cell]:
    """Returns the cells with a score in percent of which guessing leaves something."""
    return [cell for cell in cells.cells if cell.unit == "percent" and cell.summary and (cell.floor or 0.0) < 100]


def share(cell: Cell) -> float:
    """Returns what `gained` does of the median of a cell on the scale."""
    assert cell.summary is not None
    return gained(cell.summary.median, cell.floor or 0.0)


def draw(cells: Cells) -> Figure | None:
    """Returns the scorecard of all models with scores in percent; None where fewer than two tasks have one."""
    scored = on_the_scale(cells)
    tasks, models, protocols = (
        list(dict.fromkeys(getattr(cell.arm, name) for cell in scored)) for name in ("task", "model_label", "protocol")
    )
    if len(tasks) < 2:
        return None
    shade, best = style.colours(models), {task: max(share(c) for c in scored if c.arm.task == task) for task in tasks}
    columns = COLUMNS if len(models) % 3 else 3
    with style.canvas() as make:
        figure, axes = style.panels(make, len(models), 1.0 + 0.17 * len(tasks) * (1 + len(protocols)), columns=columns)
        for number, (panel, model) in enumerate(zip(axes, models, strict=True)):
            _panel(panel, [cell for cell in scored if cell.arm.model_label == model], best, protocols, shade[model])
            panel.set_title(style.short(model, 24))
            panel.set_yticks(range(len(tasks)), [style.short(t, 18) if number % columns == 0 else "" for t in tasks])
        marks = " · ".join(f"{mark.letter} {protocol}" for protocol, mark in style.marks(protocols).items())
        told = f"0 is guessing, 100 perfect; whisker: 95 % interval; grey line: the best model · {marks}"
        told += _legend(scored)
        figure.suptitle(told, fontsize=8.5, x=0.01, ha="left", color=style.FAINT)
        drawn = style.render(figure, "scorecard")
    return Figure(*drawn, f"Share of what guessing leaves, on {', '.join(tasks)}, of {', '.join(models)}.")


NOTHING = "no score"  # in the line of a task on which a model has none
CUT = "◂"  # of a score that lies left of the axis
GOES_ON = 8  # the marker of a whisker that does: a small triangle outside the axis


def _ends(cell: Cell) -> tuple[float, ...]:
    """Returns both ends of the whisker of a cell, over seeds or else over test examples; () where it has none."""
    interval = cell.summary and (cell.summary.interval or cell.summary.test)
    return tuple(gained(end, cell.floor or 0.0) for end in interval) if interval else ()


def _legend(cells: Sequence[Cell]) -> str:
    """Says in a second line what the marks at the left edge mean, of those that there are; "" without any."""
    points = any(share(cell) < LEFT for cell in cells)
    whiskers = any(share(cell) >= LEFT > min(_ends(cell), default=LEFT) for cell in cells)
    said = [f"{CUT} −20: a score of −20, left of the axis"] if points else []
    said += [f"small {CUT} without a number: the whisker goes on to the left"] if whiskers else []
    return f"\n{' · '.join(said)}" if said else ""


def _line(axes: Axes, cell: Cell, height: float, mark: style.Mark, shade: str) -> None:
    """Draws the score and the whisker of one cell, marked at the left edge where they lie beyond it."""
    middle, ends = share(cell), _ends(cell)
    shown = [max(LEFT, end) for end in ends]
    if ends and max(ends) > LEFT:
        axes.plot(shown, [height, height], color=shade, linewidth=1.6, zorder=2)
    cut = middle < LEFT
    shape, face, url = "<" if cut else mark.shape, mark.face(shade), style.url(cell.anchor)
    axes.plot(max(LEFT, middle), height, shape, color=shade, mfc=face, markersize=5.5, zorder=3, url=url, clip_on=False)
    if cut:
        after = max([LEFT, *shown]) + 4
        text = f"{middle:.0f}".replace("-", "−")
        axes.text(after, height, text, fontsize=6.5, color=shade, va="center_baseline", zorder=4)
    elif ends and min(ends) < LEFT:
        axes.plot(LEFT, height, marker=GOES_ON, color=shade, markersize=4.5, zorder=2.5, clip_on=False)


def _panel(axes: Axes, mine: Sequence[Cell], best: Mapping[str, float], protocols: Sequence[str], shade: str) -> None:
    """Draws the lines of one model, those of several protocols one below the other."""
    step, marks = 0.7 / len(protocols), style.marks(protocols)
    for place, (task, most) in enumerate(best.items()):
        axes.barh(place, 100, height=0.84, color=style.GRID, alpha=0.45, zorder=0)
        axes.plot([most, most], [place - 0.42, place + 0.42], color=style.FAINT, linewidth=1.4, zorder=1)
        of_task = [cell for cell in mine if cell.arm.task == task]
        if not of_task:
            axes.text(0, place, NOTHING, fontsize=7.5, color=style.FAINT, va="center_baseline", zorder=4)
        for cell in of_task:
            rank = protocols.index(cell.arm.protocol)
            height = place + step * (rank - (len(protocols) - 1) / 2)
            _line(axes, cell, height, marks[cell.arm.protocol], shade)
    axes.set_xlim(LEFT, 103)
    axes.set_ylim(len(best) - 0.4, -0.6)
    axes.set_xticks([0, 50, 100])
    axes.set_xlabel("% of what guessing leaves")
