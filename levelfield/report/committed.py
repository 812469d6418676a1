"""Reads a folder of committed results, such as `results/demo-minutes`: the tables of a report, without its runs.

    read(Path("results/demo-minutes"), study, "minutes")      # Results, as `store.read` gives of a folder of runs

`rows.csv` holds every row, `summary.csv` what a run of each arm cost, `trials.csv` what was tried before, `hits.csv`
which test examples each run has right. Logs are not kept. The settings of a run are those of the study's run of the
same id, which is a hash of them: where the study has changed since, they are not known, and no printed number stands
beside its scores.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, get_type_hints

from levelfield.files import unreadable
from levelfield.report.cells import NONE, arms_of, is_baseline, is_score
from levelfield.runs import hits
from levelfield.runs.results import Results
from levelfield.spec import Effort, Row, Study, UserError, describe, impossible

ROWS, SUMMARY, TRIALS = "rows.csv", "summary.csv", "trials.csv"
COLUMNS = ("task", "model", "protocol", "metric", "value")  # of every file of rows
AGAIN = "take the file from the repository again, or write it again with `levelfield report`"
KINDS = get_type_hints(Row)


def find(out: Path, study: str, effort: str) -> Path | None:
    """The folder itself or the study's own in it, where it holds committed rows; else None."""
    return next((at for at in (out, out / f"{study}-{effort}") if (at / ROWS).is_file()), None)


def read(folder: Path, study: Study, effort: Effort) -> Results:
    """Returns what the folder holds, with the settings of all runs of the study, whether they are in it or not.

    Raises UserError for a damaged file, and for rows of another study or effort.
    """
    rows = read_rows(folder, COLUMNS)
    if not rows:
        raise UserError(f"{folder / ROWS} holds no rows: {AGAIN}.")
    mine = [row for row in rows if (row.get("study", study.name), row.get("effort", effort)) == (study.name, effort)]
    if not mine:
        there = sorted({f"{row.get('study')} at effort {row.get('effort')}" for row in rows})
        raise UserError(
            f"{folder / ROWS} holds {', '.join(there)}, not {study.name} at effort {effort}: give that --effort, and "
            "--trials where the study was tuned."
        )
    found = told_apart(folder, mine, {run.id: describe(run) for run in study.runs(effort)})
    _check_whole(folder, found)
    return replace(found, trials=[*records(folder / TRIALS)], hits=hits.read(folder / hits.FILE, AGAIN))


def _check_whole(folder: Path, results: Results) -> None:
    """Raises UserError where runs have no row of which the summary has the scores: the file of rows was cut off."""
    labels = {run: arm.model_label for run, arm in arms_of(results).items()}
    scored: Counter[tuple[Any, ...]] = Counter(
        (row.get("task"), labels[row.get("run", "")], row.get("protocol"), row.get("metric"))
        for row in results.rows
        if is_score(row) and not is_baseline(row) and math.isfinite(row.get("value", math.nan))
    )
    lost: dict[str, int] = {}
    for record in records(folder / SUMMARY):
        arm = tuple(record.get(key) for key in ("task", "model", "protocol", "metric"))
        told = record.get("n")
        if record.get("protocol") != NONE and isinstance(told, int) and scored[arm] < told:
            lost[f"{record.get('model')} ({record.get('protocol')}) on {record.get('task')}"] = told - scored[arm]
    if lost:
        more = f" and of {len(lost) - 1} more arms" if len(lost) > 1 else ""
        raise UserError(
            f"{folder / ROWS} lacks {sum(lost.values())} of the test scores that {SUMMARY} beside it counts, of "
            f"{next(iter(lost))}{more}: {AGAIN}."
        )


def told_apart(
    folder: Path, rows: Sequence[Row], specs: Mapping[str, Mapping[str, Any]], said: Mapping[str, str] | None = None
) -> Results:
    """Returns rows of a folder with what their arms cost. Raises UserError where an arm has no line in the summary.

    specs: the settings of their runs, as far as they are known, which tell apart arms that share all names. said: what
    does so instead, as of `variants`.
    """
    results = Results(rows, {}, specs=specs, variants=said or {})
    labels = {run: arm.model_label for run, arm in arms_of(results).items()}
    return replace(results, ledgers=ledgers(folder, rows, labels))


def variants(folder: Path) -> dict[str, str]:
    """Returns run id -> what tells its arm apart from others that share all names, where the file of rows says so."""
    return {str(row.get("run")): str(row["variant"]) for row in records(folder / ROWS) if "variant" in row}


def read_rows(folder: Path, needed: Sequence[str] = ()) -> list[Row]:
    """Returns every row of the folder. Raises UserError for a damaged file and an impossible score.

    needed: columns without which the first line is no header.
    """
    path, rows = folder / ROWS, list[Row]()
    for line, record in _lines(path, needed):
        rows.append(_row(path, record))
        if wrong := impossible(rows[-1]):
            raise UserError(f"{path} has on line {line} {wrong}: {AGAIN}, or mend that line.")
    return rows


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Yields lines by column, numbers as numbers, empty cells absent; nothing where there is no file."""
    for _, record in _lines(path):
        yield record


def _lines(path: Path, needed: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields records, as `records` does, each with the number of the line that it ends on.

    needed: as of `read_rows`. Raises UserError for a damaged file.
    """
    if not path.is_file():
        return
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")), strict=True)
        header = reader.fieldnames or ()
        lines = [(reader.line_num, line) for line in reader]
    except OSError as error:
        raise unreadable(path, error, AGAIN) from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path} cannot be read ({error}): {AGAIN}.") from error
    if header and (lacking := [name for name in needed if name not in header]):
        raise UserError(f"{path} does not begin with a line that names its columns, {lacking[0]} among them: {AGAIN}.")
    for number, line in lines:
        if None in line.values():
            raise UserError(f"{path} is cut off on line {number}: {AGAIN}.")
        yield number, {key: _number(value) for key, value in line.items() if key and value}


@lru_cache(1 << 16)  # most columns say the same of thousands of rows
def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)


def _row(path: Path, record: Mapping[str, Any]) -> Row:
    """Gives a record the types of its columns; a column that rows do not have is left out."""
    try:
        return Row(**{key: KINDS[key](value) for key, value in record.items() if key in KINDS})
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} holds a line that is no row ({error}): {AGAIN}.") from error


def ledgers(folder: Path, rows: Sequence[Row], labels: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Returns run id -> what a run of its arm cost, with its arm's line. Raises UserError where an arm has none.

    labels: run id -> what its line calls the model, where that is more than the rows say: "s4 (range=16)".
    """
    keys = ("task", "model", "protocol")
    arms = {tuple(record.get(key) for key in keys): record for record in records(folder / SUMMARY)}
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        run, model = row.get("run", ""), row.get("model")
        arm = row.get("task"), (labels or {}).get(run, model), row.get("protocol")
        if run and row.get("protocol") != "none" and not row.get("at"):
            if arm not in arms:
                raise UserError(f"{folder / SUMMARY} has no line for {' '.join(map(str, arm))}: take it anew.")
            found[run] = arms[arm]
    return found
