"""Turns a column of an Arrow file into cells, also where it has times that Python has no value for.

    cells(table.column("seen"), path, "seen")            # ["2020-01-01 00:00:00.000000001", None, ...]

Python counts microseconds, and pandas writes nanoseconds. Letters: N rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from levelfield.spec import UserError


def cells(column: Any, path: Path, name: str) -> list[Any]:
    """Returns the N values of a column; texts, where a time among them is too fine or too late for Python. Raises
    UserError for such times within lists or records, and for text that is none."""
    import pyarrow as pa

    try:
        return column.to_pylist()
    except (ValueError, OverflowError) as error:
        try:
            return column.cast(pa.string()).to_pylist()
        except (pa.ArrowException, ValueError):
            raise UserError(
                f"{path} has cells in the column {name} that Python has no value for ({error}): write them in another "
                "way, such as times as text, or leave the column out."
            ) from error
