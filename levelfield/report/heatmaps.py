"""Draws heat maps: a panel per model, lengths to the right, depth or format downwards, dark where nothing is found.

heat(results, cells, "depth")       # from rows at "length=512,depth=3"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from levelfield.report import style
from levelfield.report.against_printed import pairs
from levelfield.report.cells import Cells, arms_of, is_baseline, is_test, row_value
from levelfield.report.links import common_anchor
from levelfield.report.plots import Figure, score_label
from levelfield.runs.results import Results
from levelfield.spec import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Place = tuple[str, float]  # the value of an axis, and a length
Grid = Mapping[Place, Sequence[float]]
Counts = Mapping[Place, int]
Anchors = Mapping[Place, str]
Places = tuple[list[str], list[float]]
NOTHING: Mapping[str, Mapping[Place, Any]] = {}
COLOURS = "cividis"  # even in lightness, and the same to readers of any colour vision
NUMBERS = 8  # columns up to which cells show their number
TITLE = 84  # letters of titles that have room side by side
NAME = 40  # letters of a row's name
BEYOND = "‡"  # at lengths that the model was not made for


def grids(results: Results, metric: str, axis: str) -> dict[tuple[str, str], dict[Place, list[float]]]:
    """(task, model and protocol) -> (value of `axis`, length) -> the values of all seeds."""
    return {name: _values(grid) for name, grid in _placed(results, metric, axis).items()}


def _values(grid: Mapping[Place, Sequence[Row]]) -> dict[Place, list[float]]:
    return {place: [value for row in rows if (value := row_value(row)) is not None] for place, rows in grid.items()}


def _placed(results: Results, metric: str, axis: str) -> dict[tuple[str, str], dict[Place, list[Row]]]:
    """(task, model and protocol) -> (value of `axis`, length) -> the rows of all seeds, each with a value."""
    arms = arms_of(results)
    protocols = {arm.protocol for arm in arms.values()}
    found: dict[tuple[str, str], dict[Place, list[Row]]] = {}
    for row in results.rows:
        place = pairs(row.get("at", ""))
        if set(place) != {"length", axis} or row_value(row) is None or is_baseline(row) or not is_test(row):
            continue
        if row.get("metric") == metric:
            arm = arms[row.get("run", "")]
            name = arm.model_label if len(protocols) == 1 else f"{arm.model_label} · {arm.protocol}"
            cell = (place[axis], float(place["length"]))
            found.setdefault((arm.task, name), {}).setdefault(cell, []).append(row)
    return found


def heat(results: Results, cells: Cells, axis: str) -> Figure | None:
    """A panel per task and model; the median of the seeds in every cell."""
    found = _placed(results, cells.metric, axis)
    if not found:
        return None
    tasks = {task for task, _ in found}
    titles = [model if len(tasks) == 1 else f"{model} · {task}" for task, model in found]
    placed = dict(zip(titles, found.values(), strict=True))
    panels = {title: _values(grid) for title, grid in placed.items()}
    anchors = {title: {place: common_anchor(rows) for place, rows in grid.items()} for title, grid in placed.items()}
    floor = min((min(rules.values()) for rules in cells.baselines.values() if rules), default=0.0)
    return draw(panels, axis, (min(floor, 100.0), 100.0), score_label(cells), anchors=anchors)


def draw(
    panels: Mapping[str, Grid],
    axis: str,
    limits: tuple[float, float],
    label: str,
    counts: Mapping[str, Counts] = NOTHING,
    beyond: float | None = None,
    anchors: Mapping[str, Anchors] = NOTHING,
) -> Figure:
    """Draws one panel for each title.

    panels: title -> (value of `axis`, length) -> scores; where values are numbers, all show the same. limits: the
    scores at the ends of the colours. counts: of the examples behind a cell. beyond: lengths over it are marked.
    anchors: where a page lists the rows of a cell."""
    whole = _places(panels.values())
    places = {title: whole if _numbers(whole[0]) else _places([grid]) for title, grid in panels.items()}
    columns = _columns(len(panels), whole)
    with style.canvas() as make:
        height = 0.9 + (0.31 if counts else 0.2) * max(len(values) for values, _ in places.values())
        figure, axes = style.panels(make, len(panels), height, columns=columns)
        image: Any = None
        for number, (panel, (title, grid)) in enumerate(zip(axes, panels.items(), strict=True)):
            image = _panel(panel, grid, places[title], limits, counts.get(title, {}), anchors=anchors.get(title, {}))
            _mark_beyond(panel, places[title][1], beyond)
            panel.set_title(style.short(title, TITLE // columns), fontsize=9)
            if number % columns == 0:
                panel.set_ylabel(axis)
            if number + columns >= len(panels):
                panel.set_xlabel("length")
        bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, aspect=30)
        bar.set_label(label)
        bar.outline.set_visible(False)
        if beyond is not None and whole[1][-1] > beyond:
            words = f"{BEYOND} beyond the {beyond:,.0f} positions that the model was made for"
            figure.suptitle(words, fontsize=8.5, x=0.01, ha="left", color=style.FAINT)
        drawn = style.render(figure, f"heat-{axis}")
    return Figure(*drawn, f"{label} by length and {axis} for {', '.join(panels)}.")


def _places(grids: Iterable[Grid]) -> Places:
    """Values and lengths of some panels, in order."""
    cells = {cell for grid in grids for cell in grid}
    return sorted({value for value, _ in cells}, key=_order), sorted({length for _, length in cells})


def _numbers(values: Sequence[str]) -> bool:
    return all(_order(value)[0] < float("inf") for value in values)


def _columns(panels: int, whole: Places) -> int:
    """Panels side by side: as many as leave each the room of its names and its cells."""
    values, lengths = whole
    names = min(max(len(value) for value in values), NAME)
    each = 0.075 * names + max(0.42 * min(len(lengths), NUMBERS), 1.2)  # inches
    return max(1, min(4, panels, int((style.WIDTH - 1) / each)))


def _panel(
    axes: Axes,
    grid: Grid,
    places: Places,
    limits: tuple[float, float],
    counts: Counts,
    anchors: Anchors,
) -> Any:
    import numpy as np

    values, lengths = places
    scores = np.full((len(values), len(lengths)), np.nan)
    for (value, length), seeds in grid.items():
        scores[values.index(value), lengths.index(length)] = median(seeds)
    shown = [(values[i], lengths[j]) for i, j in np.argwhere(np.isfinite(scores))]
    urls = [style.url(anchors.get(place, "")) for place in shown]
    image = axes.pcolor(scores, cmap=COLOURS, vmin=limits[0], vmax=limits[1], urls=urls)  # a mesh would have no links
    axes.invert_yaxis()
    axes.set_xticks([i + 0.5 for i in range(len(lengths))], [f"{length:g}" for length in lengths])
    axes.set_yticks([i + 0.5 for i in range(len(values))], [style.short(value, NAME) for value in values])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8)
    if len(lengths) <= NUMBERS:
        middle = sum(limits) / 2
        for (i, j), score in np.ndenumerate(scores):
            if not np.isfinite(score):
                continue
            shade = "#ffffff" if score < middle else "#1a1a1a"
            count = counts.get((values[i], lengths[j]))
            up = 0.5 if count is None else 0.36
            axes.text(j + 0.5, i + up, f"{score:.0f}", ha="center", va="center", fontsize=6.5, color=shade)
            if count is not None:
                axes.text(j + 0.5, i + 0.76, f"n={count}", ha="center", va="center", fontsize=5, color=shade)
    return image


def _mark_beyond(axes: Axes, lengths: Sequence[float], beyond: float | None) -> None:
    """A sign at the lengths, and a line before the first of them."""
    past = [i for i, length in enumerate(lengths) if beyond is not None and length > beyond]
    if past:
        names = [f"{length:g} {BEYOND}" if i in past else f"{length:g}" for i, length in enumerate(lengths)]
        axes.set_xticks([i + 0.5 for i in range(len(lengths))], names)
        axes.axvline(past[0], color=style.INK, linewidth=1.2, linestyle=(0, (3, 2)), clip_on=False)


def _order(value: str) -> tuple[float, str]:
    """Numbers by size, then names."""
    try:
        return float(value), ""
    except ValueError:
        return float("inf"), value
