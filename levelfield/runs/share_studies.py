"""Takes along with an exported run which studies it is a run of, so that reports find it where it is read back.

    found = records(Path("runs") / run_id)                      # what the manifest of the exported folder holds
    add(found, run_id, spec, Path("other_runs"))                # other_runs/studies/compare-mine-3f2a91-smoke.json

A record is that of `runs/studies/`, of this run alone and without its description, which `spec.json` has.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from levelfield.files import check_name, locked, write_json
from levelfield.runs import store
from levelfield.runs.records import joined, trials_of
from levelfield.runs.results import Record, StudyIndex
from levelfield.spec import EFFORTS, UserError


def records(where: Path) -> list[Record]:
    """Returns what is recorded of a run by each study that has it; a record that is damaged is left out."""
    found: list[Record] = []
    for path in sorted((where.parent / "studies").glob("*.json")):
        with suppress(UserError):
            index = store.read_index(path)
            if where.name in index.runs:
                task = index.task(where.name)
                trials = trials_of(index, [where.name])
                shared = {name: digest for name, digest in index.shared.items() if name == task}
                probes = {run: each for run, each in index.probes.items() if run == where.name}
                contents = {run: each for run, each in index.contents.items() if run == where.name}
                alone = replace(index, runs={}, trials=trials, shared=shared, probes=probes, contents=contents)
                found.append(alone.record)
    return found


def wrong(found: Sequence[Record]) -> str | None:
    """Returns, in words, what of such records cannot be; None where nothing is wrong."""
    for each in found:
        try:
            check_name("study", each["study"])
        except UserError as error:
            return str(error)
        if each["effort"] not in EFFORTS:
            return "it is of a study at no effort"
    return None


def add(found: Sequence[Record], run_id: str, spec: Any, runs_dir: Path) -> list[Record]:
    """Adds a run to the records of its studies in a folder of runs, and returns those that have it then.

    What is recorded there stays: where it is of other sizes, or trained its arms otherwise, the run is not added.
    """
    have: list[Record] = []
    for each in found:
        index = replace(StudyIndex(**each), runs={run_id: spec})
        path = store.index_file(runs_dir, index.study, index.effort)
        with suppress(UserError):  # a record that is damaged is left to whoever reads it
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.with_name(f".{path.name}.lock")):
                kept = joined(store.read_index(path), index) if path.exists() else index
                write_json(path, kept.record)
            have += [each] if run_id in kept.runs else []
    return have
