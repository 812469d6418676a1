"""Draws how far each model reaches on sequences that need a certified range, with a panel for each model.

    trained(rows)             # accuracy against the certified range of training, and what is proved of convolutions
    beyond(rows)              # models trained at one range, asked at that one and at longer ones

Most lines lie on one another at 50 or at 100 %, so that each model has a panel of its own. Of a model that sees a
window, a thick line at 50 % begins at the steps that it sees: no other score is possible from there on (docs/reach.md).
Where the trained model tells twins apart there, what it declares to see is wrong, and it has no such line.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from levelfield.report import style
from levelfield.report.against_printed import pairs
from levelfield.report.links import common_anchor
from levelfield.report.plots import Figure
from levelfield.spec import Row
from levelfield.spec.study import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PASSED = 0.95
"""The score from which a seed counts as reaching the range."""

ROUNDING, IN_SINGLE = 1e-9, 1e-5
"""The largest gap between twins, as a part of the largest output, that rounding may leave in double precision, and
where a layer computes a part in single precision. docs/reach.md has gaps that were measured."""

SEES_ALL, WINDOW, PROVED = "#0072b2", "#9a3d00", "#f0b27a"  # blue and orange: any eye tells them apart
SHORTEST, LONGEST = (0.65, 0.78, 0.89), (0.04, 0.16, 0.29)  # ranges of training: the longer, the darker
COLUMNS, WIDE, TALL = 5, 11.4, 1.9  # inches; TALL is a row of panels
MOST_NAMED = 7  # ranges on an axis whose names do not touch; of more, every second is named

Asked = Mapping[int, Mapping[int, Sequence[Row]]]
"""Range of training -> range that is asked -> rows of test scores, one per seed."""


def asked(rows: Sequence[Row], *, diverged: bool = False) -> Mapping[str, Asked]:
    """Returns the test scores of each model, in the order of the rows. diverged: with rows that have no value, as of
    runs whose outputs were NaN or infinite."""
    found: dict[str, dict[int, dict[int, list[Row]]]] = {}
    for row in rows:
        at = pairs(row.get("at", ""))
        of_test = row.get("metric") == "accuracy" and row.get("split") == "test"
        scored = math.isfinite(row.get("value", math.nan)) or (diverged and row.get("status") == "diverged")
        if of_test and scored and {"asked", "trained"} <= at.keys():
            mine = found.setdefault(row.get("model", ""), defaultdict(lambda: defaultdict(list)))
            mine[int(at["trained"])][int(at["asked"])].append(row)
    return found


def seen_by(rows: Sequence[Row]) -> dict[str, int]:
    """Returns the steps that each bounded model sees, as its mixers declare, unless a trained one shows otherwise."""
    wrong = refuted(rows)
    return {model: steps for model, steps in declared(rows).items() if model not in wrong}


def declared(rows: Sequence[Row]) -> dict[str, int]:
    """Returns the steps that each bounded model sees, as its mixers declare, from rows of the probe `ranges`."""
    named = (row for row in rows if row.get("metric") == "receptive_field" and not row.get("at"))
    return {row.get("model", ""): round(row.get("value", 0)) for row in named}


class Gap(NamedTuple):
    """How far apart the outputs of one trained model for twins lie at most, as a part of the largest output.

    trained, asked: the ranges of training and of the twins, steps. classes: of twins that were compared. single:
    whether a layer computes a part in single precision.
    """

    model: str
    trained: int
    asked: int
    value: float
    classes: int
    single: bool = False

    @property
    def told(self) -> bool:
        """Whether it is more than rounding."""
        return self.value > (IN_SINGLE if self.single else ROUNDING)


def gaps(rows: Sequence[Row]) -> list[Gap]:
    """Returns what the probe `ranges` has measured of twins. There is nothing of runs that an earlier version measured,
    and of layers that do not run in double precision."""
    found = []
    for row in rows:
        metric, value = row.get("metric", ""), row.get("value", math.nan)
        if metric in ("twin_gap", "twin_gap_single") and math.isfinite(value):
            at, single = pairs(row.get("at", "")), metric != "twin_gap"
            model, trained, asked_at = row.get("model", ""), int(at["trained"]), int(at["asked"])
            found.append(Gap(model, trained, asked_at, value, classes=row.get("n", 0), single=single))
    return found


def refuted(rows: Sequence[Row]) -> dict[str, Gap]:
    """Returns the models that tell twins apart although what they declare forbids it, each with its largest gap."""
    ranked = sorted(gaps(rows), key=lambda gap: gap.value)
    return {gap.model: gap for gap in ranked if gap.told}


def percents(rows: Sequence[Row]) -> list[float]:
    """Returns the scores of rows in percent."""
    return [percent(row) for row in rows]


@dataclass(frozen=True)
class _Panels:
    """What all panels of a figure share: the scores, the steps that bounded models see, the ranges on the x axis, what
    models are called, and what stands below the axis."""

    found: Mapping[str, Asked]
    fields: Mapping[str, int]
    places: Sequence[int]
    named: Callable[[str], str]
    below: str

    def title(self, model: str) -> str:
        return f"{self.named(model)}: {self.fields[model]} steps" if model in self.fields else self.named(model)


def trained(rows: Sequence[Row], named: Callable[[str], str] = str) -> Figure | None:
    """Draws each model asked at the range of its training: every seed a dot, a line through medians.

    named: returns what a model is called. None where no model has been asked.
    """
    found, fields = asked(rows), seen_by(rows)
    places = sorted({apart for mine in found.values() for apart in mine})

    def draw(axes: Axes, model: str) -> None:
        colour, medians = WINDOW if model in fields else SEES_ALL, {}
        for apart, by_asked in sorted(found[model].items()):
            seeds = percents(by_asked[apart])
            medians[apart], url = median(seeds), style.url(common_anchor(by_asked[apart]))
            axes.plot([apart] * len(seeds), seeds, "o", color=colour, markersize=5, alpha=0.55, mec="none", url=url)
        axes.plot(list(medians), list(medians.values()), color=colour)

    lines = {"sees everything": {"color": SEES_ALL, "marker": "o"}, "sees a window": {"color": WINDOW, "marker": "o"}}
    below = "certified range of training and test (steps between marks)"
    return _panels(_Panels(found, fields, places, named, below), draw, lines) if places else None


def beyond(rows: Sequence[Row], named: Callable[[str], str] = str) -> Figure | None:
    """Draws medians over seeds, a line from each range of training on. named: as of `trained`."""
    found, fields = asked(rows), seen_by(rows)
    training = sorted({apart for mine in found.values() for apart in mine})
    places = sorted({far for mine in found.values() for by_asked in mine.values() for far in by_asked})
    looks = {
        apart: {
            "color": _darker(number / max(1, len(training) - 1)),
            "marker": style.MARKERS[number % len(style.MARKERS)],
        }
        for number, apart in enumerate(training)
    }

    def draw(axes: Axes, model: str) -> None:
        for apart, by_asked in sorted(found[model].items()):
            medians, look = {far: median(percents(by_asked[far])) for far in sorted(by_asked)}, looks[apart]
            axes.plot(list(medians), list(medians.values()), color=look["color"])
            for far, value in medians.items():
                axes.plot(far, value, url=style.url(common_anchor(by_asked[far])), markersize=4.5, **look)

    lines = {f"trained at {apart:,}": look for apart, look in looks.items()}
    below = "certified range of test (steps between marks)"
    return _panels(_Panels(found, fields, places, named, below), draw, lines) if places else None


def _darker(share: float) -> tuple[float, ...]:
    """Returns the shade that lies so far from the first to the last."""
    return tuple(float(value) for value in np.array(SHORTEST) + share * (np.array(LONGEST) - np.array(SHORTEST)))


def _panels(all_of: _Panels, draw: Callable[[Axes, str], None], lines: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draws a panel for each model and one that says what marks are. lines: name -> look."""
    places = all_of.places
    with style.canvas() as make:
        figure, axes = style.panels(make, len(all_of.found) + 1, TALL, columns=COLUMNS, width=WIDE)
        for panel, model in zip(axes, all_of.found, strict=False):
            _wall(panel, all_of.fields.get(model), places[-1])
            draw(panel, model)
        lowest = min(value for panel in axes for line in panel.lines for value in np.atleast_1d(line.get_ydata()))
        low, ticks = (43, (50, 75, 100)) if lowest >= 43 else (-5, (0, 50, 100))  # below 50: the wrong way round
        every = 1 + len(places) // MOST_NAMED
        names = [f"{each:g}" if (len(places) - 1 - at) % every == 0 else "" for at, each in enumerate(places)]
        for number, (panel, model) in enumerate(zip(axes, all_of.found, strict=False)):
            panel.set_title(all_of.title(model), fontsize=10.5)
            panel.set_xscale("log", base=2)
            panel.set_xlim(places[0] / 1.15, places[-1] * 1.15)
            panel.set_ylim(low, 104)
            panel.set_xticks(places, names, fontsize=9)
            panel.set_xticks([], minor=True)
            panel.set_yticks(ticks, [f"{each}" for each in ticks] if number % COLUMNS == 0 else [], fontsize=9)
        _key(axes[-1], lines)
        figure.supxlabel(all_of.below, fontsize=10)
        figure.supylabel("test accuracy (%)", fontsize=10)
        drawn = style.render(figure, "reach")
    return Figure(*drawn, f"Test accuracy against the {all_of.below}, a panel for each model.")


def _wall(axes: Axes, field: int | None, end: int) -> None:
    """Draws what is proved of a model that sees so many steps: one half from there on, and a tick where it begins."""
    axes.axhline(100 * PASSED, color=style.FAINT, linestyle=":", linewidth=0.9, zorder=0.5)
    if field is not None and field <= 1.15 * end:
        axes.plot([field, 1.15 * end], [50, 50], color=PROVED, linewidth=8, solid_capstyle="butt", zorder=0.6)
        axes.plot([field, field], [45, 55], color=WINDOW, linewidth=1.5, zorder=0.7)


def _key(axes: Axes, lines: Mapping[str, Mapping[str, Any]]) -> None:
    """Says in a panel of its own what lines and marks are."""
    from matplotlib.lines import Line2D

    made = [Line2D([], [], markersize=4.5, **look) for look in lines.values()]
    made += [
        Line2D([], [], color=PROVED, linewidth=8, solid_capstyle="butt"),
        Line2D([], [], color=style.FAINT, linestyle=":", linewidth=0.9),
    ]
    axes.set_axis_off()
    names = [*lines, "50 % is proved", f"{100 * PASSED:.0f} %, what a reach needs"]
    axes.legend(made, names, loc="center left", fontsize=9.5, borderaxespad=0)
