"""Writes docs/rows.schema.json, the JSON Schema of rows: `python docs/scripts/schema.py`."""

from __future__ import annotations

import json
from pathlib import Path

from levelfield.spec.row_schema import row_schema

PAGE = Path(__file__).resolve().parents[1] / "rows.schema.json"


def text() -> str:
    return json.dumps(row_schema(), indent=2) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
