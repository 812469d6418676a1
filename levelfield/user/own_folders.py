"""Finds the splits of a Hugging Face dataset in a folder: as `datasets` saves it, and as the hub lays it out.

    saved/state.json, data-00000-of-00001.arrow              Dataset.save_to_disk: one part, whose splits are carved
    saved/dataset_dict.json, train/, test/                   DatasetDict.save_to_disk
    reviews/data/train-00000-of-00002.parquet, ...           a dataset that was downloaded from the hub
    reviews/default/train/0000.parquet, ...                  the same, as the hub converts it

Nothing of it needs the package `datasets`: what is read are names of files and two small JSON files.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from levelfield.files import read_json
from levelfield.spec import UserError

SPLIT_NAMES = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
"""What files and cells call a split, and its name here."""

ORDER = ("test", "train", "val")  # of the contents that identify a dataset: a file is val after train, test before it
SAVED = ("dataset_dict.json", "state.json")
"""What save_to_disk writes beside the data, and says which files these are."""

DEEPEST = 3  # folders between that of the dataset and a file: a configuration, a split, and "data"
AGAIN = "save it again with save_to_disk"


class Shard(NamedTuple):
    """One file of a dataset. split: "train", "val", "test", or "" where all rows are of no named split."""

    split: str
    file: Path


class Dataset(NamedTuple):
    """The files of a dataset, those of one split beside each other. unused: names of its splits that are none of ours,
    such as `unsupervised`, whose files are not read."""

    shards: tuple[Shard, ...]
    unused: tuple[str, ...] = ()


class _Named(NamedTuple):
    """What the place of a file says: its configuration and that one's folder, its split, and which of how many files of
    that it is."""

    configuration: str
    folder: Path
    split: str
    number: int
    of: int
    file: Path


def found(path: Path, endings: Collection[str]) -> Dataset | None:
    """Returns the dataset of a folder; None where the folder has the form of none.

    endings: of tables that can be read, such as ".parquet". Raises UserError where files are missing, or where it
    cannot be told which of them are meant.
    """
    if (path / "dataset_dict.json").is_file():
        return _saved_dict(path)
    if (path / "state.json").is_file():
        return Dataset(tuple(Shard("", file) for file in _saved(path)))
    return _laid_out(path, endings)


def _saved_dict(path: Path) -> Dataset:
    splits = _fields(path / "dataset_dict.json").get("splits")
    names = [str(name) for name in splits] if isinstance(splits, list) else []
    return _ours(path, {name: _saved(path / name) for name in names})


def _saved(folder: Path) -> list[Path]:
    """Returns the Arrow files of one saved split, in their order."""
    state = _fields(folder / "state.json")
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise UserError(f"{folder} holds a selection of rows as an old version of datasets saved it: {AGAIN}.")
    if state.get("_data_files") == []:
        raise UserError(f"{folder} is a dataset of no rows: save it with rows, or without a split that has none.")
    files = [folder / str(entry.get("filename")) for entry in state.get("_data_files") or () if isinstance(entry, dict)]
    if not files:
        raise UserError(f"{folder / 'state.json'} names no files of data: {AGAIN}.")
    if lost := next((file for file in files if not file.is_file() or file.parent != folder), None):
        raise UserError(f"{folder / 'state.json'} names {lost.name}, which is not there: copy the whole folder.")
    return files


def _fields(path: Path) -> dict[str, Any]:
    given = read_json(path, AGAIN)
    return given if isinstance(given, dict) else {}


def _laid_out(path: Path, endings: Collection[str]) -> Dataset | None:
    """Returns the dataset of a folder as the hub has it, where splits are told by the names of files or folders."""
    named = [found for file in _tables(path, endings) if (found := _named(path, file)) is not None]
    if not named:
        return None
    configurations = sorted({each.configuration for each in named})
    if len(configurations) > 1:
        said = ", ".join(each or "the folder itself" for each in configurations)
        one = next(each.folder for each in named if each.configuration == configurations[-1])
        raise UserError(f"{path} has several configurations ({said}): give the folder of one of them, such as {one}.")
    if len(kinds := sorted({each.file.suffix.lower() for each in named})) > 1:
        raise UserError(f"{path} has its data as {' and as '.join(kinds)}: leave one kind of them there.")
    by_split: dict[str, list[_Named]] = {}
    for each in sorted(named, key=lambda each: (each.number, each.file)):
        by_split.setdefault(each.split, []).append(each)
    for split, shards in by_split.items():
        if lacking := sorted(set(range(shards[0].of)) - {each.number for each in shards}):
            raise UserError(
                f"{path} lacks {len(lacking)} of the {shards[0].of} files of the split {split}: download it whole."
            )
    return _ours(path, {split: [each.file for each in shards] for split, shards in by_split.items()})


def _tables(path: Path, endings: Collection[str]) -> list[Path]:
    return [each for each in files(path) if each.suffix.lower() in endings]


def files(path: Path) -> list[Path]:
    """Returns the files in a folder, and in those below it that are not hidden, as `.git` and `.cache` are."""
    found, folders = list[Path](), [path]
    for _ in range(DEEPEST + 1):
        inner = [each for folder in folders for each in sorted(folder.iterdir()) if not each.name.startswith(".")]
        found += [each for each in inner if each.is_file()]
        folders = [each for each in inner if each.is_dir()]
    return found


def _named(root: Path, file: Path) -> _Named | None:
    """Returns what the place of a file says; None where it names no split."""
    above = list(file.relative_to(root).parts[:-1])
    sharded = re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})", file.stem)
    number, of = (int(sharded[2]), int(sharded[3])) if sharded else (0, 0)
    split = sharded[1] if sharded else file.stem
    if not sharded and split.lower() not in SPLIT_NAMES:
        if not above or above[-1].lower() not in SPLIT_NAMES:
            return None
        split = above.pop()
        number = int(file.stem) if file.stem.isdecimal() else 0
    configuration = "/".join(each for each in above if each != "data")
    return _Named(configuration, root.joinpath(*above), split, number, of=of, file=file)


def _ours(path: Path, by_split: dict[str, list[Path]]) -> Dataset:
    """Returns the dataset without splits that are none of ours; one such alone is data whose splits are carved."""
    names = {name: SPLIT_NAMES.get(name.lower(), "") for name in by_split}
    if len(names) == 1:
        return Dataset(tuple(Shard(names[name], file) for name, files in by_split.items() for file in files))
    if not any(names.values()):
        raise UserError(f"{path} has the splits {', '.join(names)}: call one of them train.")
    chosen: dict[str, str] = {}
    for name, split in names.items():
        if split and (before := chosen.setdefault(split, name)) != name:
            raise UserError(f"{path} has the splits {before} and {name}, both of which are {split}: leave one there.")
    shards = (Shard(split, file) for split in ORDER if split in chosen for file in by_split[chosen[split]])
    return Dataset(tuple(shards), tuple(name for name, split in names.items() if not split))
