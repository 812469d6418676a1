"""Packs a complete run into a folder that stands by itself, and reads such a folder back, byte for byte.

    pack(Path("runs") / run_id, Path("exported") / run_id)         # weights, spec, ledger, rows, log, a card, a loader
    unpack(Path("exported") / run_id, Path("other_runs"))          # other_runs / run_id, with the same bytes

The list of files in `MANIFEST` holds the SHA-256 of each, so that whoever gets the folder knows that it is whole.
Nothing in it is executed or unpickled here; the loader in it is for people who have torch and not levelfield.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from levelfield.files import atomic, atomic_folder, disk_errors, locked, read_json, write_json, write_text
from levelfield.runs import share_studies, store
from levelfield.runs.claims import claimed
from levelfield.runs.names import without_hash
from levelfield.runs.results import Record
from levelfield.runs.share_card import CODE, NOTHING, Beside, card
from levelfield.spec import UserError
from levelfield.spec.contents import checksum
from levelfield.spec.shapes import fault


class Manifest(TypedDict):
    """What the manifest of a folder holds. files: name -> SHA-256. studies: those that the run is of, as of
    `share_studies`. code: names of files of its user's code, which nothing reads back. Earlier versions wrote neither.
    """

    format: int
    run: str
    files: dict[str, str]
    studies: NotRequired[list[Record]]
    code: NotRequired[list[str]]


MANIFEST = "levelfield-run.json"
FORMAT = 1
KEPT = (store.SPEC, store.LEDGER, store.ROWS, store.LOG, store.WEIGHTS, store.SCORES, store.DONE)
FILE = re.compile(r"probe-[\w.-]+\.jsonl|" + "|".join(map(re.escape, KEPT)))
LOADER = Path(__file__).with_name("load_weights.py")


def pack(where: Path, target: Path, beside: Beside = NOTHING) -> list[Path]:
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
    place = target.resolve()
    page = card(where, place.name, beside)
    with disk_errors(place.parent, "--folder"), _alone(place):
        if not place.exists():
            with atomic_folder(place) as partial:
                names = _write(where, partial, page, beside.code)
        else:  # and stays, as it may be the current one
            if any(place.iterdir()) and not (place / MANIFEST).exists():
                raise UserError(f"{target} holds other things: give another --folder.")
            earlier = _listed(place)
            names = _write(where, place, page, beside.code)
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


def _write(where: Path, to: Path, page: str, code: Mapping[str, bytes]) -> list[str]:
    """Writes each file of an export whole or not at all, the manifest last, and returns their names. page: its card.
    code: files of the user's own by their names below CODE."""
    names = [path.name for path in sorted(where.iterdir()) if FILE.fullmatch(path.name)]
    for path in (*(where / name for name in names), LOADER):
        with atomic(to / ("load.py" if path == LOADER else path.name)) as partial:
            shutil.copyfile(path, partial)
    write_text(to / "README.md", page)
    sums = {name: checksum(to / name) for name in names}
    own = [f"{CODE}/{name}" for name in code]
    for name, content in zip(own, code.values(), strict=True):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        with atomic(to / name) as partial:
            partial.write_bytes(content)
    studies = share_studies.records(where)
    write_json(to / MANIFEST, {"format": FORMAT, "run": where.name, "files": sums, "studies": studies, "code": own})
    return [*names, *own, "load.py", "README.md", MANIFEST]


def _listed(folder: Path) -> set[str]:
    """Returns the names of the run's files that an earlier export wrote; none where its manifest is damaged."""
    with suppress(UserError):
        return {*_manifest(folder)[1], *read_json(folder / MANIFEST).get("code", [])}
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
    if any(Path(name).parts[:1] != (CODE,) or ".." in Path(name).parts for name in found.get("code", [])):
        return "it lists code that lies elsewhere"
    if faulty := share_studies.wrong(found.get("studies", [])):
        return faulty
    missing = {store.SPEC, store.ROWS, store.LEDGER, store.DONE} - found["files"].keys()
    return f"it lists no {min(missing)}" if missing else None
