"""Draws everything but the final score: training curves, scores by slice, and what the runs cost.

Logs are thinned where they are written, so a curve here has every point that was kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from levelfield.report import style
from levelfield.report.against_printed import pairs
from levelfield.report.arms import Arm
from levelfield.report.cells import NONE, Cell, Cells, is_baseline, is_test, row_value
from levelfield.report.links import common_anchor
from levelfield.report.plots import Figure, score_label
from levelfield.report.tables import baseline_name, duration, si
from levelfield.runs.results import Results
from levelfield.spec import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Log = Sequence[Mapping[str, Any]]

FEW = 30  # test examples of a slice, below which a share near one half is uncertain by over 18 points


def training(results: Results, cells: Cells, task: str) -> Figure | None:
    """Loss above, validation score below, one column per protocol and phase; a thin line per seed. Variants of a model
    that share a colour stand in columns of their own."""
    arms = {run: arm for run, arm in cells.arms.items() if arm.task == task and results.curves.get(run)}
    called = style.names(cells.models)
    apart = {run: "" if called[arm.model_label] == arm.model_label else arm.variant for run, arm in arms.items()}
    columns: dict[tuple[str, str, int], str] = {}
    for run, arm in arms.items():
        for phase in sorted({int(record.get("phase", 0)) for record in results.curves[run]}):
            title = _phase_title(results, run, arm, phase)
            columns.setdefault((apart[run], arm.protocol, phase), f"{style.short(apart[run], 24)}\n{title}".lstrip())
    if not columns:
        return None
    colour = style.colours(cells.models)
    urls = {cell.arm: style.url(cell.anchor) for cell in cells.cells}
    width = style.WIDTH if len(columns) > 1 else 0.6 * style.WIDTH
    with style.canvas() as make:
        figure = make(figsize=(width, 4.4))
        grid = figure.subplots(2, len(columns), squeeze=False, sharex="col", sharey=False)
        for place, ((variant, protocol, phase), title) in enumerate(columns.items()):
            mine = {run: arm for run, arm in arms.items() if (apart[run], arm.protocol) == (variant, protocol)}
            upper, lower = grid[0][place], grid[1][place]
            for run, arm in mine.items():
                log = [r for r in results.curves[run] if int(r.get("phase", 0)) == phase]
                for panel, key in ((upper, "loss"), (lower, "score")):
                    _line(panel, log, key, colour[arm.model_label], urls.get(arm))
            upper.set_title(title, fontsize=8.5)
            if not lower.lines:  # a phase that is not validated
                lower.set_visible(False)
                upper.tick_params(labelbottom=True)
                upper.set_xlabel("step")
            lower.set_xlabel("step")
            lower.locator_params(axis="x", nbins=4, integer=True)
        grid[0][0].set_ylabel("training loss")
        grid[1][0].set_ylabel("validation score")
        drawn_models = {arm.model_label for arm in arms.values()}
        present = {called[label]: colour[label] for label in cells.models if label in drawn_models}
        style.legend(figure, [_bar(shade, 1.0) for shade in present.values()], list(present))
        drawn = style.render(figure, f"training-{task}")
    return Figure(*drawn, f"Training loss and validation score on {task} for each protocol and phase.")


def _phase_title(results: Results, run: str, arm: Arm, phase: int) -> str:
    """The protocol, and below it "phase 1: denoise", as the log says or else the description."""
    log = [r for r in results.curves[run] if int(r.get("phase", 0)) == phase]
    phases = results.specs.get(run, {}).get("protocol", {}).get("phases", [])
    described = phases[phase]["objective"]["kind"].lower() if phase < len(phases) else "training"
    objective = log[0].get("objective", described) if log else described
    number = "" if len(phases) == 1 else f"phase {phase + 1}: "
    return f"{style.short(arm.protocol, 24)}\n{number}{style.short(objective, 16)}"


def _line(axes: Axes, log: Log, key: str, shade: str, url: str | None) -> None:
    points = [(r["step"], r[key]) for r in log if r.get(key) is not None]
    if points:  # a single one has no line
        marker = "o" if len(points) == 1 else ""
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, color=shade, linewidth=1.0, marker=marker, markersize=3, alpha=0.75, url=url)


def slices(results: Results, cells: Cells, axis: str) -> Figure | None:
    """Score within each slice, such as each root operator: a bar per arm, its seeds as dots."""
    found: dict[str, dict[str, dict[tuple[str, str], list[Row]]]] = {}
    for row in results.rows:
        here = _slice(row, cells.metric)
        if here and here[0] == axis and row_value(row) is not None:
            arm, rule = cells.arms.get(row.get("run", "")), baseline_name(row.get("model", ""))
            name = (rule, NONE) if is_baseline(row) or arm is None else (arm.model_label, arm.protocol)
            by_arm = found.setdefault(row.get("task", ""), {}).setdefault(here[1], {})
            by_arm.setdefault(name, []).append(row)
    found = {task: by_value for task, by_value in found.items() if len(by_value) > 1}
    if not found:
        return None
    names = list(dict.fromkeys((c.arm.model_label, c.arm.protocol) for c in cells.cells))
    rules = dict.fromkeys(n for by_value in found.values() for by in by_value.values() for n in by if n[1] == NONE)
    greys = {rule: style.Look(style.FAINT, "-", 0.3 + 0.6 * i / len(rules)) for i, rule in enumerate(rules)}
    look = greys | style.looks(names)
    tallest = max(sum(len(by_arm) + 1 for by_arm in by_value.values()) for by_value in found.values())
    with style.canvas() as make:
        figure, axes = style.panels(make, len(found), 1.1 + 0.15 * tallest, columns=2)
        for panel, (task, by_value) in zip(axes, found.items(), strict=True):
            _slice_panel(panel, by_value, look)
            panel.set_title(style.short(f"{task}, by {axis}", 30))
            panel.set_xlabel(score_label(cells))
        present = [n for n in look if any(n in by_arm for by_value in found.values() for by_arm in by_value.values())]
        style.legend(
            figure,
            [_bar(look[n].colour, look[n].alpha) for n in present],
            [n[0] if n in rules else " · ".join(n) for n in present],
        )
        drawn = style.render(figure, f"slices-{axis}")
    return Figure(*drawn, f"Test score by {axis} on {', '.join(found)}.")


def _bar(shade: str, alpha: float) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor=shade, alpha=alpha, linewidth=0)


def _slice(row: Row, metric: str) -> tuple[str, str] | None:
    """(name, value) of the slice a test score belongs to, such as ("root", "MAX"); None for anything else.

    Other probes place their scores too: at a kernel, within a distance, at an exact length (slices hold ranges of it).
    """
    at = row.get("at", "")
    here = pairs(at)
    if len(here) != 1 or "<=" in at or not is_test(row) or row.get("metric") != metric:
        return None
    ((name, value),) = here.items()
    return None if name == "kernel" or (name == "length" and _is_number(value)) else (name, value)


def slice_axes(results: Results, metric: str) -> dict[str, bool]:
    """What scores are sliced by -> whether its values are all numbers."""
    found: dict[str, set[str]] = {}
    for row in results.rows:
        if here := _slice(row, metric):
            found.setdefault(here[0], set()).add(here[1])
    return {name: all(_is_number(v) for v in values) for name, values in found.items()}


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def _slice_panel(
    axes: Axes,
    by_value: Mapping[str, Mapping[tuple[str, str], Sequence[Row]]],
    look: Mapping[tuple[str, str], style.Look],
) -> None:
    height, ticks = 0.0, []
    numeric = all(_is_number(v) for v in by_value)
    for value, by_arm in sorted(by_value.items(), key=lambda item: float(item[0]) if numeric else 0.0):
        mine = [name for name in look if name in by_arm]
        ticks.append((height + (len(mine) - 1) / 2, style.short(_spelt(value), 20) + _of_few(by_arm)))
        for name in mine:
            shade, url = look[name].colour, style.url(common_anchor(by_arm[name]))
            scores = [value for row in by_arm[name] if (value := row_value(row)) is not None]
            axes.barh(height, median(scores), height=0.78, color=shade, alpha=look[name].alpha, linewidth=0, url=url)
            axes.plot(scores, [height] * len(scores), "o", markersize=3.2, mfc=shade, mec=style.PAPER, mew=0.4, url=url)
            height += 1
        height += 1
    axes.set_yticks([at for at, _ in ticks], [said for _, said in ticks])
    axes.set_ylim(height - 1, -0.9)
    axes.set_xlim(left=0)


def _of_few(by_arm: Mapping[tuple[str, str], Sequence[Row]]) -> str:
    """Returns a line on how many test examples a slice has, where they are so few that its bars tell little."""
    many = max((int(row.get("n") or 0) for rows in by_arm.values() for row in rows), default=0)
    return f"\n{many} example{'s' * (many > 1)}" if 0 < many < FEW else ""


def _spelt(value: str) -> str:
    """Returns a slice as one would write it: "0500-0999" as "500–999" and "4000-" as "4000 or more"."""
    low, dash, high = value.partition("-")
    if not dash or not low.isdigit() or not (high.isdigit() or not high):
        return value
    return f"{int(low)}–{int(high)}" if high else f"{int(low)} or more"


MEASURES = (("tokens", "training tokens", si), ("flops", "training FLOPs", si), ("wall_s", "wall time", duration))


def cost(cells: Cells) -> Figure | None:
    """How long and how much compute: median over seeds of one run, earlier phases paler."""
    mine = [c for c in cells.cells if c.ledgers]
    if not mine:
        return None
    colour = style.colours(cells.models)
    several = len({c.arm.task for c in mine}) > 1
    names = [style.short(f"{c.arm.task}: {c.arm}" if several else c.arm, 56) for c in mine]
    with style.canvas() as make:
        figure = make(figsize=(style.WIDTH, 0.9 + 0.24 * len(mine)))
        grid = figure.subplots(1, len(MEASURES), sharey=True)
        for panel, (key, title, text) in zip(grid, MEASURES, strict=True):
            for place, cell in enumerate(mine):
                end = _stacked(panel, place, cell, key, colour[cell.arm.model_label])
                panel.annotate(
                    text(cell.cost(key)), (end, place), xytext=(4, 0), textcoords="offset points", va="center",
                    fontsize=8, url=style.url(cell.anchor),
                )  # fmt: skip
            panel.set_title(title)
            panel.set_xticks([])
            panel.spines["bottom"].set_visible(False)
            panel.set_xlim(0, 1.35 * max((c.cost(key) or 0.0 for c in mine), default=1.0) or 1.0)
        grid[0].set_yticks(range(len(mine)), names)
        grid[0].set_ylim(len(mine) - 0.4, -0.6)
        drawn = style.render(figure, "cost")
    return Figure(*drawn, "Training tokens, FLOPs and wall time of one run of every arm.")


def _stacked(axes: Axes, place: int, cell: Cell, key: str, shade: str) -> float:
    """Draws one bar with a part for each phase, the median over ledgers, and returns where it ends."""
    ledgers, url = cell.ledgers, style.url(cell.anchor)
    phases = max((len(ledger.get("phases", ())) for ledger in ledgers), default=0)
    parts = [median([float(ledger["phases"][i].get(key, 0)) for ledger in ledgers]) for i in range(phases)]
    parts = parts or [median([float(ledger.get(key, 0)) for ledger in ledgers])]
    left = 0.0
    for index, part in enumerate(parts):
        alpha = 0.85 if index == len(parts) - 1 else 0.35
        axes.barh(place, part, left=left, height=0.66, color=shade, alpha=alpha, linewidth=0, url=url)
        left += part
    return left
