"""SQL over rows: `levelfield results "SELECT model, avg(value) FROM rows WHERE split = 'test' GROUP BY model"`.

Two tables with the same columns, those of `spec.Row`: `rows`, everything measured below a folder of runs, and
`published`, everything the papers print. They live in memory; the query can read nothing else.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import duckdb

from levelfield import published, store
from levelfield.spec import Row, UserError

TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE"}


@dataclass(frozen=True)
class Answer:
    """What a query gave."""

    columns: tuple[str, ...]
    records: list[tuple[Any, ...]]

    def to_csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.records])
        return text.getvalue()


def ask(sql: str, out: Path) -> Answer:
    """Raises UserError, with the columns, for SQL that does not work."""
    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        _fill(connection, "rows", _measured(out))
        _fill(connection, "published", published.rows())
        try:
            answer = connection.execute(sql)
            return Answer(tuple(column[0] for column in answer.description or ()), answer.fetchall())
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            columns = ", ".join(get_type_hints(Row))
            raise UserError(f"{first}. Tables: rows, published; columns: {columns}.") from error


def _measured(out: Path) -> list[Row]:
    """Of complete runs, whatever study they belong to."""
    folders = [done.parent for done in sorted(out.glob(f"*/{store.DONE}"))]
    files = [file for at in folders for file in [at / "rows.jsonl", *sorted(at.glob("probe-*.jsonl"))]]
    return [row for file in files for row in store.read_rows(file)]


def _fill(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    """All rows in one statement: inserting them one by one takes seconds."""
    columns = {name: TYPES[kind] for name, kind in get_type_hints(Row).items()}
    declared = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    connection.execute(f"CREATE TABLE {table} ({declared})")
    filled = [{name: row.get(name) for name in columns} for row in rows]
    insert = f"INSERT INTO {table} SELECT unnest(from_json(?, ?), recursive := true)"
    connection.execute(insert, [json.dumps(filled), json.dumps([columns])])
