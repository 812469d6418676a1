"""Stored names stay: ids of runs, names of probes' files, folders of prepared arrays, and the ids of committed rows."""

from __future__ import annotations

import csv

import ids
import pytest
from repository import ROOT

from levelfield.engine.find import listing

FOLDERS = ("demo-minutes", "amos2025_table2-minutes", "miralles2025_table1-minutes")
REPLACED = (
    "pathfinder",
    "pathfinder16",
)  # tasks of which committed rows are of an earlier version, as results/README says


@pytest.fixture(scope="module")
def identities() -> list[str]:
    return ids.identities()


def test_nothing_stored_has_another_name(identities: list[str]) -> None:
    """After a change that is meant, such as a raised version or a new study: `python tests/support/ids.py --write`."""
    frozen = ids.FILE.read_text().splitlines()
    assert sorted(set(frozen) - set(identities)) == []
    assert sorted(set(identities) - set(frozen)) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_committed_rows_are_of_runs_that_are_made_today(folder: str, identities: list[str]) -> None:
    made = {line.split()[-1] for line in identities}
    with (ROOT / "results" / folder / "rows.csv").open() as file:
        runs = {(row["task"], row["run"]) for row in csv.DictReader(file) if row["run"]}
    assert runs
    assert [run for task, run in sorted(runs) if run not in made and task not in REPLACED] == []


def test_the_folders_of_the_package_are_found() -> None:
    assert {"demo", "amos2025_table2", "huang2024_table1"} <= set(listing("studies"))
    assert {"listops", "image"} <= set(listing("tasks"))
