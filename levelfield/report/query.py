"""SQL over every number, measured and printed.

    columns, rows = query("SELECT model, median(value) FROM rows WHERE task = 'listops' GROUP BY model", files)

Two tables, in the same columns: `rows`, what was measured (every `rows.jsonl` and `probe-*.jsonl` given), and
`published`, what the papers print. The database lives in memory and sees no file but those.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_type_hints

from levelfield import published, store
from levelfield.spec import Row, UserError

TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE"}
COLUMNS = {key: TYPES[kind] for key, kind in get_type_hints(Row).items()}
IDENTITY = ("source", "run", "task", "model", "protocol", "at", "split", "metric")


def find_files(out: Path) -> list[Path]:
    """Files of rows below a folder: of runs (.jsonl), but not of trials in it, and of committed results (rows.csv)."""
    measured = [*sorted(out.rglob("rows.jsonl")), *sorted(out.rglob("probe-*.jsonl"))]
    runs = [path for path in measured if store.TRIALS not in path.relative_to(out).parts]
    return [*runs, *sorted(out.rglob("rows.csv"))]


def _read(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".csv":
            return [{k: v for k, v in record.items() if v} for record in csv.DictReader(text.splitlines())]
        return [json.loads(line) for line in text.splitlines() if line]
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read rows from {path} ({error}): remove the file or make it again.") from error


def _once(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A number that several files hold, such as a run's own and a committed copy, counts once: the first stays."""
    kept: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in rows:
        kept.setdefault(tuple(row.get(key) for key in IDENTITY), row)
    return list(kept.values())


def _create(database: Any, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table with the columns of Row; a key that is absent is NULL, and keys of no column are left out."""
    database.execute(f"CREATE TABLE {name} (" + ", ".join(f'"{key}" {kind}' for key, kind in COLUMNS.items()) + ")")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows([row.get(key) for key in COLUMNS] for row in rows)
        database.execute(f"COPY {name} FROM '{path}' (HEADER, NULL '')")


def query(sql: str, files: Sequence[Path]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of the answer. Raises UserError, in one sentence, where the SQL is wrong."""
    import duckdb

    with duckdb.connect(":memory:") as database:
        _create(database, "rows", _once(row for path in files for row in _read(path)))
        _create(database, "published", published.rows())
        database.execute("SET enable_external_access = false")
        try:
            answer = database.execute(sql) if sql.strip() else None
            if answer is None:
                raise UserError("The query is empty: try SELECT * FROM rows LIMIT 5.")
            return [column[0] for column in answer.description or ()], answer.fetchall()
        except duckdb.Error as error:
            reason = " ".join(str(error).split("\n\n")[0].split("LINE 1:")[0].split())
            raise UserError(f"The query failed: {reason} (tables: rows, published; columns: {', '.join(COLUMNS)}).")
