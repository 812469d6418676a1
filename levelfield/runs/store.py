"""Run directories: the local files that are the truth about what was measured.

runs/listops-attention-scratch-0-5f0c9a1e2b/
    spec.json           the whole run, described
    checkpoint-*        while it trains
    progress.json       where it is now, for whoever watches
    log.jsonl           its training curve
    weights.safetensors the selected weights
    rows.jsonl          what was measured
    ledger.json         what it cost
    done.json           written last, with the checksum of the weights: without it the run is not complete
    probe-NAME-*.jsonl  a probe's rows, written whole; named by its settings
runs/studies/demo-minutes.json      which runs a study at an effort is made of
runs/trials/                        the same for recipes that are tried first: no weights, no test
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from levelfield.files import (
    _parsed,
    _remedy,
    disk_errors,
    locked,
    read_json,
    read_log,
    read_rows,
    read_text,
    sha256,
    unreadable,
    write_json,
    write_rows,
)
from levelfield.runs.results import Done, Ledger, LogRecord, Record, Results
from levelfield.spec import Probe, Row, Run, UserError, describe, digest
from levelfield.spec.shapes import fault

SPEC = "spec.json"
DONE = "done.json"
WEIGHTS = "weights.safetensors"
ERROR = "error.txt"  # why a run failed
TRIALS = "trials"
NAME = re.compile(r"[\w.+-]{1,60}")  # three of them make a folder's name


def directory(out: Path, run: Run) -> Path:
    return out / run.id


def check_name(kind: str, name: str) -> None:
    """Raises UserError for a name that cannot be part of a folder's name."""
    if not NAME.fullmatch(name) or len(name.encode()) > 60:
        shown = name if len(name) <= 60 else f"{name[:57]}..."
        raise UserError(f"The {kind} name {shown!r} cannot name a folder: take 1 to 60 letters, digits, . _ + -")


def complete(where: Path) -> bool:
    """Raises UserError where the folder may not be looked into."""
    try:
        return (where / DONE).exists()
    except OSError as error:
        raise unreadable(where, error, _remedy(where)) from error


def conclude(where: Path, version: str) -> None:
    """Writes the file that says that all is there; `version` is that of levelfield."""
    weights = {"weights_sha256": sha256(where / WEIGHTS)} if (where / WEIGHTS).exists() else {}
    write_json(where / DONE, {"version": version, **weights})


def checked_weights(where: Path) -> Path:
    """The weights of a complete run. Raises UserError where they are missing or not those that were saved; runs of
    earlier versions have no checksum to tell."""
    path, known = where / WEIGHTS, read_json(where / DONE)
    _check(where / DONE, fault(known, Done))
    try:
        found = sha256(path)
    except OSError as error:
        raise unreadable(path, error, _remedy(where)) from error
    if known.get("weights_sha256", found) != found:
        raise UserError(f"{path} has changed since the run was complete: {_remedy(where)}.")
    return path


@contextmanager
def claim(where: Path) -> Iterator[bool]:
    """Yields True if this process alone may work in the directory, False if another one does.

    The system frees the claim when the process ends, however it ends.
    """
    with disk_errors(where):
        where.mkdir(parents=True, exist_ok=True)
        file = (where / ".claim").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def probe_file(where: Path, probe: Probe) -> Path:
    """Where the rows of a probe with these settings lie."""
    return where / f"probe-{probe.name}-{digest(probe)[:6]}.jsonl"


def write_probe(where: Path, probe: Probe, rows: Iterable[Row]) -> None:
    """In place of those that the probe gave with other settings."""
    write_rows(probe_file(where, probe), rows)
    for other in where.glob(f"probe-{probe.name}-*.jsonl"):
        if other != probe_file(where, probe):
            other.unlink()


def index(
    out: Path,
    study: str,
    effort: str,
    runs: Sequence[Run],
    trials: Sequence[Mapping[str, Any]] = (),
    asked_trials: int = 0,
    adds: bool = False,
) -> None:
    """Record which runs a study consists of, so that a report can be made from files alone.

    trials: what was tried before, which chose the runs. asked_trials: where the command line asked for them, how many.
    adds: to what other commands recorded, as comparisons do, each of which may name other tasks and protocols. Where an
    arm now has other settings, nothing stays of what was recorded on its task: arms of one task are trained alike.
    """
    check_name("study", study)
    path = out / "studies" / f"{study}-{effort}.json"
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        described, tried = _kept(path, runs) if adds else ({}, [])
        described |= {run.id: describe(run) for run in runs}
        arms = {trial["arm"] for trial in trials}
        tried = [*(trial for trial in tried if trial["arm"] in described.keys() - arms), *trials]
        whole = {"study": study, "effort": effort, "runs": described}
        whole |= {"trials": tried} if tried else {}
        whole |= {"asked_trials": asked_trials} if asked_trials else {}
        write_json(path, whole)


def _kept(path: Path, runs: Sequence[Run]) -> tuple[dict[str, Any], list[Any]]:
    """Of an earlier record, the runs that the new ones do not replace, and the trials; nothing of a damaged one."""
    try:
        earlier = record(path) if path.exists() else None
    except UserError:
        earlier = None
    if earlier is None:
        return {}, []
    settings = {_arm(run.id): describe(replace(run, seed=0)) for run in runs}
    others = {k: v for k, v in earlier["runs"].items() if settings.get(_arm(k), {**v, "seed": 0}) != {**v, "seed": 0}}
    tasks = [spec["task"] for spec in others.values()]
    kept = {run_id: spec for run_id, spec in earlier["runs"].items() if spec["task"] not in tasks}
    return kept, list(earlier.get("trials", ()))


def _arm(run_id: str) -> str:
    """Task, model and protocol, of `task-model-protocol-seed-hash`."""
    return run_id.rsplit("-", 2)[0]


def record(path: Path) -> Record:
    """What `index` wrote. Raises UserError where it is damaged."""
    remedy = "remove it and run the study again, which keeps what is done"
    known = _parsed(path, read_text(path, remedy), remedy)
    wrong = fault(known, Record)
    if not wrong:
        arms = {trial["arm"] for trial in known.get("trials", ())} - {
            t["arm"] for t in known.get("trials", ()) if t["chosen"]
        }
        wrong = f"no trial of {min(arms)} is chosen" if arms else None
    if wrong:
        raise UserError(f"{path} is damaged ({wrong}): {remedy}.")
    return known


def read(out: Path, study: str, effort: str, asked: str = "") -> Results:
    """All that has been measured for a study. Raises UserError where nothing was started.

    A run of which some file cannot be read is among the failures, with the reason; the others are whole.
    asked: what the command line calls it, where that is not its name.
    """
    path = out / "studies" / f"{study}-{effort}.json"
    if not path.exists():
        command = f"levelfield run {asked or study} --effort {effort} --runs-dir {out}"
        raise UserError(f"No runs of {study} at effort {effort} in {out}: start with `{command}`.")
    known = record(path)
    rows: list[Row] = []
    ledgers, curves, failures = {}, {}, {}
    for run_id, spec in known["runs"].items():
        where = out / run_id
        try:
            if complete(where):
                ledger, log, found = measured(where, len(spec["protocol"]["phases"]))
                ledgers[run_id] = ledger
                rows += [Row(**row | {"study": study, "effort": effort}) for row in found]
                curves |= {run_id: log} if log else {}
            elif (where / ERROR).exists():
                said = read_text(where / ERROR, _remedy(where)).strip()
                failures[run_id] = said.splitlines()[0] if said else "it does not say why"
        except UserError as error:
            failures[run_id] = f"not readable, because {error}"
    specs: dict[str, Any] = dict(known["runs"])
    return Results(rows, ledgers, curves, specs, failures, known.get("trials", ()))


def measured(where: Path, phases: int) -> tuple[Any, list[Any], list[Row]]:
    """Ledger, log and rows of a complete run of so many phases. Raises UserError where one of its files is damaged."""
    ledger_file = where / "ledger.json"
    done, ledger = read_json(where / DONE), read_json(ledger_file)
    _check(where / DONE, fault(done, Done))
    _check(ledger_file, fault(ledger, Ledger) or ("it has no phases" if len(ledger["phases"]) != phases else None))
    log = read_log(where / "log.jsonl")
    for entry in log:
        wrong = fault(entry, LogRecord)
        _check(where / "log.jsonl", wrong or (None if 0 <= entry["phase"] < phases else "it tells of another phase"))
    rows = run_rows(where / "rows.jsonl")
    _check(where / "rows.jsonl", None if rows else "it is empty")
    for file in sorted(where.glob("probe-*.jsonl")):
        rows += run_rows(file)
    others = {row.get("run", where.name) for row in rows} - {where.name}
    _check(where, f"it holds rows of {min(others)}" if others else None)
    return ledger, log, rows


def run_rows(path: Path) -> list[Row]:
    """The rows in a file of a run. Raises UserError where they are damaged."""
    rows = read_rows(path)
    for row in rows:
        _check(path, fault(row, Row))
    return rows


def _check(path: Path, wrong: str | None) -> None:
    """Raises UserError where something is wrong."""
    if wrong:
        raise UserError(f"{path} is damaged ({wrong}): {_remedy(path if path.is_dir() else path.parent)}.")
