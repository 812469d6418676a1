"""Tells what in the files of a run is damaged, and reads of a log whatever is not.

    records, lacking = curve(where / "log.jsonl", phases=2)     # "" where nothing is lacking
    remarks({DAMAGED: ["listops-..."], UNPROBED: []})           # a sentence for each thing that is lacking of some runs
    unscored(rows, "test")                                      # None where they have the run's score on that split

Rows are all or nothing: a file with one damaged line gives none. A training curve decides nothing, so that
one line of it costs that line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from levelfield.files import remedy, unreadable
from levelfield.runs.results import LogRecord, once_each
from levelfield.spec import Row
from levelfield.spec.shapes import fault

MISSING = "it is missing"
DAMAGED = "Training curves are without what is damaged in log.jsonl of"
CURVELESS = "Only training curves are lost, as log.jsonl is missing (for new ones, remove the folder and run again), of"
UNPROBED = "Run the study again, for rows of its probes are missing of"
UNSCORED = "Arms are not compared example by example, as scores.npy is missing or damaged, with"
NAMED = 5  # runs of a remark, at most


def curve(path: Path, phases: int = 0, *, begun: bool = False) -> tuple[list[LogRecord], str]:
    """Returns the records of a log, one of each step in order, and in words what else is in it; "" where nothing is.

    A last line that is cut off may still be written to, and is left out without a word. phases: of the run's protocol;
    0 where that is not known. begun: steps were trained, so that MISSING is said where there is no file. Raises
    UserError where the system does not let the file be read, which may be sound.
    """
    try:
        with path.open("rb") as file:
            content = file.read()
    except FileNotFoundError:
        return [], MISSING if begun else ""
    except IsADirectoryError:
        return [], "it is a folder"
    except OSError as error:
        raise unreadable(path, error, remedy(path)) from error
    found, lost = list[LogRecord](), list[int]()
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].split(b"\n"), start=1):
        if not line:
            continue
        record = _record(line)
        if record is None or record["phase"] < 0 or 0 < phases <= record["phase"]:
            lost.append(number)
        else:
            found.append(record)
    more = f", nor can {len(lost) - 1} more" if lost[1:] else ""
    return once_each(found), f"its line {lost[0]} cannot be read{more}" if lost else ""


def _record(line: bytes) -> LogRecord | None:
    """Returns a line of a log; None where it is damaged."""
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return None if fault(record, LogRecord) else record


def without(path: Path, lacking: str) -> list[str]:
    """Returns what a ledger says of a damaged log. lacking: as of `curve`; where it is "", nothing is said."""
    said = "steps that were not trained again may be missing from the training curve"
    return [f"{path.name} was damaged ({lacking}): {said}."] if lacking else []


def unscored(rows: Sequence[Row], split: str) -> str | None:
    """Returns, in words, that rows lack the score of the run itself on a split; None where they have it, or the status
    of a run whose score is no number."""
    for row in rows:
        own = row.get("split") == split and row.get("protocol") != "none" and not row.get("at")
        if own and row.get("metric") != "chance" and ("value" in row or row.get("status") in ("diverged", "undefined")):
            return None
    return f"it has no score on the {split} split"


def foreign(rows: Sequence[Row], run: str) -> str | None:
    """Returns, in words, what is in the rows that is no measurement of that run; None where nothing is."""
    for row in rows:
        if row.get("run") != run:
            return f"it holds rows of {row.get('run') or 'no run'}"
        if "metric" not in row:
            return "a row of it has no metric"
    return None


def remarks(lacking: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields a sentence for each thing that is lacking of runs, the first of them by name. lacking: how the sentence
    begins, such as DAMAGED -> ids of runs."""
    for what, run_ids in lacking.items():
        more = f" and {len(run_ids) - NAMED} more" if run_ids[NAMED:] else ""
        if run_ids:
            yield f"{what} {', '.join(run_ids[:NAMED])}{more}."
