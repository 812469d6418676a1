"""Prints what a SQL query over measured and printed rows gives: `levelfield results`.

answer("SELECT task, model, value FROM scores", Path("runs"))
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

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
        print(json.dumps([dict(zip(columns, record)) for record in records], default=str, indent=1))
        return
    console = Console()
    if not console.is_terminal:
        csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *records])
        return
    table = Table(*columns)
    for record in records:
        table.add_row(*("" if v is None else f"{v:g}" if isinstance(v, float) else str(v) for v in record))
    console.print(table)
