"""Packs a complete run into a folder that stands by itself, and reads such a folder back, byte for byte.

    pack(Path("runs") / run_id, Path("exported") / run_id)         # weights, spec, ledger, rows, log, a card, a loader
    unpack(Path("exported") / run_id, Path("other_runs"))          # other_runs / run_id, with the same bytes

The list of files in `MANIFEST` holds the SHA-256 of each, so that whoever gets the folder knows that it is whole.
Nothing in it is executed or unpickled here; the loader in it is for people who have torch and not levelfield.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from levelfield.files import atomic, atomic_folder, disk_errors, locked, read_json, remedy, write_json, write_text
from levelfield.runs import share_studies, store
from levelfield.runs.claims import claimed
from levelfield.runs.names import without_hash
from levelfield.runs.results import Described, Record
from levelfield.spec import Row, UserError
from levelfield.spec.contents import checksum
from levelfield.spec.shapes import fault


class Manifest(TypedDict):
    """What the manifest of a folder holds. files: name -> SHA-256. studies: those that the run is of, as of
    `share_studies`; earlier versions wrote none."""

    format: int
    run: str
    files: dict[str, str]
    studies: NotRequired[list[Record]]


MANIFEST = "levelfield-run.json"
FORMAT = 1
KEPT = (store.SPEC, store.LEDGER, store.ROWS, store.LOG, store.WEIGHTS, store.SCORES, store.DONE)
FILE = re.compile(r"probe-[\w.-]+\.jsonl|" + "|".join(map(re.escape, KEPT)))
LOADER = Path(__file__).with_name("load_weights.py")


def pack(where: Path, target: Path) -> list[Path]:
    """Writes the folder `target` of the complete run in `where`, and returns its files. Raises UserError.

    In the folder of an earlier export the files that an export writes are replaced, and those of them that this one
    does not have are removed. Whatever else lies there stays, as in a clone from a hub.
    """
    if not (where / store.SPEC).exists():
        raise store.missing(where.parent, where.name)
    if not store.complete(where):
        raise UserError(f"{where.name} is not complete in {where.parent}: run its study first.")
    if target.is_file():
        raise UserError(f"{target} is a file: give the --folder that the run is written to.")
    if (where / store.WEIGHTS).exists():
        store.checked_weights(where)
    store.read_scores(where)
    page, place = card(where), target.resolve()
    with disk_errors(place.parent, "--folder"), _alone(place):
        filled = place.exists() and any(place.iterdir())
        if filled and not (place / MANIFEST).exists():
            raise UserError(f"{target} holds other things: give another --folder.")
        if not filled:
            with atomic_folder(place) as partial:
                names = _write(where, partial, page)
        else:
            earlier = _listed(place)
            names = _write(where, place, page)
            for name in earlier - set(names):
                (place / name).unlink(missing_ok=True)
    return [target / name for name in sorted(names)]


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Holds a lock on a folder for the block, after waiting for another export into it; the file of the lock goes."""
    lock = place.with_name(f".{place.name}.export")
    with locked(lock, "--folder"):
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no open file
                lock.unlink()


def _write(where: Path, to: Path, page: str) -> list[str]:
    """Writes each file of an export whole or not at all, the manifest last, and returns their names. page: its card."""
    names = [path.name for path in sorted(where.iterdir()) if FILE.fullmatch(path.name)]
    for path in (*(where / name for name in names), LOADER):
        with atomic(to / ("load.py" if path == LOADER else path.name)) as partial:
            shutil.copyfile(path, partial)
    write_text(to / "README.md", page)
    sums = {name: checksum(to / name) for name in names}
    studies = share_studies.records(where)
    write_json(to / MANIFEST, {"format": FORMAT, "run": where.name, "files": sums, "studies": studies})
    return [*names, "load.py", "README.md", MANIFEST]


def _listed(folder: Path) -> set[str]:
    """Returns the names of the run's files that an earlier export wrote; none where its manifest is damaged."""
    with suppress(UserError):
        return set(_manifest(folder)[1])
    return set()


def is_packed(folder: Path) -> bool:
    """Tells whether a folder is one that `pack` writes."""
    return (folder / MANIFEST).is_file()


def described(folder: Path) -> tuple[str, Any]:
    """Returns the name of the run of a packed folder, and its description. Raises UserError for a damaged file."""
    name, _ = _manifest(folder)
    return name, read_json(folder / store.SPEC, "get the folder again")


def studies(folder: Path) -> list[Record]:
    """Returns what is recorded of the run of a packed folder by its studies. Raises UserError for a damaged file."""
    _manifest(folder)
    return read_json(folder / MANIFEST).get("studies", [])


def unpack(folder: Path, runs_dir: Path) -> Path:
    """Copies the run of a packed folder into `runs_dir`, and returns its folder there.

    A run that is there already stays. The records of its studies have it then, too. Raises UserError where the folder
    is not whole or mixes runs, where another process works on the run that is there, and where that has other rows.
    """
    name, sums = _manifest(folder)
    for file, expected in sums.items():
        if not (folder / file).is_file() or checksum(folder / file) != expected:
            raise UserError(f"{folder / file} is missing or has changed since it was exported: get the folder again.")
    if wrong := _foreign(folder, name, sums):
        raise UserError(f"{folder} is not the run {name} ({wrong}): get the folder again.")
    where = runs_dir / name
    with disk_errors(runs_dir, "--runs-dir"):
        runs_dir.mkdir(parents=True, exist_ok=True)
        with locked(runs_dir / f".{name}.import", "--runs-dir"):
            if not store.complete(where):
                _place(folder, where, sums)
            elif checksum(where / store.ROWS) != sums[store.ROWS]:
                raise UserError(f"{where} is there with other rows: import into another --runs-dir.")
        share_studies.add(studies(folder), name, read_json(where / store.SPEC), runs_dir)
    return where


def _place(folder: Path, where: Path, sums: Mapping[str, str]) -> None:
    """Makes the packed files the results of a run, and removes what is left of training it here.

    Raises UserError where another process has the run.
    """
    with claimed(where) as mine:
        assert mine is not None
        staging = mine.staging
        for file in sums:
            shutil.copyfile(folder / file, staging / file)
        mine.commit()  # which moves `done.json` last
        for path in where.iterdir():
            if path.is_file() and path.name not in sums:
                path.unlink()


def _foreign(folder: Path, name: str, files: Mapping[str, str]) -> str | None:
    """Returns, in words, what of a packed run has another name than `name`, its id; None where nothing has."""
    spec: Any = read_json(folder / store.SPEC, "get the folder again")
    try:
        seed, model, protocol = f"-{spec['seed']}", spec["model"].get("name"), spec["protocol"]["name"]
        names = without_hash(name)
        if not names.endswith(seed):
            return f"{store.SPEC} has the seed {spec['seed']}"
        if not names.removesuffix(seed).endswith(f"-{model}-{protocol}" if model else f"-{protocol}"):
            return f"{store.SPEC} is of the protocol {protocol}" + (f" and the model {model}" if model else "")
    except (TypeError, ValueError, LookupError, AttributeError):
        return f"{store.SPEC} describes no run"
    for file in (file for file in files if file.endswith(".jsonl") and file != store.LOG):
        for row in store.run_rows(folder / file):
            if row.get("run") != name:
                return f"{file} has rows of {row.get('run', 'no run')}"
    return None


def _manifest(folder: Path) -> tuple[str, dict[str, str]]:
    """Returns the run's name and the SHA-256 of each file. Raises UserError for a name that leads out of its folder."""
    found: Any = read_json(folder / MANIFEST, "get the folder again")
    if wrong := fault(found, Manifest) or _wrong(found):
        raise UserError(f"{folder / MANIFEST} is damaged ({wrong}): get the folder again.")
    return found["run"], found["files"]


def _wrong(found: Manifest) -> str | None:
    if found["format"] != FORMAT:
        return f"its format is {found['format']}, and this version of levelfield reads {FORMAT}"
    if not re.fullmatch(r"\w[\w.+-]{0,199}", found["run"]):
        return "the name of its run cannot be one"
    if not all(map(FILE.fullmatch, found["files"])):
        return "it lists files that no run has"
    if faulty := share_studies.wrong(found.get("studies", [])):
        return faulty
    missing = {store.SPEC, store.ROWS, store.LEDGER, store.DONE} - found["files"].keys()
    return f"it lists no {min(missing)}" if missing else None


def card(where: Path) -> str:
    """Returns the page of a run, in Markdown with the head that model hubs read: scores, cost and how to use it.

    Raises UserError where a file of the run is damaged.
    """
    path, rows = where / store.SPEC, store.run_rows(where / store.ROWS)
    spec, ledger = read_json(path, expected=store.seal(where, store.SPEC)), store.measured(where).ledger
    if wrong := fault(spec, Described):
        raise UserError(f"{path} is damaged ({wrong}): {remedy(where)}.")
    lines = [
        "---",
        "library_name: levelfield",
        "tags: [levelfield, long-sequences]",
        "---",
        "",
        f"# {where.name}",
        "",
        f"A run of levelfield {ledger.get('version', '')}: a model, trained and scored on a task by a stated protocol.",
        "",
        *_table(("of", "split", "metric", "value", "n"), list(_scores(rows))),
        "",
        *_table(("what it cost", ""), [(key, _number(ledger[key])) for key in COSTS if ledger.get(key) is not None]),
        "",
        "`spec.json` says what was trained, field by field; its id hashes all of it. `rows.jsonl` has every number,",
        "`ledger.json` the whole cost, `log.jsonl` the curve of training, `scores.npy` the score of each test example.",
        "",
        "    levelfield import FOLDER                   # into runs/; says which report shows it",
        "",
    ]
    if (where / store.WEIGHTS).exists():
        lines += ["With torch alone, `load.py` reads the weights:", "", "    from load import weights", ""]
    return "\n".join([*lines, f"The model: `{json.dumps(spec['model'], sort_keys=True)}`", ""])


COSTS = ("parameters", "steps", "examples", "tokens", "flops", "wall_s", "tuning_trials", "device", "numerics", "torch")


def _scores(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    """Yields the lines of the table: scores of the run, and those of rules that learn no sequence model."""
    for row in rows:
        if "at" not in row and "value" in row:
            of = row.get("model", "") if row.get("protocol") == "none" else "this model"
            numbers = f"{row['value']:.4g}", str(row.get("n", ""))
            yield of.replace("_", " "), row.get("split", ""), row.get("metric", ""), *numbers


def _number(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
