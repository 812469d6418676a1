"""Says in JSON Schema what a row is, for programs that read rows.jsonl: docs/rows.schema.json holds it.

    row_schema()["properties"]["value"]       # {"type": "number"}

It is made from `Row`, so the two cannot part.
"""

from __future__ import annotations

from typing import Any, get_type_hints

from levelfield.spec.study import Row

TYPES = {str: "string", int: "integer", float: "number"}


def row_schema() -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of one row: no key is required, as one that does not apply is absent."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A row of levelfield: one number, measured or printed",
        "type": "object",
        "properties": {name: {"type": TYPES[kind]} for name, kind in get_type_hints(Row).items()},
        "additionalProperties": False,
    }
