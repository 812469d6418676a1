"""Draws final scores: ours beside printed, and the gap between protocols.

Each takes cells or rows and returns a `Figure`, or None where there is nothing to draw. Every seed is a dot, the
median is what the eye meets first, and chance, label prior and greedy rules are lines in every panel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from levelfield.files import atomic
from levelfield.report import style
from levelfield.report.against_printed import Counterpart
from levelfield.report.arms import Arm
from levelfield.report.cells import Cell, Cells
from levelfield.report.tables import baseline_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


DOTS = 1_000  # of an arm; more are one picture within the figure, as each dot alone takes 140 bytes of a page


@dataclass(frozen=True)
class Figure:
    """A finished figure. `alt` says in words what it shows, for whoever cannot see it."""

    svg: str
    png: bytes
    alt: str

    def write(self, folder: Path, name: str) -> list[Path]:
        """Writes name.svg and name.png."""
        with atomic(folder / f"{name}.svg") as partial:
            partial.write_text(self.svg, encoding="utf-8")
        with atomic(folder / f"{name}.png") as partial:
            partial.write_bytes(self.png)
        return [folder / f"{name}.svg", folder / f"{name}.png"]


def score_label(cells: Cells) -> str:
    """What the score axis measures, with its unit."""
    unit = " (%)" if cells.unit == "percent" else ""
    return f"test {cells.metric.replace('_', ' ')}{unit}"


def merged_rules(rules: Mapping[str, float]) -> list[tuple[float, str]]:
    """(score, names) of the baselines; rules with the same score share one name."""
    merged: dict[float, list[str]] = {}
    for name, value in rules.items():
        merged.setdefault(round(value, 2), []).append(baseline_name(name))
    return sorted((value, ", ".join(names)) for value, names in merged.items())


def _vertical_references(axes: Axes, rules: Mapping[str, float], arms: int) -> None:
    """Baselines as vertical lines below their names, which stand staggered above the first of `arms` rows."""
    lines = merged_rules(rules)
    top, middle = -0.55 - 0.5 * len(lines), sum(axes.get_xlim()) / 2
    for level, (value, text) in enumerate(lines):
        height = top + 0.5 * (level + 0.5)
        axes.plot([value, value], [height, arms - 0.5], ":", color=style.FAINT, linewidth=0.9, zorder=0.5)
        axes.annotate(
            style.short(text, 34),
            (value, height),
            xytext=(3, 0) if value <= middle else (-3, 0),
            textcoords="offset points",
            va="center",
            ha="left" if value <= middle else "right",
            fontsize=7.5,
            color=style.FAINT,
            **style.CLEAR,
        )
    axes.set_ylim(arms - 0.5, top)


def _score_limits(cells: Cells, task: str, extra: Sequence[float] = ()) -> tuple[float, float]:
    """Spans what is drawn in one panel, from just below the lowest to just above the highest."""
    values = [s.value for c in cells.of(task) for s in c.scores if s.value is not None]
    values += [*cells.baselines.get(task, {}).values(), *extra]
    low, high = min(values), max(values)
    margin = 0.06 * max(high - low, 1e-3)
    return low - margin, high + margin


def compare(cells: Cells, counterparts: Mapping[Arm, Sequence[Counterpart]]) -> Figure | None:
    """A line per arm: its seeds, their median, and as open diamonds the printed numbers of the very same run."""
    tasks = [t for t in cells.tasks if any(c.summary for c in cells.of(t))]
    if not tasks:
        return None
    colour = style.colours(cells.models)
    same = [m.value for matches in counterparts.values() for m in matches if m.value is not None and not m.unlike]
    rows = max(len(cells.of(t)) for t in tasks)
    with style.canvas() as make:
        columns = 2 if max(len(str(c.arm)) for c in cells.cells) <= 24 else 1
        figure, axes = style.panels(make, len(tasks), 1.3 + 0.27 * rows, columns=columns)
        for panel, task in zip(axes, tasks, strict=True):
            _compare_panel(panel, cells, task, counterparts, colour)
            mine = [m.value for c in cells.of(task) for m in _same(c.arm, counterparts) if m.value is not None]
            panel.set_xlim(*_score_limits(cells, task, mine))
            _vertical_references(panel, cells.baselines.get(task, {}), len(cells.of(task)))
            panel.set_xlabel(score_label(cells))
        printed = "◇ printed" if same else "no run here is a printed one: the table says what differs"
        told = " · ".join(["● a seed", "| median of seeds", *([printed] if counterparts else [])])
        figure.suptitle(told, fontsize=8.5, x=0.01, ha="left", color=style.FAINT)
        drawn = style.render(figure, "compare")
    beside = ", beside printed numbers" if same else ""
    return Figure(*drawn, f"Test scores of every arm on {', '.join(tasks)}, each seed a dot{beside}.")


def _compare_panel(
    axes: Axes, cells: Cells, task: str, counterparts: Mapping[Arm, Sequence[Counterpart]], colour: Mapping[str, str]
) -> None:
    mine = cells.of(task)
    for place, cell in enumerate(mine):
        shade = colour[cell.arm.model_label]
        _seed_dots(axes, cell, place, shade)
        if cell.summary:
            ends, url = [place - 0.28, place + 0.28], style.url(cell.anchor)
            axes.plot([cell.summary.median] * 2, ends, color=shade, linewidth=2.4, url=url)
        for match in _same(cell.arm, counterparts):
            if match.value is not None:
                look = {"markersize": 6, "mfc": "none", "mec": style.INK, "mew": 1.1, "zorder": 4}
                axes.plot(match.value, place, "D", url=style.url(match.anchor), **look)
    axes.set_yticks(range(len(mine)), [style.short(c.arm) for c in mine])
    axes.set_title(style.short(task, 26))


def _same(arm: Arm, counterparts: Mapping[Arm, Sequence[Counterpart]]) -> list[Counterpart]:
    """Printed numbers of runs that have all settings of ours."""
    return [match for match in counterparts.get(arm, ()) if not match.unlike]


def _seed_dots(axes: Axes, cell: Cell, height: float, shade: str) -> None:
    values = [s.value for s in cell.scores if s.value is not None]
    url, heights = style.url(cell.anchor), [height] * len(values)
    dots = {"markersize": 5, "mfc": shade, "mec": "none", "alpha": 0.45}
    axes.plot(values, heights, "o", zorder=3, url=url, rasterized=len(values) > DOTS, **dots)


def gap(cells: Cells) -> Figure | None:
    """A dumbbell per architecture: open from scratch, filled otherwise, the difference written beside."""
    tasks = [t for t in cells.tasks if _moved(cells, t) and any(c.summary for c in cells.of(t))]
    if not tasks:
        return None
    protocols = list(dict.fromkeys(c.arm.protocol for c in cells.cells if c.arm.task in tasks))
    colour = style.colours(cells.models)
    shown = {m for t in tasks for m in _moved(cells, t)}
    columns = 2 if max(map(len, shown)) <= 20 else 1
    with style.canvas() as make:
        figure, axes = style.panels(make, len(tasks), 1.4 + 0.44 * len(shown), columns=columns)
        for panel, task in zip(axes, tasks, strict=True):
            _gap_panel(panel, cells, task, protocols, colour)
            low, high = _score_limits(cells, task)
            panel.set_xlim(low, high + 0.12 * (high - low))
            _vertical_references(panel, cells.baselines.get(task, {}), len(_moved(cells, task)))
            panel.set_xlabel(score_label(cells))
        legend = " · ".join(f"{mark.letter} {protocol}" for protocol, mark in style.marks(protocols).items())
        figure.suptitle(
            f"median of seeds: {legend}; ticks below: the seeds", fontsize=8.5, x=0.01, ha="left", color=style.FAINT
        )
        drawn = style.render(figure, "gap")
    return Figure(*drawn, f"Median test score per architecture under {', '.join(protocols)} on {', '.join(tasks)}.")


def _moved(cells: Cells, task: str) -> list[str]:
    """Models that were trained under more than one protocol."""
    return [m for m in cells.models if len([c for c in cells.of(task) if c.arm.model_label == m]) > 1]


def _gap_panel(axes: Axes, cells: Cells, task: str, protocols: Sequence[str], colour: Mapping[str, str]) -> None:
    models, marks = _moved(cells, task), style.marks(protocols)
    for place, name in enumerate(models):
        mine = {c.arm.protocol: c for c in cells.of(task) if c.arm.model_label == name}
        medians = [(p, c.summary.median) for p in protocols if (c := mine.get(p)) and c.summary]
        shade = colour[name]
        if len(medians) > 1:
            ends = [v for _, v in medians]
            axes.plot([min(ends), max(ends)], [place, place], color=shade, linewidth=3.2, alpha=0.3, zorder=1)
            change = medians[-1][1] - medians[0][1]
            text = f"{change:+z.1f}".replace("-", "−")
            axes.annotate(
                text,
                (max(ends), place),
                xytext=(9, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=shade,
                **style.CLEAR,
            )
        for protocol, value in medians:
            mark, url = marks[protocol], style.url(mine[protocol].anchor)
            look = {"markersize": 8.5, "mfc": mark.face(shade), "mec": shade, "mew": 1.8}
            axes.plot(value, place, mark.shape, zorder=3, url=url, **look)
            _seed_ticks(axes, mine[protocol], place + 0.27, shade, 1.0 if mark.filled else 0.5)
    axes.set_yticks(range(len(models)), [style.short(m) for m in models])
    axes.set_title(style.short(task, 26))


def _seed_ticks(axes: Axes, cell: Cell, height: float, shade: str, alpha: float) -> None:
    values = [s.value for s in cell.scores if s.value is not None]
    url, heights = style.url(cell.anchor), [height] * len(values)
    axes.plot(values, heights, "|", markersize=6, mec=shade, mew=1.4, alpha=alpha, zorder=2, url=url)
