"""Answers SQL queries over every number, measured and printed.

    measured = collect(Path("runs"))
    columns, records = query("SELECT model, median(value) FROM scores WHERE task = 'listops' GROUP BY model", measured)

rows        what was measured: every `rows.jsonl` and `probe-*.jsonl` of a run, and committed `rows.csv`
scores      of those, the test score of every run: one row a run, without slices, probes and baselines
studies     which run belongs to which study at which effort; a run may belong to several
published   what the papers print, in the columns of `rows`

The columns are the keys of `spec.Row`; `at`, which is a word of SQL, is called `place`. The database lives in a
bounded part of the memory, sees no file but those, and answers questions alone: whatever would change it or its
settings is refused.
"""

from __future__ import annotations

import csv
import fnmatch
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_type_hints

from levelfield import published
from levelfield.files import read_text, unreadable
from levelfield.runs import store
from levelfield.spec import Row, UserError, impossible
from levelfield.spec.shapes import fault

TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE"}
RENAMED = {"at": "place"}  # key of a row -> column
KEYS = get_type_hints(Row)
COLUMNS = {RENAMED.get(key, key): TYPES[kind] for key, kind in KEYS.items()}
LOCKED = (
    "SET memory_limit = '1GB'",
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
MOST = 1_000_000  # rows of an answer
IDENTITY = ("source", "run", "task", "model", "protocol", "at", "split", "metric")
NAMES = ("study", "effort", "run", "task", "model", "protocol", "seed")
SCORED = (*NAMES, "metric", "unit", "value", "stderr", "n", "status")
SCORES = f"""
    CREATE VIEW scores AS
    SELECT {", ".join(SCORED)} FROM rows
    WHERE run IS NOT NULL AND split = 'test' AND place IS NULL AND protocol <> 'none' AND metric <> 'chance'
    QUALIFY row_number() OVER (PARTITION BY run ORDER BY metric = 'negative_mse', rowid) = 1
"""  # of a regression's two metrics, R2 is the one that is printed


class Member(NamedTuple):
    """A run of a study, in the columns of the table `studies`."""

    study: str
    effort: str
    run: str


TABLES = {"rows and published": COLUMNS, "scores": SCORED, "studies": Member._fields}


@dataclass(frozen=True)
class Measured:
    """Rows of every file that could be read, which run belongs to which study, and a sentence for every other file."""

    rows: Sequence[Mapping[str, Any]] = ()
    members: Sequence[Member] = ()
    complaints: Sequence[str] = ()


def collect(out: Path) -> Measured:
    """All that lies below a folder. A row of a run has the study and the effort of the first study with that run."""
    return read(find_files(out))


def find_files(out: Path) -> list[Path]:
    """Files of rows below a folder: of runs (.jsonl), but not of trials in it, and of committed results (rows.csv).

    Hidden folders are passed over: they hold what is not a run's yet, such as the rows that its owner has staged. A
    folder that may not be looked into counts as a run's, so that whoever reads it is told. Raises UserError where `out`
    may not.
    """
    found: dict[str, list[tuple[str, ...]]] = {"rows.jsonl": [], "probe-*.jsonl": [], "rows.csv": []}

    def refused(error: OSError) -> None:
        inside = Path(error.filename).relative_to(out).parts
        if not inside and out.exists():
            raise unreadable(out, error, "choose another folder")
        found["rows.jsonl"] += [(*inside, "rows.jsonl")] if inside else []

    for folder, inner, names in os.walk(out, onerror=refused):  # once, as there may be a hundred thousand folders
        inner[:] = [name for name in inner if not name.startswith(".")]
        inside = Path(folder).relative_to(out).parts
        for pattern, files in found.items():
            files += [(*inside, name) for name in fnmatch.filter(names, pattern)]
    committed = sorted(found.pop("rows.csv"))
    runs = [parts for files in found.values() for parts in sorted(files) if store.TRIALS not in parts]
    return [out.joinpath(*parts) for parts in (*runs, *committed)]


def read(files: Sequence[Path]) -> Measured:
    """What the files hold; a number that several hold, such as a run's own and a committed copy, counts once.

    A number of no run, as of an audit, is told by the name of its folder: the same at another effort is another number.
    Of a complete run that cannot be read whole nothing is taken, as by `store.read`.
    """
    members, phases, complaints = _members(dict.fromkeys(path.parent.parent for path in files))
    first = {member.run: member for member in reversed(members)}
    rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    complete: dict[Path, bool] = {}
    for path in files:
        where = path.parent
        try:
            if path.suffix == ".csv":
                found = _committed(path)
            elif complete.get(where):
                continue  # its rows are taken
            elif complete.setdefault(where, store.complete(where)):
                found = store.measured(where, phases.get(where.name)).rows
            else:
                found = store.run_rows(path)
        except UserError as error:
            complaints.append(str(error))
            continue
        for row in found:
            member = first.get(row.get("run", ""))
            named = {"study": member.study, "effort": member.effort} if member else {}
            place = "" if row.get("run") or path.suffix != ".csv" else path.parent.name
            rows.setdefault((place, *(row.get(key) for key in IDENTITY)), named | row)
    return Measured(list(rows.values()), members, complaints)


def _members(folders: Iterable[Path]) -> tuple[list[Member], dict[str, int], list[str]]:
    """Members of all studies, how many phases each run has, and a sentence for each index that is damaged."""
    members, phases, complaints = list[Member](), dict[str, int](), list[str]()
    for path in (path for out in folders for path in sorted((out / "studies").glob("*.json"))):
        try:
            index = store.read_index(path)
            members += [Member(index.study, index.effort, run) for run in index.runs]
            phases |= {run: len(spec["protocol"]["phases"]) for run, spec in index.runs.items()}
        except UserError as error:
            complaints.append(str(error))
    return members, phases, complaints


def _committed(path: Path) -> list[Row]:
    """The rows of a table of a report. Raises UserError where it is damaged."""
    remedy = "make its report again"
    try:
        records = list(csv.DictReader(io.StringIO(read_text(path, remedy)), strict=True))
        rows = [Row(**{k: KEYS.get(k, str)(v) for k, v in record.items() if v}) for record in records]
        wrong = next((found for row in rows if (found := fault(row, Row) or impossible(row))), None)
    except (csv.Error, ValueError, TypeError, OverflowError) as error:
        wrong, rows = str(error), []
    if wrong:
        raise UserError(f"{path} is damaged ({wrong}): {remedy}.")
    return rows


def _create(database: Any, name: str, columns: Mapping[str, str], records: Iterable[Sequence[Any]]) -> None:
    """A table of records, each in the order of the columns; None is NULL."""
    database.execute(f"CREATE TABLE {name} (" + ", ".join(f'"{key}" {kind}' for key, kind in columns.items()) + ")")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(records)
        written = """header = true, delim = ',', quote = '"', escape = '"', new_line = '\\r\\n'"""  # not to be guessed
        take = f"INSERT INTO {name} SELECT * FROM read_csv(?, columns = ?, nullstr = '', {written})"
        database.execute(take, [str(path), dict(columns)])


def query(sql: str, measured: Measured) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of the answer. Raises UserError, in one sentence, where the SQL is wrong, is no single
    question, or has too large an answer."""
    import duckdb

    with duckdb.connect(":memory:") as database:
        for name, rows in (("rows", measured.rows), ("published", published.rows())):
            _create(database, name, COLUMNS, ([row.get(key) for key in KEYS] for row in rows))
        _create(database, "studies", dict.fromkeys(Member._fields, "VARCHAR"), measured.members)
        database.execute(SCORES)
        for setting in LOCKED:
            database.execute(setting)
        try:
            answer = database.execute(_question(sql))
            columns = [column[0] for column in answer.description or ()]
            records = answer.fetchmany(MOST + 1)
        except (duckdb.Error, ValueError, OverflowError) as error:  # the last two: a value that Python does not have
            reason = " ".join(str(error).split("\n\n")[0].split("LINE 1:")[0].split())
            known = "; ".join(f"columns of {name}: {', '.join(each)}" for name, each in TABLES.items())
            raise UserError(f"The query failed: {reason} ({known}).") from error
    if len(records) > MOST:
        raise UserError(f"The answer has more than {MOST:,} rows: add LIMIT, or group them.")
    return columns, records


def _question(sql: str) -> str:
    """Returns the query. Raises UserError unless it is one statement that reads and changes nothing."""
    import duckdb

    found = duckdb.extract_statements(sql)
    if not found:
        raise UserError("The query is empty: try SELECT * FROM scores LIMIT 5.")
    if len(found) > 1:
        raise UserError(f"These are {len(found)} queries: give one at a time.")
    if found[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise UserError("A query only reads: write a SELECT, such as SELECT * FROM scores LIMIT 5.")
    return sql
