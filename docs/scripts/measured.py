"""Finds what committed results say of each mixer, for docs/mixers.md: sentences, and one figure of mixers by abilities.

    found = scores(Path("results"))
    facts("s4", found)          # ["best here, or within 2 points of it: `listops` ...", "`amos2025_small` at ...", ...]
    draw(found)                 # PNG bytes; `python docs/scripts/gallery.py` writes them to docs/figures/mixers.png

A column is a task of one study at one effort under one protocol, so all that stands in it was trained by the same
rules. Models of a study are led back to their mixers by the study itself, and nothing here names any. Of a study at
several efforts the largest that has been run as a whole counts; a column whose runs are all in another one is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from levelfield.engine.find import Source
from levelfield.mixers import classes
from levelfield.probes.depths import Depths
from levelfield.probes.extrapolation import Extrapolation
from levelfield.report import committed, style
from levelfield.report.cells import baselines_of, is_baseline, is_score, is_test, row_value, shown_unit
from levelfield.report.scorecard import gained
from levelfield.spec import EFFORTS, Effort, Row, Study, Task
from levelfield.spec.study import GUESSES

NEAR, FAR = 2.0, 10.0  # points below the best of a column: as good as it, and clearly behind it
LENGTH = re.compile(r"length=(\d+)")
RANGE = re.compile(r"asked=(\d+),trained=\1")  # at the range of training
OLD = "†"
WIDE = 13  # columns of a panel of the figure
ORDER = {mixer.label: place for place, mixer in enumerate(classes())}


class Column(NamedTuple):
    """A task as one study asks it. place: where it is not asked on its own test split, such as 512 steps or range 64;
    note: what is to be known of that."""

    study: str
    effort: str
    protocol: str
    task: str
    place: str = ""
    note: str = ""

    @property
    def words(self) -> str:
        return f"`{self.task}`" + (f" at {self.place}{self.note}" if self.place else "")


@dataclass(frozen=True)
class Score:
    """The median over seeds of one model in one column.

    mixers: labels of its layers, each once; several of a hybrid. floor: what guessing gives there, where that is a
    share.
    old: whether the code of today would give its runs other ids.
    """

    column: Column
    mixers: tuple[str, ...]
    model: str
    value: float
    metric: str
    unit: str
    floor: float
    runs: frozenset[str]
    old: bool

    @property
    def shown(self) -> str:
        return f"{self.value:.1f} %" if self.unit == "percent" else f"{self.metric} {self.value:.3g}"


@cache
def scores(results: Path) -> tuple[Score, ...]:
    """Returns every score of the folders in `results`, of each task's first protocol, in the order of the folders."""
    kept: dict[str, tuple[Effort, bool, list[Row]]] = {}  # study -> its effort, whether tuned by flags, and rows
    for path in sorted(results.glob(f"*/{committed.ROWS}")):
        rows = committed.read_rows(path.parent)
        named = next((row for row in rows if "run" in row), Row())
        full, effort = named.get("study", ""), named.get("effort", "")
        name = full.partition("-")[0]  # of a study that was tuned by a flag, without -tuned
        new = effort, full != name, rows
        if effort in EFFORTS and (name not in kept or _order(name, *kept[name]) < _order(name, *new)):
            kept[name] = new
    found: list[Score] = []
    for name, (effort, flags, rows) in kept.items():
        study = Source(name).find()
        if isinstance(study, Study):
            new = list(_of_study(study, effort, rows, known=not flags and study.search_at(effort) is None))
            doubles = [_runs(found, column) for column in columns(found)]
            found += [score for score in new if not any(_runs(new, score.column) <= runs for runs in doubles)]
    return tuple(found)


def _order(name: str, effort: Effort, flags: bool, rows: Sequence[Row]) -> tuple[bool, int]:
    """Orders folders of one study: what is to be shown is a whole study before a part of it, then the larger effort."""
    study, done = Source(name).find(), {row.get("run") for row in rows}
    whole = flags or not isinstance(study, Study) or all(run.id in done for run in study.runs(effort))
    return whole, EFFORTS.index(effort)


def _runs(found: Iterable[Score], column: Column) -> frozenset[str]:
    return frozenset(run for score in found if score.column == column for run in score.runs)


def _of_study(study: Study, effort: Effort, rows: Sequence[Row], known: bool) -> Iterator[Score]:
    """Yields the scores of one folder. known: whether the study of today says which ids its runs have."""
    planned = study.runs(effort)
    ids, models = {run.id for run in planned}, {run.model.label: run.model for run in planned}
    mine = [row for row in rows if not is_baseline(row) and is_test(row) and row.get("model") in models]
    if not any(isinstance(probe, (Depths, Extrapolation)) for run in planned for probe in study.probes(run)):
        mine = [row for row in mine if not LENGTH.fullmatch(row.get("at", ""))]  # which are slices of its own split
    first: dict[str, str] = {}
    for row in mine:
        first.setdefault(row.get("task", ""), row.get("protocol", ""))
    for task, protocol in first.items():
        settings = {run.task for run in planned if run.task.name == task}
        metric = _metric(row for row in mine if row.get("task") == task)
        for (place, note, at, model), values in _values(mine, (task, protocol, metric), settings).items():
            yield Score(
                Column(study.name, effort, protocol, task, place, note),
                mixers=tuple(dict.fromkeys(type(mixer).label for mixer in models[model].mixers)),
                model=model,
                value=median(values.values()),
                metric=metric,
                unit=shown_unit(rows, metric),
                floor=_floor([row for row in rows if row.get("task") == task], metric, at, settings),
                runs=frozenset(values),
                old=known and not values.keys() & ids,
            )


def _floor(rows: Sequence[Row], metric: str, at: str, settings: Iterable[Task]) -> float:
    """Returns what guessing gives at a place: chance, the commonest label there, or what a text tells of its own, such
    as the commonest of its values, to who does not read what is asked.

    rows: of one task. Of a place without a row of the commonest label, the test split's counts.
    """
    known = next(iter(baselines_of(rows, metric).values()), {})
    guesses = {rule: value for rule, value in known.items() if rule in GUESSES}
    priors = [row for row in rows if row.get("model") == "label_prior" and row.get("metric") == metric]
    there = [value for row in priors if row.get("at", "") == at and (value := row_value(row)) is not None]
    guesses |= {"label_prior": there[0]} if there else {}
    length = LENGTH.fullmatch(at)
    for task in settings:
        asked = (task.at_length(int(length[1])) if length else task).passage_only
        guesses["passage_only"] = 100 * (asked or 0.0)
    return max(guesses.values(), default=0.0)


def _metric(rows: Iterable[Row]) -> str:
    """Returns the metric that a task is shown by: accuracy where it has one, an error last."""
    found = {row.get("metric", "") for row in rows if is_score(row)}
    return min(found, key=lambda metric: (metric != "accuracy", metric == "negative_mse", metric), default="accuracy")


def _values(
    rows: Sequence[Row], wanted: tuple[str, str, str], settings: Collection[Task]
) -> dict[tuple[str, str, str, str], dict[str, float]]:
    """Returns place, note, `at` of the rows, and model -> run -> score: of the task's test split, and of the longest
    sequences that were asked; of a task with several settings, which are certified ranges, of each range."""
    made: dict[tuple[str, str, str, str], dict[str, float]] = {}
    fitting = [row for row in rows if (row.get("task"), row.get("protocol"), row.get("metric")) == wanted]
    lengths = [int(found[1]) for row in fitting if (found := LENGTH.fullmatch(row.get("at", "")))]
    trained = max((task.max_length for task in settings), default=0)
    for row in fitting:
        at, value = row.get("at", ""), row_value(row)
        length, reach = LENGTH.fullmatch(at), RANGE.fullmatch(at)
        if len(settings) > 1:
            where = (f"range {int(reach[1]):,}", "") if reach else None
        elif length and int(length[1]) == max(lengths) > trained > 0:
            where = (f"{int(length[1]):,} steps", f", {int(length[1]) / trained:.3g} times those of training")
        else:
            where = None if at else ("", "")
        if where and value is not None:
            made.setdefault((*where, at, row.get("model", "")), {})[row.get("run", "")] = value
    return made


Table = dict[Column, dict[tuple[str, ...], list[Score]]]


def name(mixers: Sequence[str]) -> str:
    """Returns what a model of such layers is called: name(("rglru", "attention")) is "rglru + attention"."""
    return " + ".join(mixers)


def columns(found: Iterable[Score]) -> Table:
    """Returns the scores by column and by layers, each from the lowest to the highest."""
    made: Table = {}
    for score in sorted(found, key=lambda score: score.value):
        made.setdefault(score.column, {}).setdefault(score.mixers, []).append(score)
    return {column: made[column] for column in dict.fromkeys(score.column for score in found)}


def facts(label: str, found: Sequence[Score]) -> list[str]:
    """Returns what was measured of a mixer, a line each: where it is good, where not, then every score."""
    table = columns(found)
    mine = {column: cells for column, cells in table.items() if any(label in mixers for mixers in cells)}
    if not mine:
        return [f"measured here: nothing yet; `levelfield compare {label}` measures it beside attention, S4 and conv"]
    near, far = [], []
    for column, cells in mine.items():
        best, own = max(_best(cells).values()), _best(cells).get((label,))
        floor = next(iter(cells.values()))[0].floor
        if own is None or len(cells) < 2 or not _percent(cells) or best < floor + FAR:
            continue  # nothing to compare, or nobody has learnt it
        near += [f"{_mark(column, cells)} in `{column.study}`"] if own >= max(best - NEAR, floor + FAR) else []
        far += [f"{_mark(column, cells)} in `{column.study}`"] if own < best - FAR else []
    said = [f"among the best here: {', '.join(near)}"] if near else []
    said += [f"far from the best here: {', '.join(far)}"] if far else []
    groups: dict[tuple[str, str, str], list[str]] = {}
    for column, cells in mine.items():
        groups.setdefault(column[:3], []).append(_sentence(label, column, cells))
    return [*said, *(f"`{s}` at `{e}`, `{p}`: {'; '.join(lines)}" for (s, e, p), lines in groups.items())]


def _best(cells: Mapping[tuple[str, ...], list[Score]]) -> dict[tuple[str, ...], float]:
    return {mixers: several[-1].value for mixers, several in cells.items()}


def _mark(column: Column, cells: Mapping[tuple[str, ...], list[Score]]) -> str:
    old = all(score.old for several in cells.values() for score in several)
    return f"{column.words}{OLD if old else ''}"


def _sentence(label: str, column: Column, cells: Mapping[tuple[str, ...], list[Score]]) -> str:
    """Returns every score of a mixer in a column, by itself and in hybrids, with guessing and the best beside them."""
    own = sorted((mixers for mixers in cells if label in mixers), key=_place)
    parts = [_span(mixers, cells[mixers]) for mixers in own]
    first = next(iter(cells.values()))[0]
    parts += [f"guessing {first.floor:.1f} %"] if first.unit == "percent" else []
    top = max(cells, key=lambda mixers: _best(cells)[mixers])
    beaten = all(cells[mixers][-1].shown != cells[top][-1].shown for mixers in own)
    parts += [f"the most is {cells[top][-1].shown} of {name(top)}"] if beaten else []
    return f"{_mark(column, cells)} {', '.join(parts)}"


def _span(mixers: tuple[str, ...], several: Sequence[Score]) -> str:
    """Returns one score, or the lowest and the highest of several settings; a hybrid's with its layers."""
    low, high = several[0], several[-1]
    layers = f" in {name(mixers)}" if len(mixers) > 1 else ""
    if low.shown == high.shown:
        return f"{high.shown}{layers}"
    return f"{low.shown} (`{low.model}`) to {high.shown} (`{high.model}`){layers}"


def draw(found: Sequence[Score]) -> bytes:
    """Draws mixers by columns: in a cell the score, or those of the lowest and the highest setting; dark where little
    of what guessing leaves is had. Columns of a single mixer compare nothing and are left out."""
    from matplotlib import colormaps

    panels = _panels({c: cells for c, cells in columns(found).items() if len(cells) > 1 and _percent(cells)})
    most = max(map(len, panels))
    rows = [sorted({mixers for cells in table.values() for mixers in cells}, key=_place) for table in panels]
    with style.canvas() as make:
        height = sum(1.5 + 0.3 * len(some) for some in rows)
        figure = make(figsize=(2.0 + 0.64 * most, height))
        several = figure.subplots(len(panels), squeeze=False, height_ratios=[5 + len(some) for some in rows])[:, 0]
        colours = colormaps["cividis"].with_extremes(bad=style.GRID)
        for axes, table, some in zip(several, panels, rows, strict=True):
            image = _panel(axes, table, some, colours)
            axes.set_xlim(0, most)
        bar = figure.colorbar(image, ax=several, fraction=0.025, pad=0.015, aspect=40)
        bar.set_label("colour: % of what guessing leaves", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        bar.outline.set_visible(False)
        return style.render(figure, "mixers")[1]


def _panels(table: Table) -> list[Table]:
    """Returns the columns in panels of at most `WIDE`, those of one study together."""
    panels: list[Table] = [{}]
    for study in dict.fromkeys(column[:3] for column in table):
        mine = {column: cells for column, cells in table.items() if column[:3] == study}
        if panels[-1] and len(panels[-1]) + len(mine) > WIDE:
            panels.append({})
        panels[-1] |= mine
    return panels


def _panel(axes: Any, table: Table, rows: Sequence[tuple[str, ...]], colours: Any) -> Any:
    """Draws the cells of a panel with their names; returns what the bar of colours is made from."""
    shares = [[_share(cells.get(row, [])) for cells in table.values()] for row in rows]
    image = axes.pcolormesh(shares, cmap=colours, vmin=0, vmax=100, edgecolors=style.PAPER, linewidth=0.8)
    for across, cells in enumerate(table.values()):
        for down, row in enumerate(rows):
            shade = "#ffffff" if shares[down][across] < 50 else "#1a1a1a"
            text = _cell(cells.get(row, []))
            axes.text(across + 0.5, down + 0.5, text, ha="center", va="center", fontsize=7, color=shade)
    axes.set_ylim(len(rows), 0)
    axes.set_yticks([i + 0.5 for i in range(len(rows))], [name(row) for row in rows], fontsize=8)
    axes.set_xticks([i + 0.5 for i in range(len(table))], [_head(c, table[c]) for c in table], fontsize=7)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _studies(axes, list(table))
    return image


def _percent(cells: Mapping[tuple[str, ...], list[Score]]) -> bool:
    return all(score.unit == "percent" for several in cells.values() for score in several)


def _place(mixers: tuple[str, ...]) -> tuple[int, int]:
    return len(mixers), ORDER[mixers[0]]


def _share(several: Sequence[Score]) -> float:
    return max(0.0, gained(several[-1].value, several[-1].floor)) if several else float("nan")


def _cell(several: Sequence[Score]) -> str:
    values = list(dict.fromkeys(f"{score.value:.0f}" for score in (several[:1] + several[-1:])))
    return "–".join(values)


def _head(column: Column, cells: Mapping[tuple[str, ...], list[Score]]) -> str:
    old = OLD if OLD in _mark(column, cells) else ""
    task = "_\n".join(column.task.rsplit("_", 1)) if len(column.task) > 12 else column.task  # none fits that is longer
    return f"{task}{old}" + (f"\n{column.place}" if column.place else "")


def _studies(axes: Any, shown: Sequence[Column]) -> None:
    """Writes the study below its columns, with a line between studies."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, column in enumerate(shown):
        groups.setdefault(column[:3], []).append(place)
    for (study, effort, protocol), places in groups.items():
        middle = (places[0] + places[-1] + 1) / 2
        wide = study if len(places) > 1 else study.replace("_", "_\n", 1)
        text = f"{wide}\n{effort}, {protocol}" if len(places) > 1 else f"{wide}\n{effort}\n{protocol}"
        axes.text(middle, axes.get_ylim()[0] + 0.15, text, ha="center", va="top", fontsize=7, color=style.FAINT)
        if places[0]:
            axes.axvline(places[0], color=style.PAPER, linewidth=4)
