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
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from levelfield.disk import explained, read_text, sha256, unreadable
from levelfield.results import Results
from levelfield.spec import Probe, Row, Run, UserError, describe, digest

DONE = "done.json"
WEIGHTS = "weights.safetensors"
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
    return (where / DONE).exists()


def conclude(where: Path, version: str) -> None:
    """Writes the file that says that all is there; `version` is that of levelfield."""
    weights = {"weights_sha256": sha256(where / WEIGHTS)} if (where / WEIGHTS).exists() else {}
    write_json(where / DONE, {"version": version, **weights})


def checked_weights(where: Path) -> Path:
    """The weights of a complete run. Raises UserError where they are missing or not those that were saved; runs of
    earlier versions have no checksum to tell."""
    path, known = where / WEIGHTS, read_json(where / DONE)
    remedy = f"remove {where} and run again"
    if not isinstance(known, dict):
        raise UserError(f"{where / DONE} is damaged (it holds no object): {remedy}.")
    try:
        changed = sha256(path) != known.get("weights_sha256", "") if "weights_sha256" in known else not path.exists()
    except OSError as error:
        raise unreadable(path, error, remedy) from error
    if changed:
        raise UserError(f"{path} is missing or has changed since the run was complete: {remedy}.")
    return path


@contextmanager
def claim(where: Path) -> Iterator[bool]:
    """Yields True if this process alone may work in the directory, False if another one does.

    The system frees the claim when the process ends, however it ends.
    """
    with explained(where):
        where.mkdir(parents=True, exist_ok=True)
        file = (where / ".claim").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def write_text(path: Path, text: str) -> None:
    """Atomically. Raises UserError on a full disk."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with explained(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text)
            os.replace(partial, path)
    finally:
        with suppress(OSError):  # or it would hide why nothing could be written
            partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Without fields that are no finite numbers."""
    write_text(path, json.dumps(finite(value), indent=1, allow_nan=False) + "\n")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    write_text(path, "".join(to_line(row) for row in rows))


def to_line(row: Mapping[str, Any]) -> str:
    """Without fields that are no finite numbers, which JSON does not have."""
    return json.dumps(finite(row), allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """The value without its fields, at any depth, that are no finite numbers; in a list, null stands in their place."""
    if isinstance(value, Mapping):
        kept = {key: finite(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each is not None or value[key] is None}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(path: Path) -> list[Any]:
    """The objects of a .jsonl file; [] where there is none. Raises UserError on a damaged one."""
    return parse_lines(path, read_text(path, f"remove {path.parent} and run again")) if path.exists() else []


def parse_lines(path: Path, text: str) -> list[Any]:
    """The objects of the lines of a .jsonl file. Raises UserError on a damaged one."""
    try:
        return [json.loads(line) for line in text.splitlines() if line]
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): remove {path.parent} and run again.") from error


def read_log(path: Path) -> list[Any]:
    """A log that is being written: its last line may be cut off, and is left out then."""
    text = read_text(path, f"remove {path.parent} and run again") if path.exists() else ""
    return parse_lines(path, text[: text.rfind("\n") + 1])


def probe_file(where: Path, probe: Probe) -> Path:
    """Where the rows of a probe with these settings lie."""
    return where / f"probe-{probe.name}-{digest(probe)[:6]}.jsonl"


def write_probe(where: Path, probe: Probe, rows: Iterable[Row]) -> None:
    """In place of those that the probe gave with other settings."""
    write_rows(probe_file(where, probe), rows)
    for other in where.glob(f"probe-{probe.name}-*.jsonl"):
        if other != probe_file(where, probe):
            other.unlink()


def read_json(path: Path) -> Any:
    """Raises UserError on a damaged file."""
    text = read_text(path, f"remove {path.parent} and run again")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): remove {path.parent} and run again.") from error


def index(
    out: Path,
    study: str,
    effort: str,
    runs: Sequence[Run],
    trials: Sequence[Mapping[str, Any]] = (),
    asked_trials: int = 0,
) -> None:
    """Record which runs a study consists of, so that a report can be made from files alone.

    trials: what was tried before, which chose the runs. asked_trials: where the command line asked for them, how many.
    """
    check_name("study", study)
    described = {run.id: describe(run) for run in runs}
    whole = {"study": study, "effort": effort, "runs": described}
    whole |= {"trials": list(trials)} if trials else {}
    whole |= {"asked_trials": asked_trials} if asked_trials else {}
    write_json(out / "studies" / f"{study}-{effort}.json", whole)


def read(out: Path, study: str, effort: str, asked: str = "") -> Results:
    """All that has been measured for a study. Raises UserError where nothing was started.

    asked: what the command line calls it, where that is not its name.
    """
    path = out / "studies" / f"{study}-{effort}.json"
    if not path.exists():
        command = f"levelfield run {asked or study} --effort {effort} --out {out}"
        raise UserError(f"No runs of {study} at effort {effort} in {out}: start with `{command}`.")
    known = read_json(path)
    specs: dict[str, Any] = known["runs"]
    rows: list[Row] = []
    ledgers, curves, failures = {}, {}, {}
    for run_id in specs:
        where = out / run_id
        if complete(where):
            if log := read_log(where / "log.jsonl"):
                curves[run_id] = log
            ledgers[run_id] = read_json(where / "ledger.json")
            for file in [where / "rows.jsonl", *sorted(where.glob("probe-*.jsonl"))]:
                rows += [Row(**row, study=study, effort=effort) for row in read_rows(file)]
        elif (where / "error.txt").exists():
            failures[run_id] = (where / "error.txt").read_text().strip().splitlines()[0]
    return Results(rows, ledgers, curves, specs, failures, known.get("trials", ()))
