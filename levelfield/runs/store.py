"""Says where the files of a run lie, and reads and writes those that tell what was measured.

These local files are the truth: a report is made from them alone, and a run is complete when `done.json` is there.

runs/listops-attention-scratch-0-5f0c9a1e2b/
    spec.json           the whole run, described
    checkpoint-*        while it trains
    progress.json       where it is now, for whoever watches
    log.jsonl           its training curve
    weights.safetensors the selected weights
    scores.npy          the score of every test example, (N,) in the order of the split
    rows.jsonl          what was measured
    ledger.json         what it cost
    done.json           written last, with checksums of the others: without it the run is not complete
    probe-NAME-*.jsonl  a probe's rows, written whole; named by its settings
    .lease/             while a process works on it: whose it is, and results that are not the run's yet (`claims`)
runs/studies/demo-minutes.json      which runs a study at an effort is made of
runs/trials/                        the same for recipes that are tried first: no weights, no test
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from levelfield.files import (
    atomic,
    changed,
    check_name,
    disk_errors,
    locked,
    read_json,
    read_rows,
    read_text,
    remedy,
    save_array,
    to_line,
    unreadable,
    write_json,
    write_text,
)
from levelfield.runs import lease, sound
from levelfield.runs.hits import Hits
from levelfield.runs.names import arm_of
from levelfield.runs.probed import probe_files, probe_name, probe_of
from levelfield.runs.records import joined, trials_of
from levelfield.runs.results import Done, Ledger, Record, Results, StudyIndex, shared_values
from levelfield.spec import Probe, Row, Run, UserError, closest, impossible
from levelfield.spec.contents import checksum
from levelfield.spec.shapes import fault

SPEC = "spec.json"
DONE = lease.DONE
WEIGHTS = "weights.safetensors"
SCORES = "scores.npy"
ROWS = "rows.jsonl"
LEDGER = "ledger.json"
LOG = "log.jsonl"
PROGRESS = "progress.json"
ERROR = lease.ERROR
TRIALS = "trials"
SEALED = (SPEC, SCORES, ROWS, LEDGER)  # files whose checksums a complete run keeps, beside that of the weights
UNREADABLE = "not readable, because"  # begins why a finished run is among the failures


def directory(out: Path, run: Run) -> Path:
    return out / run.id


def complete(where: Path) -> bool:
    """Returns whether a run has finished. Raises UserError where its folder may not be looked into."""
    try:
        return (where / DONE).exists()
    except OSError as error:
        raise unreadable(where, error, remedy(where)) from error


def diverged(where: Path) -> bool:
    """Returns whether the loss, the weights or the outputs of a complete run were NaN or infinite.

    It is not said of a run whose rows cannot be read, of which a report says why. Rows without the word, which are
    nearly all, are not parsed: a status asks this of every run that is done.
    """
    with suppress(UserError, OSError):
        if b'"diverged"' not in (where / ROWS).read_bytes():
            return False
        return any(isinstance(row, dict) and row.get("status") == "diverged" for row in read_rows(where / ROWS))
    return False


def why_failed(where: Path) -> str:
    """Returns the reason, in one line, that a failed run left in its folder. Raises UserError where it left none."""
    said = read_text(where / ERROR, remedy(where)).strip()
    return said.splitlines()[0] if said else "it does not say why"


def located(out: Path, run_id: str) -> tuple[Path, str]:
    """Returns the folder of a run's directory, and its id, where the id or the path of the directory is given."""
    there = [with_name(where) for where in (out / run_id, Path(run_id)) if (where / SPEC).exists()]
    return (there[0].parent, there[0].name) if there else (out, run_id)


def with_name(where: Path) -> Path:
    """Returns a path that ends in the name of its folder, as "." does not: the name of a run's is its id."""
    return where.resolve() if where.name in ("", "..") else where


def missing(out: Path, run_id: str) -> UserError:
    """Returns the error for a run that has no folder in `out`, with the nearest one."""
    there = sorted(each.parent.name for each in out.glob(f"*/{SPEC}"))
    near = closest(run_id, there) if 0 < len(there) <= 12 else "ids are the names of its folders."
    return UserError(f"There is no run '{run_id}' in {out}: {near}")


def write_scores(where: Path, values: np.ndarray) -> None:
    """Keeps the scores of test examples, (N,): a byte each where all are 0 or 1, else four."""
    hits = np.isin(values, (0.0, 1.0)).all()
    with atomic(where / SCORES) as path, disk_errors(where):
        save_array(path, values.astype(np.uint8 if hits else np.float32))


def read_scores(where: Path) -> np.ndarray | None:
    """Returns what `write_scores` kept, (N,); None where a run of an earlier version kept nothing.

    Raises UserError for a damaged file, and where one that was kept is missing.
    """
    path, expected = where / SCORES, seal(where, SCORES)
    if not expected and not path.exists():
        return None
    try:
        if expected and checksum(path) != expected:
            raise changed(path, remedy(where))
        return np.load(path, allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error, remedy(where)) from error
    except (ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}): {remedy(where)}.") from error


def conclude(where: Path, version: str, probes: Iterable[str] = ()) -> None:
    """Writes the file that says that a run has finished, and what was written before it.

    version: of levelfield. probes: names of those that the study measures it by, once it is complete.
    """
    weights = {"weights_sha256": checksum(where / WEIGHTS)} if (where / WEIGHTS).exists() else {}
    sums = {name: checksum(where / name) for name in SEALED if (where / name).exists()}
    write_json(where / DONE, {"version": version, **weights, "sha256": sums, "probes": list(probes)})


def seal(where: Path, name: str) -> str:
    """Returns the SHA-256 that a file of a run had when the run was complete; "" where that is not known.

    Raises UserError where the file that says it is damaged.
    """
    return _done(where).get("sha256", {}).get(name, "") if complete(where) else ""


def _done(where: Path) -> Any:
    """Returns what `conclude` wrote, a `Done`. Raises UserError where it is damaged."""
    found = read_json(where / DONE)
    _check(where / DONE, fault(found, Done))
    return found


def checked_weights(where: Path) -> Path:
    """Returns where the weights of a complete run lie.

    Raises UserError where they are missing, or are not those that were saved. Runs of earlier versions have no
    checksum, so what lies there is believed.
    """
    path, known = where / WEIGHTS, _done(where)
    try:
        found = checksum(path)
    except OSError as error:
        raise unreadable(path, error, remedy(where)) from error
    if known.get("weights_sha256", found) != found:
        raise UserError(f"{path} has changed since the run was complete: {remedy(where)}.")
    return path


def probe_file(where: Path, probe: Probe) -> Path:
    """Returns where the rows of a probe with these settings lie."""
    return where / probe_name(probe)


def write_probe(where: Path, probe: Probe, rows: Iterable[Row]) -> None:
    """Writes the rows of a probe, and removes those that it gave with other settings, unless a study asks for them.

    Where it has none to give, the file is an empty line: without a byte it would be a damaged one.
    """
    write_text(probe_file(where, probe), "".join(map(to_line, rows)) or "\n", durable=True)
    for other in probed_otherwise(where, probe):
        asked = other.name.encode()
        if not any(asked in index.read_bytes() for index in (where.parent / "studies").glob("*.json")):
            other.unlink()


def probed_otherwise(where: Path, probe: Probe) -> list[Path]:
    """Returns the files of rows that a probe gave with other settings."""
    files = set(where.glob(f"probe-{probe.name}-*.jsonl")) - {probe_file(where, probe)}
    return sorted(path for path in files if probe_of(path.name) == probe.name)


def index_file(out: Path, study: str, effort: str) -> Path:
    """Returns where the index of a study at an effort lies."""
    return out / "studies" / f"{study}-{effort}.json"


def write_index(out: Path, index: StudyIndex, adds: bool = False) -> None:
    """Records which runs a study consists of.

    adds: keep what other commands recorded, as far as `joined` does. Comparisons of one module do, for each may name
    other tasks and protocols.
    """
    check_name("study", index.study)
    path = index_file(out, index.study, index.effort)
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        write_json(path, (joined(index, _earlier(path)) if adds else index).record)


def _earlier(path: Path) -> StudyIndex | None:
    """Returns what is recorded already; None where nothing is, or where it is damaged."""
    try:
        return read_index(path) if path.exists() else None
    except UserError:
        return None


def read_index(path: Path) -> StudyIndex:
    """Returns what `write_index` wrote. Raises UserError where it is damaged."""
    advice = "remove it and run the study again, which keeps what is done"
    known = read_json(path, advice, shared_values())
    wrong = fault(known, Record)
    if not wrong:
        trials = known.get("trials", ())
        undecided = {trial["arm"] for trial in trials} - {trial["arm"] for trial in trials if trial["chosen"]}
        wrong = f"no trial of {min(undecided)} is chosen" if undecided else None
    if wrong:
        raise UserError(f"{path} is damaged ({wrong}): {advice}.")
    return StudyIndex(**{name: known[name] for name in Record.__annotations__ if name in known})


def started(out: Path, study: str, effort: str, asked: str = "") -> StudyIndex:
    """Returns the index of a study that was started at an effort. Raises UserError, with the command that starts it,
    where it was not.

    asked: what the command line calls the study, where that is not its name.
    """
    path = index_file(out, study, effort)
    if not path.exists():
        command = f"levelfield run {asked or study} --effort {effort} --runs-dir {shlex.quote(str(out))}"
        raise UserError(f"No runs of {asked or study} at effort {effort} in {out}: start with `{command}`.")
    return read_index(path)


def read(
    out: Path, study: str, effort: str, asked: str = "", *, runs: Mapping[str, Mapping[str, Any]] | None = None
) -> Results:
    """Returns all that has been measured for a study. Raises UserError where nothing was started.

    A run of which some file cannot be read is among the failures, with the reason; the others are whole. Of a log that
    is damaged or missing the curve alone is lost, which is remarked.
    asked: what the command line calls the study, where that is not its name. runs: those that the results are of, run
    id -> `spec.describe(run)`, whatever else is recorded; by default all that are.
    """
    index = started(out, study, effort, asked)
    if runs is not None:
        index = replace(index, runs=runs, trials=trials_of(index, runs))
    rows: list[Row] = []
    ledgers, curves, failures, hits = {}, {}, {}, {}
    lacking: dict[str, list[str]] = {}
    for run_id, spec in index.runs.items():
        where, phases = out / run_id, len(spec["protocol"]["phases"])
        try:
            if complete(where):
                found = measured(where, phases, index.probes.get(run_id))
                log, damaged = sound.curve(where / LOG, phases, begun=phases > 0)
                ledgers[run_id] = found.ledger
                rows += [Row(**row | {"study": study, "effort": effort}) for row in found.rows]
                curves |= {run_id: log} if log else {}
                own, lost = _hits(where, spec)
                hits |= {run_id: own} if own else {}
                gone = sound.CURVELESS if damaged == sound.MISSING else sound.DAMAGED
                for what, lacks in ((gone, damaged), (sound.UNPROBED, found.unprobed), (sound.UNSCORED, lost)):
                    lacking.setdefault(what, []).extend([run_id] if lacks else [])
            elif (where / ERROR).exists():
                failures[run_id] = why_failed(where)
        except UserError as error:
            failures[run_id] = f"{UNREADABLE} {error}"
    return Results(
        rows=rows,
        ledgers=ledgers,
        curves=curves,
        specs=index.runs,
        failures=failures,
        trials=index.trials,
        remarks=[*sound.remarks(lacking)],
        hits=hits,
    )


def _hits(where: Path, spec: Mapping[str, Any]) -> tuple[Hits | None, bool]:
    """Returns which test examples a run has right, None where that is not known; and whether what it kept is lost."""
    with suppress(UserError):
        scores = read_scores(where)
        return (None if scores is None else Hits.of(spec, scores)), False
    return None, True


def without_unbegun(results: Results, out: Path) -> Results:
    """Returns results in which arms of which no run was begun are named apart.

    An arm that was begun keeps all its seeds: one that is missing counts as not finished.
    """
    kept = {arm_of(run_id) for run_id in results.specs if (out / run_id).is_dir()}
    arms = dict.fromkeys(arm_of(run_id) for run_id in results.specs)
    specs = {run_id: spec for run_id, spec in results.specs.items() if arm_of(run_id) in kept}
    return replace(results, specs=specs, unbegun=[arm for arm in arms if arm not in kept])


class Finished(NamedTuple):
    """What a complete run has measured. unprobed: which of its study's probes have left no rows yet."""

    ledger: Any
    rows: list[Row]
    unprobed: list[str]


def measured(where: Path, phases: int | None = None, wanted: Sequence[str] | None = None) -> Finished:
    """Returns what a complete run has measured. phases: how many its protocol has, where that is known.

    wanted: the files of the probes that a study measures it by, as of `probe_files`; None is what it was completed for.
    Raises UserError where one of the files with it is damaged, or is not what the run wrote.
    """
    names, done = _names(where), _done(where)
    sums = done.get("sha256", {})
    ledger = read_json(where / LEDGER, expected=sums.get(LEDGER, ""))
    _check(where / LEDGER, fault(ledger, Ledger))
    _check(where / LEDGER, "it has no phases" if phases not in (None, len(ledger["phases"])) else None)
    if ROWS not in names:
        raise UserError(f"{where / ROWS} is missing: {remedy(where)}.")
    rows = run_rows(where / ROWS, sums.get(ROWS, ""))
    _check(where / ROWS, sound.foreign(rows, where.name))
    _check(where / ROWS, sound.unscored(rows, "val" if where.parent.name == TRIALS else "test"))
    probed, unprobed = probe_files(names, wanted, done.get("probes", ()))
    for name in probed:
        found = run_rows(where / name)
        _check(where / name, sound.foreign(found, where.name))
        _check(where / name, "it is empty" if sums and not (where / name).stat().st_size else None)
        rows += found
    return Finished(ledger, rows, unprobed)


def why_unreadable(where: Path, phases: int) -> str:
    """Returns why what a complete run has measured cannot be read, and what to do; "" where it can. phases: as of
    `measured`."""
    try:
        measured(where, phases)
    except UserError as error:
        return str(error)
    return ""


def _names(where: Path) -> list[str]:
    """Returns the names of all files in a run's folder, in order."""
    try:
        return sorted(os.listdir(where))
    except OSError as error:
        raise unreadable(where, error, remedy(where)) from error


def run_rows(path: Path, expected: str = "") -> list[Row]:
    """Returns the rows in a file of a run. Raises UserError where they are damaged. expected: as of `read_text`."""
    rows = read_rows(path, _advice(path), expected)
    for row in rows:
        _check(path, fault(row, Row) or ((wrong := impossible(row)) and f"it has {wrong}"))
    return rows


def _check(path: Path, wrong: str | None) -> None:
    """Raises UserError where something is wrong."""
    if wrong:
        raise UserError(f"{path} is damaged ({wrong}): {_advice(path)}.")


def _advice(path: Path) -> str:
    """Returns what is advised where a file of a run is damaged: rows of a probe are measured again without training."""
    return remedy(path if path.name.startswith("probe-") else path.parent)
