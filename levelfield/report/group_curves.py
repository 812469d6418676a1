"""Draws scores against length by group of tasks, for one language model or for several in the same panels.

    curves({"mamba2-2.7b": rows, "transformerpp-2.7b": rows})

RULER's thirteen tasks make four groups (Hsieh et al. 2024, section 3), and the first panel is the average of all that
every length has. Sets beside RULER's are a group each. Bars are 95 % intervals over samples. The grey lines of the
first panel are printed averages (`levelfield.report.references`), where all thirteen tasks were asked. On a page every
point leads to its average there (`longcontext_rows.means`) and every grey line to its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from levelfield.report import effective_length, references, style
from levelfield.report.effective_length import BAR, NEEDLES, TASKS, Cells
from levelfield.report.plots import Figure
from levelfield.spec import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

GROUPS = {f"niah_{name}": "retrieval" for name in NEEDLES} | {
    "vt": "tracing",
    "cwe": "aggregation",
    "fwe": "aggregation",
    "qa_1": "questions",
    "qa_2": "questions",
}
LABEL = "answers found (%)"
NOTE = "Dotted: 85.6, RULER's bar. Grey: averages that RULER's public table prints (official variant)"
THIRD = "; dashed: those of huang2024 (paper variant)"
Anchors = Mapping[tuple[str, str, int], str]
"""Where a page lists what a point shows, by the title of its panel, the model and the length."""
NOTHING: Anchors = {}


class Panel(NamedTuple):
    """A title, and for each model its scores by length: lengths that lack a task of the group are left out."""

    title: str
    models: Mapping[str, Mapping[int, Cells]]
    whole: bool = False  # whether it is the average of all thirteen tasks


def group_of(task: str) -> str:
    """Names the group of a task: one of RULER's four, or the set that it belongs to."""
    return GROUPS.get(task, "other needles" if task.startswith("niah_") else task.partition("_")[0])


def panels(rows: Mapping[str, Sequence[Row]]) -> list[Panel]:
    """Returns the average of RULER's tasks and every group, of tasks that all models were asked.

    [] where fewer than two lengths were asked.
    """
    cells = {model: effective_length.cells_of(each) for model, each in rows.items()}
    asked = [{task for found in by.values() for task in found} for by in cells.values()]
    every = dict.fromkeys(task for by in cells.values() for found in by.values() for task in found)
    every.pop(references.AVERAGE, None)
    common = [task for task in every if all(task in each for each in asked)]
    of_ruler = [task for task in TASKS if task in common]
    named = f"all {len(TASKS)} tasks" if len(of_ruler) == len(TASKS) else f"{len(of_ruler)} tasks of RULER"
    groups = {named: of_ruler} if len(of_ruler) > 1 else {}
    for task in common:
        groups.setdefault(group_of(task), []).append(task)
    found = [Panel(title, _kept(cells, tasks), len(tasks) == len(TASKS)) for title, tasks in groups.items()]
    kept = [panel for panel in found if all(panel.models.values())]
    return kept if max((len(by) for panel in kept for by in panel.models.values()), default=0) > 1 else []


def _kept(cells: Mapping[str, Mapping[int, Cells]], tasks: Sequence[str]) -> dict[str, dict[int, Cells]]:
    return {
        model: {n: {t: by[n][t] for t in tasks} for n in sorted(by) if all(t in by[n] for t in tasks)}
        for model, by in cells.items()
    }


def curves(rows: Mapping[str, Sequence[Row]], anchors: Anchors = NOTHING, printed: str = "") -> Figure | None:
    """Returns a panel for each group; None where fewer than two lengths were asked.

    anchors: where a page lists the averages. printed: what the anchors of printed averages begin with; "" where the
    page does not have them.
    """
    found = panels(rows)
    if not found:
        return None
    colour = style.pair(list(rows)) if len(rows) <= 2 else style.colours(list(rows))
    with style.canvas() as make:
        figure, axes = style.panels(make, len(found), 2.5)
        for number, (panel, shown) in enumerate(zip(axes, found, strict=True)):
            _draw(panel, shown, colour, anchors, printed)
            if number % 3 == 0:
                panel.set_ylabel(LABEL)
            if number + 3 >= len(found):
                panel.set_xlabel("length (tokens)")
        _explain(figure, list(rows), colour, found)
        drawn = style.render(figure, "curves-groups")
    titles = ", ".join(panel.title for panel in found)
    return Figure(*drawn, f"{LABEL} against length for {' and '.join(rows)}: {titles}.")


def _explain(figure: Drawn, models: Sequence[str], colour: Mapping[str, str], found: Sequence[Panel]) -> None:
    """Names the models above the panels, where there are several, and says below what is grey."""
    from matplotlib.lines import Line2D

    if len(models) > 1:
        handles = [Line2D([], [], color=colour[model], marker="o", markersize=4) for model in models]
        style.legend(figure, handles, models)
    whole = [panel for panel in found if panel.whole]
    if whole:
        lengths = {n for by in whole[0].models.values() for n in by}
        paper = any(line.dashed for line in references.lines(sorted(lengths)))
        figure.supxlabel(NOTE + THIRD * paper + ".", fontsize=7.5, color=style.FAINT, x=0.01, ha="left")


def _draw(axes: Axes, panel: Panel, colour: Mapping[str, str], anchors: Anchors, printed: str) -> None:
    lengths = sorted({n for by in panel.models.values() for n in by})
    if panel.whole:
        axes.axhline(BAR, color=style.FAINT, linestyle=":", linewidth=0.9, zorder=0.6)
        for line in references.lines(lengths, printed):
            look = {"linewidth": 0.8, "linestyle": (0, (3, 2)) if line.dashed else "-", "markersize": 3}
            xs, ys = zip(*line.points, strict=True)
            axes.plot(xs, ys, ".", color=style.GRID, zorder=0.4, url=style.url(line.anchor), **look)
    for place, (model, by) in enumerate(panel.models.items()):
        beside = 1 + 0.04 * (place - (len(panel.models) - 1) / 2)  # bars of two models do not hide each other
        spans = [[100 * end for end in effective_length.interval(by[n])] for n in by]
        middle = [mean for mean, _, _ in spans]
        reach = [[mean - low for mean, low, _ in spans], [high - mean for mean, _, high in spans]]
        at = [beside * n for n in by]
        axes.errorbar(at, middle, yerr=reach, color=colour[model], elinewidth=1.1)
        for x, y, n in zip(at, middle, by, strict=True):
            url = style.url(anchors.get((panel.title, model, n), ""))
            axes.plot(x, y, "o", color=colour[model], markersize=4, url=url)
    axes.set_ylim(-3, 103)
    axes.set_title(panel.title)
    if len(lengths) > 1:
        axes.set_xscale("log", base=2)
    every = -(-len(lengths) // 6)
    shown = [n for i, n in enumerate(lengths) if (len(lengths) - 1 - i) % every == 0]
    axes.set_xticks(shown, [tokens(n) for n in shown])
    axes.set_xticks([], minor=True)


def tokens(length: int) -> str:
    """Returns a length as it is called: "4K" for 4096, and others in figures."""
    return f"{length // 1024}K" if length % 1024 == 0 else str(length)
