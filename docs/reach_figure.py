"""Shows how far each architecture reaches, for docs/findings.py: a table, and figures with a panel for each.

    table(results)            # lines of Markdown: what the seeds of each model score at each range
    trained(results.rows)     # accuracy against the certified range of training, and what is proved of convolutions
    beyond(results.rows)      # models trained at one range, asked at that one and at two and four times it

Most lines lie on one another at 50 or at 100 %, so that each model has a panel of its own. Of a convolution a thick
line at 50 % begins at the steps that it sees: no other score is possible from there on (docs/reach.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from levelfield.presets import reach_verdict
from levelfield.report import style
from levelfield.runs.results import Results
from levelfield.spec import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALT = "Accuracy against certified range, a panel for each architecture"
NAMES = {
    "attention": "attention, rotary", "s4": "S4, diagonal", "s5": "S5", "lru": "LRU", "linear": "linear attention",
    "mamba": "Mamba", "mamba2": "Mamba-2", "gla": "GLA", "gated_deltanet": "Gated DeltaNet", "rglru": "RG-LRU",
}  # fmt: skip
SEES_ALL, WINDOW, PROVED = "#0072b2", "#9a3d00", "#f0b27a"  # blue and orange: any eye tells them apart
BY_TRAINING = ("#a6c8e4", "#5b9bd0", "#1f5f9e", "#0b2a4a")  # the longer the training's range, the darker
MARKS = ("o", "s", "D", "^")
COLUMNS, WIDE, TALL = 5, 11.4, 1.9  # inches; TALL is a row of panels
PASSES = 100 * reach_verdict.PASSED

Asked = Mapping[int, Mapping[int, Sequence[float]]]
"""Range of training -> range that is asked -> test scores in percent, one per seed."""


def scores(rows: Sequence[Row]) -> Mapping[str, Asked]:
    """Returns the scores of each model, in the order of the rows."""
    found: dict[str, dict[int, dict[int, list[float]]]] = {}
    for row in rows:
        at, value = reach_verdict.place(row), row.get("value", math.nan)
        if row.get("metric") == "accuracy" and {"asked", "trained"} <= at.keys() and math.isfinite(value):
            mine = found.setdefault(row.get("model", ""), defaultdict(lambda: defaultdict(list)))
            mine[int(at["trained"])][int(at["asked"])].append(100 * value)
    return found


def table(results: Results) -> Iterator[str]:
    """Yields a row for each model: medians at each range, of how many seeds pass, after how many steps, its reach."""
    seen, own, asked = reach_verdict.fields(results.rows), reach_verdict.by_range(results.rows), scores(results.rows)
    steps = steps_taken(results)
    places = sorted({apart for by_range in own.values() for apart in by_range})
    seeds = max((len(values) for by_range in own.values() for values in by_range.values()), default=0)
    yield f"**By model.** Medians of test accuracy in percent, in brackets how many of {seeds} seeds have at least"
    yield f"{PASSES:.0f} %, and where most do, the median of the steps of training. In italics: the model sees no"
    yield "more than the range, so that 50 % is proved. The last column is of models trained at their reach and asked"
    yield "at twice and at four times that range; below 50 % they mostly name the wrong mark.\n"
    yield f"| model | steps it sees | {' | '.join(f'{each:,}' for each in places)} | reach | 2 ×, 4 × |"
    yield "|---" * (len(places) + 4) + "|"
    for model, by_range in own.items():
        cells = []
        for apart in places:
            said = _cell(by_range.get(apart, ()), steps.get((model, apart), 0.0))
            cells.append(f"*{said}*" if seen.get(model, math.inf) <= apart else said)
        longest = reach_verdict.reach(by_range)
        further = [median(asked[model][longest][n * longest]) for n in (2, 4)] if longest else []
        ends = f"{longest:,}" if longest else "none", ", ".join(f"{value:.1f}" for value in further) or "–"
        yield f"| {named(model)} | {seen.get(model, 'all')} | {' | '.join((*cells, *ends))} |"
    yield ""


def _cell(values: Sequence[float], steps: float) -> str:
    """Says what the seeds of a model at a range score, as shares of 1, and after how many steps they stopped."""
    passing = sum(value >= reach_verdict.PASSED for value in values)
    said = f"{100 * median(values):.1f} ({passing})" if values else "–"
    return f"{said}, {steps:,.0f}" if 2 * passing > len(values) else said


def steps_taken(results: Results) -> dict[tuple[str, int], float]:
    """Returns the median steps of training by model and range."""
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for row in results.rows:
        at, run = reach_verdict.place(row), row.get("run", "")
        if "trained" in at and run in results.ledgers:
            found[row.get("model", ""), int(at["trained"])][run] = results.ledgers[run]["steps"]
    return {place: median(by_run.values()) for place, by_run in found.items()}


def figures(results: Results) -> dict[str, bytes]:
    """Returns the figures by the end of their names, PNGs."""
    return {"": trained(results.rows), "-beyond": beyond(results.rows)}


def named(model: str) -> str:
    """Returns what a model is called: the names of convolutions say how many steps they see."""
    return NAMES.get(model) or model.replace("conv", "convolution, ")


def trained(rows: Sequence[Row]) -> bytes:
    """Returns the first figure, a PNG: asked at the range of training, every seed a dot, a line through medians."""
    found, seen = scores(rows), reach_verdict.fields(rows)
    places = sorted({apart for mine in found.values() for apart in mine})

    def draw(axes: Axes, model: str) -> None:
        colour, by_training = WINDOW if model in seen else SEES_ALL, found[model]
        own = [(apart, by_training[apart][apart]) for apart in sorted(by_training)]
        _wall(axes, seen.get(model), places[-1])
        for apart, values in own:
            axes.plot([apart] * len(values), values, "o", color=colour, markersize=5, alpha=0.55, mec="none")
        axes.plot([apart for apart, _ in own], [median(values) for _, values in own], color=colour)

    lines = {"sees everything": {"color": SEES_ALL, "marker": "o"}, "sees a window": {"color": WINDOW, "marker": "o"}}
    return _panels(found, seen, places, draw, lines, "certified range of training and test (steps between marks)")


def beyond(rows: Sequence[Row]) -> bytes:
    """Returns the second figure, a PNG: medians, a line from each range of training on."""
    found, seen = scores(rows), reach_verdict.fields(rows)
    training = sorted({apart for mine in found.values() for apart in mine})
    places = sorted({asked for mine in found.values() for by_asked in mine.values() for asked in by_asked})
    looks = {
        apart: {"color": colour, "marker": mark, "markersize": 4.5}
        for apart, colour, mark in zip(training, BY_TRAINING, MARKS, strict=False)
    }

    def draw(axes: Axes, model: str) -> None:
        _wall(axes, seen.get(model), places[-1])
        for apart, by_asked in sorted(found[model].items()):
            asked = sorted(by_asked)
            axes.plot(asked, [median(by_asked[each]) for each in asked], **looks[apart])

    lines = {f"trained at {apart}": look for apart, look in looks.items()}
    return _panels(found, seen, places, draw, lines, "certified range of test (steps between marks)")


def _wall(axes: Axes, field: int | None, end: int) -> None:
    """Draws what is proved of a model that sees so many steps: one half from there on, and a tick where it begins."""
    axes.axhline(PASSES, color=style.FAINT, linestyle=":", linewidth=0.9, zorder=0.5)
    if field is not None and field <= 1.15 * end:
        axes.plot([field, 1.15 * end], [50, 50], color=PROVED, linewidth=8, solid_capstyle="butt", zorder=0.6)
        axes.plot([field, field], [45, 55], color=WINDOW, linewidth=1.5, zorder=0.7)


def _panels(
    found: Mapping[str, Asked],
    seen: Mapping[str, int],
    places: Sequence[int],
    draw: Any,
    lines: Mapping[str, Mapping[str, Any]],
    below: str,
) -> bytes:
    """Draws a panel for each model and one that says what marks are."""
    from matplotlib.lines import Line2D

    with style.canvas() as make:
        figure, axes = style.panels(make, len(found) + 1, TALL, columns=COLUMNS, width=WIDE)
        for panel, model in zip(axes, found, strict=False):
            draw(panel, model)
        lowest = min(value for panel in axes for line in panel.lines for value in np.atleast_1d(line.get_ydata()))
        low, ticks = (43, (50, 75, 100)) if lowest >= 43 else (-5, (0, 50, 100))  # below 50: the wrong way round
        for number, (panel, model) in enumerate(zip(axes, found, strict=False)):
            panel.set_title(f"{named(model)} steps" if model in seen else named(model), fontsize=10.5)
            panel.set_xscale("log", base=2)
            panel.set_xlim(places[0] / 1.15, places[-1] * 1.15)
            panel.set_ylim(low, 104)
            panel.set_xticks(places, [f"{each}" for each in places], fontsize=9)
            panel.set_xticks([], minor=True)
            panel.set_yticks(ticks, [f"{each}" for each in ticks] if number % COLUMNS == 0 else [], fontsize=9)
        made = [Line2D([], [], **look) for look in lines.values()]
        made += [
            Line2D([], [], color=PROVED, linewidth=8, solid_capstyle="butt"),
            Line2D([], [], color=style.FAINT, linestyle=":", linewidth=0.9),
        ]
        names = [*lines, "50 % is proved", f"{PASSES:.0f} %, what a reach needs"]
        key = axes[-1]
        key.set_axis_off()
        key.legend(made, names, loc="center left", fontsize=9.5, borderaxespad=0)
        figure.supxlabel(below, fontsize=10)
        figure.supylabel("test accuracy (%)", fontsize=10)
        return style.render(figure, "reach")[1]
