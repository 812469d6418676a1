"""Reads results folders into the tables of a leaderboard, and tells which folders have none.

    find([Path("results")]).folders         # (results/amos2025_small-overnight, results/demo-minutes, ...)
    board = read(Path("results/demo-minutes"))
    board.study, board.effort, board.tasks  # "demo", "minutes", {"listops": "accuracy", "reach": "accuracy"}
    board.standings[0].cell.summary.median  # from the rows alone; `summary.csv` says what each run cost

What `rows.csv` and `summary.csv` say of one arm must agree, or the folder is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from levelfield.report import committed
from levelfield.report.arms import Arm
from levelfield.report.cells import NONE, Cell, Cells, is_baseline, is_score, tables_of
from levelfield.runs.results import Results
from levelfield.spec import Row, UserError

REMEDY = "write its report again with `levelfield report`"
WRITER = "the command that wrote it, such as `levelfield report` or `levelfield reach`"
Specs = Callable[[str, str], Mapping[str, Mapping[str, Any]]]  # study, effort -> run id -> `spec.describe(run)`


def nothing_known(study: str, effort: str) -> Mapping[str, Mapping[str, Any]]:
    """The settings of a study's runs where no study can be looked up: none."""
    return {}


class Found(NamedTuple):
    """Folders that have results, and a sentence for each that was looked at and has none."""

    folders: tuple[Path, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Standing:
    """One cell of the leaderboard with the rows that it is made from.

    rows: of whole splits, of all seeds. elsewhere: how many more rows its runs have, of slices and probes. planned:
    seeds.
    """

    cell: Cell
    rows: tuple[Row, ...]
    elsewhere: int
    planned: int


@dataclass(frozen=True)
class Board:
    """One results folder: a study at an effort. tasks: task -> the metric that its column shows."""

    folder: Path
    study: str
    effort: str
    tasks: Mapping[str, str]
    standings: tuple[Standing, ...]
    baselines: Mapping[str, Mapping[str, float]]  # task -> rule -> score
    baseline_rows: tuple[Row, ...]
    units: Mapping[str, str]  # of each task's metric


def find(folders: Sequence[Path], specs: Specs = nothing_known) -> Found:
    """Returns the results folders among these and directly inside them, each once.

    specs: the settings of a study's runs, which tell apart arms that share all names.

    Raises UserError for one that is not there, and for one that neither is a results folder nor holds any.
    """
    found: dict[Path, Path] = {}
    left_out: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"There is no folder {folder}: name folders of results, such as report/demo-minutes.")
        inside = [folder] if _holds_rows(folder) else sorted(path for path in folder.iterdir() if _holds_rows(path))
        reasons = {path: why for path in inside if (why := unsuited(path, specs))}
        if not inside:
            raise UserError(
                f"{folder} holds no rows.csv, nor does a folder in it: write a report with `levelfield report`, and "
                "name the folder that it writes, such as report/demo-minutes."
            )
        if len(reasons) == len(inside):
            raise UserError(next(iter(reasons.values())))
        left_out += reasons.values()
        found |= {path.resolve(): path for path in inside if path not in reasons}
    return Found(tuple(found.values()), tuple(dict.fromkeys(left_out)))


def _holds_rows(folder: Path) -> bool:
    return (folder / committed.ROWS).is_file()


def unsuited(folder: Path, specs: Specs = nothing_known) -> str:
    """Returns why a folder of rows has no cell of a leaderboard, one sentence; "" where it has. Raises UserError."""
    rows = committed.read_rows(folder)
    whole = [row for row in rows if _is_score(row)]
    if not whole:
        return f"{folder} has no score of a run on a whole test split, which is what a leaderboard shows."
    if not (folder / committed.SUMMARY).is_file():
        return f"{folder} has no {committed.SUMMARY}, so what its runs cost is not known: {REMEDY}."
    if not (model := _varied(folder, rows)):
        return ""
    try:
        _results(folder, rows, specs)
    except UserError:
        return (
            f"{folder} tells variants of {model} apart in {committed.SUMMARY} and not in {committed.ROWS}, as earlier "
            f"versions did, and no study here has its runs: to write it again, give {WRITER}."
        )
    return ""


def _varied(folder: Path, rows: Sequence[Row]) -> str:
    """Returns a model of which the summary tells variants apart that share all names in the rows; "" for none."""
    arms = {(row.get("task"), row.get("model"), row.get("protocol")) for row in rows if _is_score(row)}
    for record in committed.records(folder / committed.SUMMARY):
        model, variant, _ = str(record.get("model")).partition(" (")
        if variant and (record.get("task"), model, record.get("protocol")) in arms:
            return model
    return ""


def _results(folder: Path, rows: Sequence[Row], specs: Specs) -> Results:
    """Returns the rows with their arms' lines; variants are told apart as the rows say, or by the settings of the runs
    of these ids.

    Raises UserError where an arm of the rows has no line.
    """
    if not _varied(folder, rows):
        return Results(rows, committed.ledgers(folder, rows))
    if said := committed.variants(folder):
        return committed.told_apart(folder, rows, {}, said)
    studies = {(row.get("study", ""), row.get("effort", "")) for row in rows if _is_score(row)}
    planned = {run: spec for study in studies for run, spec in specs(*study).items()}
    return committed.told_apart(folder, rows, planned)


def _is_score(row: Row) -> bool:
    return is_score(row) and not is_baseline(row)


def read(folder: Path, specs: Specs = nothing_known) -> Board:
    """Returns the table of a results folder. Raises UserError where its files are damaged or do not agree.

    specs: the settings of a study's runs, which tell apart arms that share all names.
    """
    rows = committed.read_rows(folder)
    named = {(row.get("study", ""), row.get("effort", "")) for row in rows if _is_score(row)}
    if len(named) != 1:
        several = ", ".join(sorted(f"{study} at effort {effort}" for study, effort in named))
        raise UserError(f"{folder / committed.ROWS} holds rows of {several}: keep one study and effort in a folder.")
    ((study, effort),) = named
    results = _results(folder, rows, specs)
    tables = _by_task(tables_of(results))
    run = [cell for task, cells in tables.items() for cell in cells.of(task) if cell.ledgers]
    standings = [_standing(cell, rows) for cell in run]
    for standing in standings:
        _check(folder, standing, tables[standing.cell.arm.task].metric)
    standings += _unfinished(folder, {standing.cell.arm for standing in standings}, tables)
    return Board(
        folder,
        study,
        effort,
        tasks={task: cells.metric for task, cells in tables.items()},
        standings=tuple(standings),
        baselines={task: cells.baselines.get(task, {}) for task, cells in tables.items()},
        baseline_rows=tuple(row for row in rows if is_baseline(row) and not row.get("at")),
        units={task: cells.unit for task, cells in tables.items()},
    )


def _by_task(tables: Iterable[Cells]) -> dict[str, Cells]:
    """Returns task -> the cells of one metric, in the order of tasks; of a regression's two metrics R2 is shown."""
    found: dict[str, Cells] = {}
    for cells in sorted(tables, key=lambda table: table.metric == "negative_mse"):
        for task in cells.tasks:
            if cells.of(task):
                found.setdefault(task, cells)
    return found


def _standing(cell: Cell, rows: Sequence[Row]) -> Standing:
    runs = {score.run for score in cell.scores}
    mine = [row for row in rows if row.get("run") in runs and not is_baseline(row)]
    whole = tuple(row for row in mine if not row.get("at"))
    planned = cell.cost("planned")
    if planned is None or not math.isfinite(planned):
        planned = len(runs)
    return Standing(cell, whole, len(mine) - len(whole), int(planned))


def _check(folder: Path, standing: Standing, metric: str) -> None:
    """Raises UserError where the line of an arm and the rows of its runs do not tell the same."""
    cell, summary = standing.cell, standing.cell.summary
    count, median = (summary.n, summary.median) if summary else (0, None)
    line = cell.ledgers[0]
    told = line.get("n", 0)
    said = line.get("median") if line.get("metric") == metric else median  # else it is of the run's other metric
    alike = said == median
    if isinstance(said, int | float) and median is not None:
        alike = math.isclose(said, median, rel_tol=1e-9)
    if told != count or not alike or standing.planned < count:
        raise UserError(
            f"{folder}: {committed.SUMMARY} has {told} scores of {cell.arm} on {cell.arm.task} with the median {said}, "
            f"and {committed.ROWS} has {count} with {median}: {REMEDY}."
        )


def _unfinished(folder: Path, seen: Collection[Arm], tables: Mapping[str, Cells]) -> Iterator[Standing]:
    """Yields the arms that were planned and of which no seed has a row, so that none is passed over."""
    named = {(arm.task, arm.model_label, arm.protocol) for arm in seen}
    for record in committed.records(folder / committed.SUMMARY):
        arm = Arm(*(str(record.get(key, "")) for key in ("task", "model", "protocol")))
        cells = tables.get(arm.task)
        if (
            cells
            and arm.protocol != NONE
            and (arm.task, arm.model, arm.protocol) not in named
            and record.get("metric") == cells.metric
        ):
            planned = record.get("planned")
            cell = Cell(arm, cells.unit, (), None, (record,))
            standing = Standing(cell, (), 0, planned if isinstance(planned, int) else 0)
            _check(folder, standing, cells.metric)
            yield standing
