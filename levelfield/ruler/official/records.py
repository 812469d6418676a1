"""Reads the records of an official file: a list in JSON, lines of JSON, or Parquet.

    records("data.json", needed=("question", "answer"), what="LongBench v2's data.json")

A file is read once, and kept until another is asked for, since lengths are asked one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from levelfield.ruler.sources import parsed, read
from levelfield.spec import UserError

Record = Mapping[str, Any]


def records(path: str, needed: Sequence[str], what: str) -> tuple[Record, ...]:
    """Returns the records of a file. Raises UserError for a file that is absent, damaged or of another layout.

    needed: fields that every record has. what: the official file, for whoever names another.
    """
    found = _read(path)
    for number, record in enumerate(found):
        lacking = [name for name in needed if not isinstance(record, dict) or name not in record]
        if lacking:
            raise UserError(f"{path} lacks {', '.join(lacking)} in record {number}: give {what}.")
    if not found:
        raise UserError(f"{path} has no records: give {what}.")
    return found


@lru_cache(maxsize=2)
def _read(path: str) -> tuple[Record, ...]:
    file = Path(path).expanduser()
    if file.is_dir():
        raise UserError(f"{path} is a folder: name the file in it.")
    if file.suffix == ".parquet":
        return _parquet(file)
    text = read(file)
    if text.lstrip()[:1] == "[":
        return tuple(parsed(text, path))
    lines = text.split("\n")  # and not at U+2028 or U+0085, which may stand in strings of JSON
    return tuple(parsed(line, path) for line in lines if line.strip())


def _parquet(file: Path) -> tuple[Record, ...]:
    import duckdb

    if not file.is_file():
        raise UserError(f"{file} does not exist: give the path of a file that does.")
    try:
        found = duckdb.execute("SELECT * FROM read_parquet(?)", [str(file)])
        names = [column[0] for column in found.description or ()]
        return tuple(dict(zip(names, row, strict=True)) for row in found.fetchall())
    except duckdb.Error as error:
        why = str(error).partition("\n")[0]  # further lines quote the query
        raise UserError(f"{file} is no Parquet file, or a damaged one ({why}): copy it again.") from error
