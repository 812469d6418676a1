"""Shows what was tried before the runs, where a study tuned its arms: a figure and a table, from trials' records alone.

figure(results)     validation score against the learning rate's factor, a line per arm, the chosen one ringed
table(results)      arm by arm: what its own recipe scored, what was chosen, and what the search cost
lists(results)      every trial of every arm, to which the marks of the figure and the numbers of the table lead
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from levelfield.report import style
from levelfield.report.arms import Arm
from levelfield.report.cells import arms_of, shown
from levelfield.report.line_ends import End, end_labels
from levelfield.report.links import back, list_html, return_link
from levelfield.report.plots import Figure
from levelfield.report.row_index import Names
from levelfield.report.row_lists import exact
from levelfield.report.tables import DASH, Column, Link, Table, duration, si
from levelfield.runs.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record = Mapping[str, Any]


def by_arm(results: Results) -> dict[Arm, list[Record]]:
    """Every arm's trials, its own recipe first, each with the anchors of its arm's list and of its line there."""
    arms, found = arms_of(results) if results.trials else {}, dict[Arm, list[Record]]()
    names = Names()
    for record in results.trials:
        arm = arms.get(record["arm"]) or Arm(record["task"], record["model"], record["protocol"])  # before its runs
        mine = found.setdefault(arm, [])
        own = mine[0]["list"] if mine else names.new("trials", arm.task, arm.model_label, arm.protocol)
        mine.append({**record, "list": own, "anchor": names.new(own, str(len(mine) + 1))})
    return found


def table(results: Results) -> Table:
    """One row an arm. Scores are of one seed, on validation."""
    columns = (
        Column("Task"),
        Column("Model"),
        Column("Protocol"),
        Column("Trials", True),
        Column("Diverged", True),
        Column("Own recipe", True, "validation score of the recipe the study gives the arm"),
        Column("Best", True, "validation score of the trial that was chosen"),
        Column("lr ×", True, "what the chosen trial multiplied the recipe's learning rate by"),
        Column("Decay ×", True, "what it multiplied the weight decay by"),
        Column("FLOPs", True, "of all trials of the arm together"),
        Column("Wall time", True, "of all trials of the arm, one after another"),
    )
    arms = by_arm(results)
    links = tuple(map(_link, arms.values()))
    return Table(columns, tuple(_row(arm, records) for arm, records in arms.items()), links=links)


def _link(records: Sequence[Record]) -> Link:
    """The scores lead to the lines of their trials, and so do the factors; all other numbers are of the whole list."""
    whole, own, chosen = records[0]["list"], records[0]["anchor"], _chosen(records)["anchor"]
    return Link(whole, back(whole), {5: own, 6: chosen, 7: chosen, 8: chosen})


def _row(arm: Arm, records: Sequence[Record]) -> tuple[str, ...]:
    chosen = _chosen(records)
    diverged = sum("validation" not in record for record in records)
    flops, wall = (sum(record[key] for record in records) for key in ("flops", "wall_s"))
    factors = [f"{chosen[key]:.3g}" for key in ("lr", "weight_decay")]
    scores = [_score(records[0]), _score(chosen)]
    names = (arm.task, arm.model_label, arm.protocol)
    return (*names, str(len(records)), str(diverged), *scores, *factors, si(flops), duration(wall))


def _chosen(records: Sequence[Record]) -> Record:
    return next(record for record in records if record["chosen"])


def lists(results: Results) -> str:
    """Returns a list for each arm with a line for each trial, as HTML; "" where nothing was tuned."""
    found = [_list(arm, records) for arm, records in by_arm(results).items()]
    return "\n".join(["<h3>Trials of tuning</h3>", *found]) if found else ""


def _list(arm: Arm, records: Sequence[Record]) -> str:
    heads = ("lr ×", "Decay ×", _measured(records[0]), "FLOPs", "Wall time")
    columns = (Column("Trial"), *(Column(head, True) for head in heads), Column("Outcome"))
    lines = []
    for number, record in enumerate(records, start=1):
        score, costs = _shown(record), (si(record["flops"]), duration(record["wall_s"]))
        factors = (f"{record[key]:.6g}" for key in ("lr", "weight_decay"))
        said = "diverged" if score is None else "chosen" * record["chosen"]
        lines.append((str(number), *factors, DASH if score is None else exact(score, record["unit"]), *costs, said))
    names = {index: record["anchor"] for index, record in enumerate(records)}
    anchor = records[0]["list"]
    table = Table(columns, tuple(lines), names=names)
    title = f"{arm.task}, {arm}: {len(records)} trials"
    return list_html(anchor, title, f"<p>{return_link(anchor)}</p>{table.html()}")


def _measured(record: Record) -> str:
    unit = " (%)" if record["unit"] in ("fraction", "percent") else ""
    return f"validation {record['metric'].replace('_', ' ')}{unit}"


def _score(record: Record) -> str:
    value = _shown(record)
    return DASH if value is None else f"{value:.3g}"


def _shown(record: Record) -> float | None:
    """Returns a trial's validation score, in percent where it is a share; None where the trial diverged."""
    return shown(record.get("validation"), record["unit"], record["metric"])


def figure(results: Results) -> Figure | None:
    """A panel per task; None where nothing was tuned."""
    arms = by_arm(results)
    names = [(arm.model_label, arm.protocol) for arm in arms]
    tasks = list(dict.fromkeys(arm.task for arm in arms))
    if not tasks:
        return None
    look = style.looks(names)
    with style.canvas() as make:
        drawn, axes = style.panels(make, len(tasks), 3.3, columns=2)
        for panel, task in zip(axes, tasks, strict=True):
            here = {(arm.model_label, arm.protocol): records for arm, records in arms.items() if arm.task == task}
            _panel(panel, here, look)
            panel.set_title(style.short(task, 26))
        style.protocol_legend(drawn, names)
        rendered = style.render(drawn, "tuning")
    return Figure(*rendered, f"Validation score of every trial against its learning rate, on {', '.join(tasks)}.")


def _panel(
    axes: Axes, arms: Mapping[tuple[str, str], Sequence[Record]], look: Mapping[tuple[str, str], style.Look]
) -> None:
    ends: list[End] = []
    for name, records in arms.items():
        found = ((r["lr"], value, r["chosen"], r["anchor"]) for r in records if (value := _shown(r)) is not None)
        scored, mine = sorted(found), look[name]
        axes.plot([point[0] for point in scored], [point[1] for point in scored], ls=mine.dashes, color=mine.colour)
        for x, y, chosen, anchor in scored:
            axes.plot(x, y, "o", color=mine.colour, ms=4, url=style.url(anchor))
            if chosen:
                axes.plot(x, y, "o", ms=10, mfc="none", mec=mine.colour, url=style.url(anchor))
        ends += [End(scored[-1][1], name[0], mine.colour, scored[-1][0])] if scored else []
    factors = sorted({record["lr"] for records in arms.values() for record in records})
    axes.set_xscale("log", base=2)
    axes.set_xticks(factors, [f"{factor:.2g}" for factor in factors])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("learning rate, as a multiple of the recipe's own")
    axes.set_ylabel(_measured(next(record for records in arms.values() for record in records)))
    end_labels(axes, ends)
