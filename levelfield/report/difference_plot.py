"""Draws how much more one model finds than another, task by task: a panel for each length, a bar for each interval.

    draw(("mamba2-2.7b", "transformerpp-2.7b"), {("vt", 4096): Span(0.06, 0.01, 0.11)})

What lies right of zero is the first model's. Where an interval does not hold zero, it has the colour of the model that
finds more, otherwise it is grey. A mark leads to the line of the page that has both models' scores there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from levelfield.report import style
from levelfield.report.group_curves import tokens
from levelfield.report.paired import Span
from levelfield.report.plots import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

Spans = Mapping[tuple[str, int], Span]
NOTHING: Mapping[tuple[str, int], str] = {}
COLUMNS = 4
LEAST_TASKS = 5  # for which a panel has room, below a legend of long names
LABEL = "difference (points)"


def draw(models: tuple[str, str], spans: Spans, anchors: Mapping[tuple[str, int], str] = NOTHING) -> Figure | None:
    """Returns the figure; None without a difference.

    spans: by task and length, differences as shares. anchors: where a page lists them, by task and length.
    """
    if not spans:
        return None
    tasks = list(dict.fromkeys(task for task, _ in spans))
    lengths = list(dict.fromkeys(length for _, length in spans))
    shade = style.pair(models)
    reach = 100 * max(abs(end) for found in spans.values() for end in (found.low, found.high))
    with style.canvas() as make:
        height = 0.95 + 0.19 * max(len(tasks), LEAST_TASKS)
        figure, axes = style.panels(make, len(lengths), height, columns=COLUMNS)
        for number, (panel, length) in enumerate(zip(axes, lengths, strict=True)):
            found = {task: spans[task, length] for task in tasks if (task, length) in spans}
            urls = {task: style.url(anchors.get((task, length), "")) for task in found}
            _panel(panel, tasks, found, (shade[models[0]], shade[models[1]]), urls)
            panel.set_xlim(-1.08 * reach, 1.08 * reach)
            panel.set_title(tokens(length))
            named = number % COLUMNS == 0
            panel.set_yticks(range(len(tasks)), [style.short(t, 24) for t in tasks] if named else [""] * len(tasks))
            if number + COLUMNS >= len(lengths):
                panel.set_xlabel(LABEL)
        _legend(figure, models, shade)
        drawn = style.render(figure, "differences")
    return Figure(*drawn, f"Differences between {models[0]} and {models[1]} by task and length, with intervals.")


def _legend(figure: Drawn, models: Sequence[str], shade: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D

    names = [f"{models[1]} finds more (left)", f"{models[0]} finds more (right)", "not told apart"]
    colours = (shade[models[1]], shade[models[0]], style.FAINT)
    handles = [Line2D([], [], color=c, marker="o", markersize=4, linewidth=1.4) for c in colours]
    style.legend(figure, handles, names)


def _panel(
    axes: Axes,
    tasks: Sequence[str],
    found: Mapping[str, Span],
    shades: tuple[str, str],
    urls: Mapping[str, str | None],
) -> None:
    axes.axvline(0, color=style.FAINT, linewidth=0.8, zorder=0.5)
    for place, task in enumerate(tasks):
        if task not in found:
            continue
        mean, low, high = (100 * end for end in found[task])
        shade = {1: shades[0], -1: shades[1], 0: style.FAINT}[found[task].sign]
        axes.plot([low, high], [place, place], color=shade, linewidth=1.4, url=urls[task])
        axes.plot(mean, place, "o", color=shade, markersize=4, url=urls[task])
    if "average" in found:
        axes.axhline(0.5, color=style.GRID, linewidth=0.7, zorder=0.4)
    axes.set_ylim(len(tasks) - 0.5, -0.5)
