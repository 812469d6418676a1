"""What a language model's answers are shown as: tasks by length, and needles by depth.

    build(rows, baselines, folder)      # rows.csv, summary.md, tasks.png, depth.png

From rows alone, as everything in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from levelfield.report import heat
from levelfield.report.compare import pairs
from levelfield.report.plots import Drawing
from levelfield.report.tables import Column, Table, to_csv
from levelfield.spec import Row

LABEL = "answers found (%)"
MARKS = {"partial": " *", "left_out": "left out", "outdated": " †"}
Grid = dict[tuple[str, float], list[float]]


def build(rows: Sequence[Row], baselines: Sequence[Row], to: Path) -> Iterator[Path]:
    """Writes the files and yields their paths. rows: of one model, as `longcontext.rows` makes them."""
    to.mkdir(parents=True, exist_ok=True)
    texts = {"rows.csv": to_csv([dict(row) for row in (*rows, *baselines)]), "summary.md": summary(rows, baselines)}
    for name, text in texts.items():
        (to / name).write_text(text)
        yield to / name
    for name, drawing in (("tasks", tasks(rows)), ("depth", depths(rows))):
        if drawing is not None:
            yield drawing.write(to, name)[-1]


def summary(rows: Sequence[Row], baselines: Sequence[Row]) -> str:
    """A table of match by task and length with the strict score behind it, and below it the two blind readers."""
    lengths = sorted({length for row in rows if (length := _length(row)) is not None})
    by: dict[tuple[str, str], dict[int, float]] = {}
    marks: dict[tuple[str, int], str] = {}
    for row in rows:
        if (length := _length(row)) is not None:
            of_task = by.setdefault((row.get("task", ""), row.get("metric", "")), {})
            if "value" in row:
                of_task[length] = row["value"]
            if mark := MARKS.get(row.get("status", "")):
                marks[row.get("task", ""), length] = mark
    lines: list[tuple[str, ...]] = []
    for task in dict.fromkeys(task for task, _ in by):
        match, strict = by.get((task, "accuracy"), {}), by.get((task, "strict_accuracy"), {})
        texts = {n: f"{match[n]:.1f} ({strict[n]:.1f})" for n in match}
        lines.append((task, *(texts.get(n, "") + marks.get((task, n), "") for n in lengths)))
    for name in dict.fromkeys(row.get("model", "") for row in baselines):
        mine = [row for row in baselines if row.get("model") == name]
        means = [[row.get("value", 0.0) for row in mine if _length(row) == n] for n in lengths]
        lines.append((f"{name}, mean of the tasks", *(f"{sum(v) / len(v):.1f}" if v else "" for v in means)))
    heads = Column("task"), *(Column(str(n), number=True) for n in lengths)
    text = f"RULER's match in percent, the strict score in brackets.\n\n{Table(heads, tuple(lines)).markdown()}"
    if MARKS["partial"] in marks.values():
        text += f"\n{MARKS['partial'].strip()} Without samples that do not fit this length.\n"
    if MARKS["outdated"] in marks.values():
        text += f"\n{MARKS['outdated'].strip()} Some answers are to prompts of an earlier version: ask again.\n"
    gaps = tuple(
        (row.get("task", ""), str(_length(row)), f"{row.get('value', 0.0):+.1f} ± {1.96 * row.get('stderr', 0.0):.1f}")
        for row in rows
        if row.get("metric") == "middle_gap"
    )
    if gaps:
        table = Table((Column("task"), Column("length", number=True), Column("gap", number=True)), gaps)
        text += "\nLost in the middle: outer thirds minus the middle one, in points, with 95 % intervals.\n\n"
        text += table.markdown()
    return text


def _length(row: Row) -> int | None:
    """Of a row that is about a length as a whole."""
    place = pairs(row.get("at", ""))
    return int(place["length"]) if set(place) == {"length"} else None


def tasks(rows: Sequence[Row]) -> Drawing | None:
    """One panel: tasks downwards, lengths to the right."""
    grid: Grid = {}
    for row in rows:
        if row.get("metric") == "accuracy" and "value" in row and (length := _length(row)) is not None:
            grid.setdefault((row.get("task", ""), float(length)), []).append(row["value"])
    models = {row.get("model", "") for row in rows}
    return heat.draw({", ".join(models): grid}, "task", (0.0, 100.0), LABEL) if grid else None


def depths(rows: Sequence[Row]) -> Drawing | None:
    """A panel for each task that hides one needle: depth downwards, lengths to the right."""
    panels: dict[str, Grid] = {}
    for row in rows:
        place = pairs(row.get("at", ""))
        if row.get("metric") == "accuracy" and set(place) == {"length", "depth"}:
            grid = panels.setdefault(row.get("task", ""), {})
            grid.setdefault((place["depth"], float(place["length"])), []).append(row.get("value", 0.0))
    return heat.draw(panels, "depth", (0.0, 100.0), LABEL) if panels else None
