"""Prints what a SQL query over measured and printed rows gives: `levelfield results`.

answer("SELECT task, model, value FROM scores", Path("runs"))
"""

from __future__ import annotations

import csv
import json
import sys
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from levelfield.cli.console import Console
from levelfield.report.query import collect, query
from levelfield.spec import UserError

RUNS = Path("runs")  # where commands put runs unless --runs-dir names another folder


def answer(sql: str, runs_dir: Path, as_json: bool = False) -> None:
    """Prints a table on a terminal, CSV anywhere else, or JSON. What could not be read is named on standard error.

    Raises UserError where another folder than the usual one is named and is not there: without any runs, what papers
    print can still be asked for.
    """
    if runs_dir != RUNS and not runs_dir.is_dir():
        raise UserError(f"There is no folder {runs_dir}: name a folder of runs with --runs-dir.")
    measured = collect(runs_dir)
    for complaint in measured.complaints:
        print(f"Left out: {complaint}", file=sys.stderr)
    columns, records = query(sql, measured)
    if not measured.rows:
        print(f"Nothing is measured in {runs_dir}/: `rows` is empty. Choose a folder with --runs-dir.", file=sys.stderr)
    if as_json:
        if twice := [name for name in dict.fromkeys(columns) if columns.count(name) > 1]:
            raise UserError(f"Several columns are called {twice[0]}: name them apart in the query, with AS.")
        plain = [{name: _plain(value) for name, value in zip(columns, record)} for record in records]
        print(json.dumps(plain, default=str, indent=1, allow_nan=False))
        return
    console = Console()
    if not console.is_terminal:
        csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *records])
        return
    table = Table()
    for column in columns:
        table.add_column(Text(column))  # what is in brackets is no markup here
    for record in records:
        table.add_row(*(Text("" if v is None else f"{v:g}" if isinstance(v, float) else str(v)) for v in record))
    console.print(table)


def _plain(value: Any) -> Any:
    """Returns a value as JSON can hold it: there is no NaN in it and no infinity, which become null."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    value = float(value) if isinstance(value, Decimal) else value
    return None if isinstance(value, float) and not isfinite(value) else value
