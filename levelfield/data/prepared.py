"""Keeps prepared data: memory-mapped arrays with a manifest, made once, atomically, and verified on demand.

    data/listops-3f2a91c0b4/
        manifest.json            what it is, counts, generator version, SHA-256 of every array
        train.x.npy train.offsets.npy train.y.npy train.slices.root.npy ...

The folder's name hashes the task's settings and version, so a changed setting is another folder. It is written under a
temporary name and renamed when complete, so what was killed half-way is never read.
"""

from __future__ import annotations

import json
import os
import shlex
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Required, TypedDict

import numpy as np

from levelfield.data import conformance
from levelfield.files import atomic_folder, disk_errors, locked, read_json, remedy, save_array, unreadable, write_text
from levelfield.spec import (
    SPLITS,
    Examples,
    ForeignWeights,
    Progress,
    SplitName,
    Task,
    UserError,
    describe,
    digest,
    no_progress,
)
from levelfield.spec.contents import checksum
from levelfield.spec.interrupt import raise_interrupt
from levelfield.spec.shapes import fault

MANIFEST = "manifest.json"
SOURCES = "sources.json"  # task name -> folder of official files it was last prepared from
REQUIRED = tuple(f"{split}.{name}" for split in SPLITS for name in ("x", "offsets", "y"))
_SOUND: set[tuple[str, int, int, int, str]] = set()  # files of arrays that this process has hashed
FORM = ("documents", "stepwise")  # fields of Examples that a manifest holds; older ones lack them and mean the defaults


class Array(TypedDict):
    """What a manifest says of an array."""

    sha256: str


class Manifest(TypedDict, total=False):
    """What a manifest holds, as far as the code relies on it."""

    arrays: Required[dict[str, Array]]
    settings: dict[str, Any]
    documents: dict[str, int]
    stepwise: dict[str, bool]
    notes: list[str]


def folder(task: Task, root: Path) -> Path:
    return root / f"{task.name}-{digest(task)[:10]}"


def is_there(task: Task, root: Path) -> bool:
    """Tells whether the task's arrays have been made."""
    return (folder(task, root) / MANIFEST).exists()


def prepare(task: Task, root: Path, sources: Path | None = None, progress: Progress = no_progress) -> Path:
    """Builds the task's arrays unless they are there already; returns their folder.

    The folder of official files is remembered for the task's name, so that its other settings find them by themselves.
    Safe to call from several processes at once: one builds, the others wait. Raises UserError for a task that lacks its
    name, version, source or rule of splits, on a full disk, for official files that cannot be read, and where the
    arrays are there but made from another folder than `sources`, or one of them is lost or cut short; `read` and
    `verify` look at what is in them too.
    """
    conformance.check_members(task)
    target = folder(task, root)
    if is_there(task, root):
        _require_whole(target)
        return _made_from(target, sources)
    with disk_errors(root, "--data"):
        root.mkdir(parents=True, exist_ok=True)
    with locked(root / f".{target.name}.lock", "--data"):
        if not is_there(task, root):
            known = remembered(task, root)
            files = sources or known
            splits, notes = _build(task, files, progress, lambda other: _kept(other, root, sources))
            with disk_errors(root, "--data"):
                _write(task, target, splits, {"notes": notes, "files": str(files.resolve()) if files else ""})
                if sources is not None:
                    _remember(root, task.name, sources)
    return target


def _require_whole(at: Path) -> None:
    """Raises UserError where an array is not there as it was made, as far as its size and head tell."""
    for name, about in manifest(at)["arrays"].items():
        shape = list(_array(at, name).shape)
        if about.get("shape", shape) != shape:
            raise UserError(f"{at / name}.npy cannot be read (it has changed since it was made): {remedy(at)}.")


def _made_from(target: Path, sources: Path | None) -> Path:
    """The prepared folder. Raises UserError where it is known to have been made from other files."""
    made = manifest(target).get("files") if sources is not None else None
    if sources is not None and isinstance(made, str) and made and made != str(sources.resolve()):
        raise UserError(f"{target} was made from {made}: remove it to prepare it from {sources}, or leave out --from.")
    return target


def wants_files(task: Task, root: Path) -> bool:
    """Tells whether preparing the task takes official files that have to be downloaded.

    A folder of files that was given once, with any setting of the task, is enough.
    """
    if not task.archives or is_there(task, root):
        return False
    known = remembered(task, root)
    return known is None or not known.exists() or known == downloads(task, root).resolve()


def lacks_files(task: Task, root: Path) -> bool:
    """Tells whether a run of the task would find neither its arrays nor official files to build them from."""
    if not task.archives or is_there(task, root):
        return False
    known = remembered(task, root)
    return known is None or not known.exists()


def command(name: str, root: Path) -> str:
    """Returns the command that prepares what is named in a folder, as one types it."""
    place = ["--data", str(root)] if root != Path("data") else []
    return shlex.join(["levelfield", "data", "prepare", name, *place])


def downloads(reader: Task | ForeignWeights, root: Path) -> Path:
    """The folder into which the official files of a task, or those of weights that others trained, are downloaded."""
    return root / "downloads" / reader.name


def absent(weights: ForeignWeights, root: Path) -> list[str]:
    """Names the files of the weights that are not in their folder."""
    folder = downloads(weights, root)
    return [name for name, _ in weights.files if not (folder / name).is_file()]


def remembered(task: Task, root: Path) -> Path | None:
    """The folder of official files that some setting of this task was last prepared from.

    Raises UserError where the file that records it is damaged.
    """
    found = _remembered(root).get(task.name)
    return Path(found) if found else None


def load(
    task: Task, root: Path, sources: Path | None = None, progress: Progress = no_progress
) -> dict[SplitName, Examples]:
    """The three splits, memory-mapped; prepares them first where they are missing.

    Where others keep `root` and it cannot be written to, what is missing is built and kept nowhere: a study's tasks are
    there, but perhaps not the longer ones that its probes ask for.
    """
    if root.is_dir() and not os.access(root, os.W_OK) and not is_there(task, root):
        return dict(build(task, sources or remembered(task, root), progress))
    return read(prepare(task, root, sources, progress))


def read(at: Path) -> dict[SplitName, Examples]:
    """The three splits of a prepared folder, memory-mapped. Raises UserError where it is damaged.

    Every array is hashed when a process first reads it, and again only if its file has changed since: training on other
    bytes than were prepared means nothing, and damaged offsets can make training hang.
    """
    found = manifest(at)
    for name, array in found["arrays"].items():
        path = at / f"{name}.npy"
        try:
            now = path.stat()
            known = (str(path.resolve()), now.st_ino, now.st_size, now.st_mtime_ns, array["sha256"])
            if known not in _SOUND and checksum(path) != array["sha256"]:
                raise UserError(f"{path} cannot be read (it has changed since it was made): {remedy(at)}.")
        except OSError as error:
            raise unreadable(path, error, remedy(at)) from error
        _SOUND.add(known)
    return {split: _open(at, split, found) for split in SPLITS}


def verify(at: Path) -> list[str]:
    """What is wrong with a prepared folder, one sentence each; empty when every array has its recorded SHA-256."""
    if not (at / MANIFEST).exists():
        return [f"{at.name} has no manifest: remove the folder and prepare it again."]
    faults = []
    try:
        arrays = manifest(at)["arrays"]
    except UserError as error:
        return [str(error)]
    for name, expected in arrays.items():
        path = at / f"{name}.npy"
        if not path.is_file():
            faults.append(f"{path.name} is missing from {at.name}: remove the folder and prepare it again.")
        elif checksum(path) != expected["sha256"]:
            faults.append(f"{path.name} in {at.name} has changed on disk: remove the folder and prepare it again.")
    return faults


def build(task: Task, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
    """Returns the task's splits, checked and kept nowhere. Raises UserError for whatever is wrong with them."""
    return _build(task, sources, progress)[0]


def _kept(task: Task, root: Path, sources: Path | None) -> Mapping[SplitName, Examples] | None:
    return read(prepare(task, root, sources)) if is_there(task, root) else None


def _build(
    task: Task, sources: Path | None, progress: Progress, kept: Callable[[Task], Any] = lambda task: None
) -> tuple[Mapping[SplitName, Examples], list[str]]:
    """The splits, and the warnings given while they were built, which name known errors of the official files."""
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", UserWarning)
            splits = task.derived(kept) or task.build(sources, progress)
    except (PermissionError, NotADirectoryError, IsADirectoryError, FileNotFoundError) as error:
        if sources is None:
            raise
        at = error.filename or sources
        raise UserError(f"Cannot read {at} ({error.strerror}): give another --from folder.") from error
    except UserError:
        raise
    except Exception as error:  # whatever a user's own task raises
        raise_interrupt(error)
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = " ".join(str(error).split()) or "no message"
        where = f"{place.filename}, line {place.lineno}"
        raise UserError(f"Task {task.name} cannot be built, {type(error).__name__} in {where}: {what}") from error
    conformance.check(task, splits)
    for warning in heard:
        warnings.warn(warning.message, stacklevel=3)
    notes = [str(w.message) for w in heard if issubclass(w.category, UserWarning)]
    return splits, list(dict.fromkeys(notes))


def _write(task: Task, target: Path, splits: Mapping[SplitName, Examples], more: Mapping[str, Any]) -> None:
    with atomic_folder(target) as partial:
        arrays: dict[str, Any] = {}
        for split in SPLITS:
            for name, array in columns(split, splits[split]):
                path = partial / f"{name}.npy"
                save_array(path, array)
                arrays[name] = {"sha256": checksum(path), "shape": list(array.shape), "dtype": str(array.dtype)}
        about = {"task": task.name, "settings": describe(task), "source": task.source, "split_rule": task.split_rule}
        about |= {"counts": {split: len(splits[split]) for split in SPLITS}, **more}
        about |= {name: {split: getattr(splits[split], name) for split in SPLITS} for name in FORM}
        (partial / MANIFEST).write_text(json.dumps(about | {"arrays": arrays}, indent=1))


def _remembered(root: Path) -> dict[str, str]:
    path = root / SOURCES
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
        if isinstance(found, dict) and all(isinstance(folder, str) for folder in found.values()):
            return found
        reason = "it must map names of tasks to folders"
    except (ValueError, OSError) as error:
        reason = str(error)
    raise UserError(f"{path} is damaged ({reason}): remove it and name the folder of official files with --from again.")


def _remember(root: Path, name: str, sources: Path) -> None:
    with locked(root / f".{SOURCES}.lock", "--data"):  # which other tasks read and write too
        write_text(root / SOURCES, json.dumps(_remembered(root) | {name: str(sources.resolve())}, indent=1))


def manifest(at: Path) -> Any:
    """What `prepare` wrote beside the arrays. Raises UserError where it is damaged."""
    found = read_json(at / MANIFEST)
    wrong = fault(found, Manifest)
    lacking = [] if wrong else [name for name in REQUIRED if name not in found["arrays"]]
    if wrong or lacking:
        reason = wrong or f"it lacks {', '.join(lacking)}"
        raise UserError(f"{at / MANIFEST} is damaged ({reason}): {remedy(at)}.")
    return found


def columns(split: str, examples: Examples) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the arrays of a split with the names that they are kept under, such as train.x and train.slices.root."""
    yield f"{split}.x", examples.x
    yield f"{split}.offsets", examples.offsets
    yield f"{split}.y", examples.y
    for name, column in examples.slices.items():
        yield f"{split}.slices.{name}", column


def _array(at: Path, name: str) -> np.ndarray:
    """Returns an array of a prepared folder, memory-mapped. Raises UserError where it is lost or cut short."""
    try:
        return np.load(at / f"{name}.npy", mmap_mode="r")
    except OSError as error:
        raise unreadable(at / f"{name}.npy", error, remedy(at)) from error
    except (ValueError, EOFError) as error:
        raise UserError(f"{at / name}.npy cannot be read ({error}): {remedy(at)}.") from error


def _open(at: Path, split: SplitName, about: Mapping[str, Any]) -> Examples:
    prefix = f"{split}.slices."
    slices = {name.removeprefix(prefix): _array(at, name) for name in about["arrays"] if name.startswith(prefix)}
    form = {name: about[name][split] for name in FORM if name in about}
    return Examples(_array(at, f"{split}.x"), _array(at, f"{split}.offsets"), _array(at, f"{split}.y"), slices, **form)
