"""Draws scores along an axis: kernel size, sequence length, distance, lag.

    curve(results, cells, "kernel", "accuracy", printed)     # locality: what a bounded kernel can score
    curve(results, cells, "length", "accuracy")             # extrapolation, with the training length marked
    curve(results, cells, "fraction", "accuracy")           # scarce data: any field of the runs is an axis

A run's place on the axis is what its row says (`at` is "kernel=5") or, where the row says nothing, a field of its own:
of its model (Conv(kernel=5)), its task or its last phase (fraction=0.1). Models without a place, or at "kernel=all",
are level lines to compare with. Rows that also name a layer make one line for each layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from levelfield.report import style
from levelfield.report.against_printed import PrintedSources, pairs, printed_curve
from levelfield.report.arms import Arm, field_values
from levelfield.report.cells import Cells, arms_of, is_baseline, is_test, row_value, shown_unit
from levelfield.report.line_ends import End, end_labels
from levelfield.report.links import common_anchor
from levelfield.report.plots import Figure, merged_rules
from levelfield.report.tables import baseline_name
from levelfield.runs.results import Results
from levelfield.spec import Row
from levelfield.spec.study import fuller

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTHING = PrintedSources()  # where no printed number is asked for
AXES = {
    "kernel": "kernel size (steps)",
    "length": "sequence length (steps)",
    "lag": "lag (steps)",
    "distance": "distance from the output (steps)",
    "fraction": "share of the training data",
}
LABELS = {"gradient_share": "gradient up to that distance"}


Points = tuple[tuple[float, float, str], ...]
"""x, printed score and anchor of the printed cell."""


@dataclass(frozen=True)
class Line:
    """Scores of one arm along an axis: (x, every value measured there) sorted by x, and the printed ones.

    anchors: where a page lists the rows of each point.
    """

    model: str
    protocol: str
    points: tuple[tuple[float, tuple[float, ...]], ...]
    printed: Points = ()
    anchors: tuple[str, ...] = ()

    @property
    def medians(self) -> list[tuple[float, float]]:
        return [(x, median(values)) for x, values in self.points]


@dataclass(frozen=True)
class Lines:
    """One panel: arms along the axis, the level of arms that have no place on it, with the anchor of their rows, and
    rules that learn nothing."""

    along: tuple[Line, ...]
    level: Mapping[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    rules: tuple[Line, ...] = ()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def position(row: Row, spec: Mapping[str, Any], axis: str) -> float | str | None:
    """Returns where a row lies: a number, "all" for no bound, or None where the axis does not concern it.

    spec: the described run, or the part of it that may say.
    """
    at = row.get("at", "")
    if at:
        text = pairs(at).get(axis, "")
        return "all" if text == "all" else _number(text)
    inside = _values(spec, axis)
    return "all" if len(inside) != 1 else _number(str(inside[0]))


def _saying(spec: Mapping[str, Any], placed: bool) -> Mapping[str, Any]:
    """What of a described run may say where it lies; only its mixers where rows name their places, of whatever task,
    since another field may share the axis's name: the depth of a model is not that of a needle."""
    model = spec.get("model", {})
    if placed:
        return {"model": {"mixers": model.get("mixers", [])}}
    phases = spec.get("protocol", {}).get("phases", [])
    return {"model": model, "task": spec.get("task", {}), "phase": phases[-1] if phases else {}}


def _values(spec: Mapping[str, Any], axis: str) -> list[Any]:
    """Values of a field of that name, of the model, else of the last phase, else of the task."""
    parts = ({"model": spec.get(part, {})} for part in ("model", "phase", "task"))
    return next((found for part in parts if (found := field_values(part, axis))), [])


def _family(name: str, x: float | str) -> str:
    """The name without its place: conv5 at kernel 5 is conv, so that one line joins conv5, conv9 and conv17, and
    scratch_0.01 at fraction 0.01 is scratch."""
    bare = name.removesuffix(x if isinstance(x, str) else f"{x:g}")
    return bare.rstrip("-_= ") or name


def lines_along(
    results: Results,
    task: str,
    axis: str,
    metric: str,
    printed: PrintedSources = NOTHING,
    *,
    arms: Mapping[str, Arm] | None = None,
) -> Lines:
    """Everything that one task's panel shows. Places with more keys than needed are left to other views.

    arms: what `arms_of` has returned, where it has been asked before.
    """
    arms = arms_of(results) if arms is None else arms
    measured = [r for r in results.rows if r.get("metric") == metric and is_test(r)]
    placed = any(axis in at and axis in pairs(at) for r in measured if (at := r.get("at", "")))
    rows = [r for r in measured if r.get("task") == task]
    fewest = min((len(place) for r in rows if axis in (place := pairs(r.get("at", "")))), default=0)
    specs = {run: _saying(spec, placed) for run, spec in results.specs.items()}
    in_specs = any(_values(spec, axis) for spec in specs.values())
    of_models, of_phases = (
        any(field_values({"model": spec.get(part, {})}, axis) for spec in specs.values()) for part in ("model", "phase")
    )
    # (model, protocol) -> x -> run -> row: what a run says of its place beats its description. What a place names
    # beside the axis, such as a layer, is no further seed: it is part of the line's name.
    found: dict[tuple[str, str], dict[float | str, dict[str, Row]]] = {}
    sample: dict[tuple[str, str], tuple[Arm, str]] = {}
    for row in sorted(rows, key=lambda r: bool(r.get("at"))):
        run, at = row.get("run", ""), row.get("at", "")
        x = position(row, specs.get(run, {}), axis)
        if row_value(row) is None or x is None or (at and len(pairs(at)) != fewest) or (not at and not in_specs):
            continue
        if not at and run not in specs and not is_baseline(row):  # settings that are not known are no "all"
            continue
        if is_baseline(row) and not at:
            continue
        model = _family(row.get("model", ""), x) if of_models else row.get("model", "")
        rest = (f"{key} {text}" for key, text in pairs(at).items() if key != axis)
        protocol = _family(row.get("protocol", ""), x) if of_phases and not of_models else row.get("protocol", "")
        name = (", ".join([model, *rest]), protocol)
        here = found.setdefault(name, {}).setdefault(x, {})
        here[run] = fuller(here.get(run), row)
        if not is_baseline(row):
            sample.setdefault(name, (arms[run], run))
    beside = {
        name: tuple(printed_curve(arm, results.specs.get(run, {}), axis, metric, printed))
        for name, (arm, run) in sample.items()
    }
    return _lines(found, beside)


def _lines(
    found: Mapping[tuple[str, str], Mapping[float | str, Mapping[str, Row]]],
    beside: Mapping[tuple[str, str], Points],
) -> Lines:
    """Returns what is found at each place as lines.

    found: (model, protocol) -> x -> run -> row. beside: (model, protocol) -> the printed curve of the same arm, empty
    where none is printed; what is not in it is a rule that learns no sequence model.
    """
    along, rules, level = [], [], {}
    for (model, protocol), by_x in found.items():
        numeric = sorted(x for x in by_x if not isinstance(x, str))
        points = tuple((x, _scores(by_x[x])) for x in numeric)
        anchors = {x: common_anchor(by_run.values()) for x, by_run in by_x.items()}
        if (model, protocol) not in beside:
            rules.append(Line(baseline_name(model), protocol, points))
        elif numeric:
            led = tuple(anchors[x] for x in numeric)
            along.append(Line(model, protocol, points, beside[model, protocol], led))
        else:
            level[model, protocol] = median(_scores(by_x["all"])), anchors["all"]
    return Lines(tuple(along), level, tuple(rules))


def _varied(panels: Mapping[str, Lines]) -> dict[str, Lines]:
    """Returns what is worth a panel: a single point is no curve, and what was never varied under a protocol is no
    yardstick for it. What is varied on one task may be a single point beside it on another."""
    varied = {line.protocol for lines in panels.values() for line in lines.along if len(line.points) > 1}
    kept = {
        task: replace(
            lines,
            along=tuple(line for line in lines.along if line.protocol in varied),
            level={name: value for name, value in lines.level.items() if name[1] in varied},
        )
        for task, lines in panels.items()
    }
    return {task: lines for task, lines in kept.items() if lines.along}


def _scores(by_run: Mapping[str, Row]) -> tuple[float, ...]:
    return tuple(value for row in by_run.values() if (value := row_value(row)) is not None)


def curve(results: Results, cells: Cells, axis: str, metric: str, printed: PrintedSources = NOTHING) -> Figure | None:
    """A panel per task. On an axis of lengths the training length is marked, and rules that were scored on the test
    split alone have a mark there; on any other axis they are level lines."""
    tasks = dict.fromkeys(r.get("task", "") for r in results.rows)
    panels = {t: lines_along(results, t, axis, metric, printed, arms=cells.arms) for t in tasks}
    found = _varied(panels)
    if not found:
        return None
    names = [n for p in found.values() for n in [*((x.model, x.protocol) for x in p.along), *p.level]]
    look = style.looks(names)
    unit = " (%)" if shown_unit(results.rows, metric) == "percent" else ""
    with style.canvas() as make:
        figure, axes = style.panels(make, len(found), 3.3, columns=2)
        for panel, (task, lines) in zip(axes, found.items(), strict=True):
            same = metric == cells.metric
            moving = {line.model for line in lines.rules}
            rules = [(v, n) for v, n in merged_rules(cells.baselines.get(task, {}) if same else {}) if n not in moving]
            trained = _training_length(results, cells.arms, task, metric) if axis == "length" else None
            _panel(panel, lines, rules if trained or axis != "length" else [], look, trained)
            if trained:
                _mark(panel, trained, "training length")
            panel.set_title(style.short(task, 26), pad=18 if trained else None)
            panel.set_xlabel(AXES.get(axis, axis))
            panel.set_ylabel(f"{LABELS.get(metric, f'test {metric}').replace('_', ' ')}{unit}")
        style.protocol_legend(figure, names)
        drawn = style.render(figure, f"curve-{axis}-{metric}")
    return Figure(*drawn, f"Test {metric.replace('_', ' ')} against {axis} on {', '.join(found)}.")


def _training_length(results: Results, arms: Mapping[str, Arm], task: str, metric: str) -> float | None:
    """Returns the length of the sequences of a task, if all its runs have the same one: that at which all runs have
    the very scores that they have on the whole test split, or else the task's setting."""
    rows = [r for r in results.rows if r.get("task") == task and r.get("metric") == metric and is_test(r)]
    whole = {(r.get("run"), r.get("value"), r.get("n")) for r in rows if not r.get("at") and not is_baseline(r)}
    same: dict[float, bool] = {}
    for row in rows:
        place = pairs(row.get("at", ""))
        if [*place] == ["length"] and not is_baseline(row) and (length := _number(place["length"])):
            score = (row.get("run"), row.get("value"), row.get("n"))
            same[length] = same.get(length, True) and score in whole
    lengths = {length for length, alike in same.items() if alike}
    lengths = (
        lengths
        if len(lengths) == 1
        else {
            float(value)
            for run, arm in arms.items()
            if arm.task == task
            for value in field_values({"task": results.specs.get(run, {}).get("task", {})}, "length")
        }
    )
    return lengths.pop() if len(lengths) == 1 else None


def _mark(axes: Axes, x: float, text: str) -> None:
    axes.axvline(x, color=style.FAINT, linestyle="--", linewidth=0.9, zorder=0.5)
    axes.annotate(
        text, (x, 1), xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points",
        ha="center", va="bottom", fontsize=8, color=style.FAINT,
    )  # fmt: skip


def _panel(
    axes: Axes,
    lines: Lines,
    rules: Sequence[tuple[float, str]],
    look: Mapping[tuple[str, str], style.Look],
    at: float | None = None,
) -> None:
    """Draws one task. at: the place where rules were measured, None for level lines."""
    ends: list[End] = []
    called = _called([*((line.model, line.protocol) for line in lines.along), *lines.level])
    for line in lines.along:
        mine = look[line.model, line.protocol]
        _draw(axes, line, mine)
        if line.printed:
            axes.plot([x for x, _, _ in line.printed], [y for _, y, _ in line.printed], "--", color=style.INK, lw=0.9)
            for x, y, anchor in line.printed:
                axes.plot(x, y, "D", color=style.INK, mfc="none", markersize=4.5, url=style.url(anchor))
            x, y, _ = line.printed[-1]
            ends.append(End(y, f"{line.model}, printed", style.INK, x))
        x, y = line.medians[-1]
        ends.append(End(y, called[line.model, line.protocol], mine.colour, x))
    for name, (value, anchor) in lines.level.items():
        mine, url = look[name], style.url(anchor)
        axes.axhline(value, color=mine.colour, linewidth=1.3, linestyle=mine.dashes, url=url)
        ends.append(End(value, called[name], mine.colour))
    for line in lines.rules:
        axes.plot(*zip(*line.medians, strict=True), "o:", color=style.FAINT, linewidth=1.2, markersize=3, zorder=0.5)
        x, y = line.medians[-1]
        ends.append(End(y, line.model, style.FAINT, x))
    named = [End(value, name, style.FAINT) for value, name in rules]
    for value, _ in rules:
        if at is None:
            axes.axhline(value, color=style.FAINT, linestyle=":", linewidth=0.9, zorder=0.5)
        else:
            axes.plot(at, value, "_", color=style.FAINT, markersize=11, mew=1.4, zorder=2.5)
    _scale(axes, sorted({x for line in lines.along for x, *_ in (*line.points, *line.printed)}))
    if at is None:
        end_labels(axes, [*ends, *named])
    else:
        _make_room(axes, at, max((len(style.short(name)) for _, name in rules), default=0))
        end_labels(axes, ends)
        end_labels(axes, named, at)


def _called(names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Returns what stands at the ends of lines: the model, with its protocol where the panel has several of one."""
    lines = Counter(model for model, _ in names)
    return {name: ", ".join(name) if lines[name[0]] > 1 else name[0] for name in names}


BESIDE = 2.0  # inches that labels on both sides of a panel take


def _make_room(axes: Axes, x: float, letters: int) -> None:
    """Moves the left end of the axis so far away that text of so many letters fits to the left of x."""
    place, figure = axes.get_subplotspec(), axes.get_figure(root=True)
    assert place is not None and figure is not None
    width = figure.get_size_inches()[0] / place.get_gridspec().ncols - BESIDE
    wanted = min(0.6, (0.15 + 0.068 * letters) / width)
    scale = axes.xaxis.get_transform()
    low, here, high = scale.transform([axes.get_xlim()[0], x, axes.get_xlim()[1]])
    left = min(low, (here - wanted * high) / (1 - wanted))
    axes.set_xlim(left=float(scale.inverted().transform([left])[0]))


def _draw(axes: Axes, line: Line, look: style.Look) -> None:
    """Median line, band from lowest to highest, every value a dot."""
    xs, ys = zip(*line.medians, strict=True)
    lows, highs = [min(v) for _, v in line.points], [max(v) for _, v in line.points]
    axes.fill_between(xs, lows, highs, color=look.colour, alpha=0.13, lw=0)
    axes.plot(xs, ys, color=look.colour, linestyle=look.dashes)
    for (x, values), middle, anchor in zip(line.points, ys, line.anchors, strict=True):
        url = style.url(anchor)
        axes.plot(x, middle, "o", color=look.colour, markersize=4, url=url)
        axes.plot([x] * len(values), values, "o", markersize=3, mfc=look.colour, mec="none", alpha=0.5, url=url)


def _scale(axes: Axes, xs: Sequence[float]) -> None:
    """Logarithmic where the axis spans more than a factor of four in uneven steps, unlike tenths of a text; ticks where
    something was measured, nine at most."""
    positive = [x for x in xs if x > 0]
    even = len({round(after - before, 9) for before, after in pairwise(xs)}) == 1
    wide = bool(positive) and positive[-1] / positive[0] > 4 and (not even or len(xs) < 3)
    if wide:
        if xs[0] > 0:
            axes.set_xscale("log", base=2)
        else:
            axes.set_xscale("symlog", base=2, linthresh=1)
    every = -(-len(xs) // 9)
    kept = [x for i, x in enumerate(xs) if (len(xs) - 1 - i) % every == 0]
    if wide:  # names of neighbours, such as 16 and 21, would touch
        kept = [x for x in kept if x == kept[-1] or 1.4 * x <= kept[-1]]
    axes.set_xticks(kept, [f"{x:g}" for x in kept])
    axes.set_xticks([], minor=True)
