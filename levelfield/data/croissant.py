"""Describes prepared data in MLCommons' Croissant 1.1, the JSON-LD that catalogues of datasets and their tools read.

    about = metadata(task, Path("data/listops-3f2a91c0b4"), Publication("https://example.org/listops", "2026-11-23"))
    about["distribution"][0]["sha256"]        # of train.x.npy
    write(task, Path("data/listops-3f2a91c0b4"))        # croissant.json, beside the arrays

Whoever is handed a folder of arrays can see from it what they are: splits and their sizes, what each array holds, its
type, shape and hash, the licence, and the settings that they were made with, the generator's version and seed among
them. All of it is taken from the arrays and the task, so it says the same wherever the data were prepared, except for
what only whoever publishes them knows: the address and the date. The standard requires a creator and a date. Each is
left out where it is not known, rather than made up; its reader, mlcroissant, warns of a missing date and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from importlib import metadata as installed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from levelfield.data import prepared
from levelfield.files import disk_errors, write_text
from levelfield.spec import SPLITS, Examples, SplitName, Task, UserError, describe

FILE = "croissant.json"
CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
OURS = "https://spdx.org/licenses/Apache-2.0"  # of levelfield, and so of what only its code has made
UNKNOWN = "not stated"
CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "description": {"@container": "@language"},
    **{
        word: f"cr:{word}"
        for word in (
            *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject"),
            *("fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5"),
            *("parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate"),
            *("separator", "source", "subField", "transform"),
        )
    },
}
"""The vocabulary as the standard gives it, unused words among them: readers compare it."""

SPLIT_KINDS = {"train": "cr:TrainingSplit", "val": "cr:ValidationSplit", "test": "cr:TestSplit"}
MEANINGS = {
    "x": "the steps of all sequences of the split, end to end",
    "offsets": "where each sequence begins in x, and last where x ends",
    "y": "the targets: of each example, or of each step of x where the task labels steps",
}


class Publication(NamedTuple):
    """What whoever publishes data knows. url: "" for levelfield's own address. date: as 2026-11-23; "" for none."""

    url: str = ""
    date: str = ""

    def check(self) -> None:
        """Raises UserError for a date that is none."""
        try:
            if self.date:
                date.fromisoformat(self.date)
        except ValueError as error:
            raise UserError(f"--published {self.date} is no date: give one such as 2026-11-23.") from error


NOT_YET = Publication()


def write(task: Task, at: Path, published: Publication = NOT_YET) -> Path:
    """Writes the description into a prepared folder; returns its file. Raises UserError as `metadata` does, and for a
    folder that cannot be written."""
    about = metadata(task, at, published)
    with disk_errors(at, "--data"):
        write_text(at / FILE, json.dumps(about, indent=1) + "\n")
    return at / FILE


def metadata(task: Task, at: Path, published: Publication = NOT_YET) -> dict[str, Any]:
    """Returns the description of a prepared folder. Raises UserError for a damaged manifest, and for a wrong date."""
    published.check()
    known, splits = prepared.manifest(at), prepared.read(at)
    licensed = task.licence not in ("", OURS)  # by others, whose data it is
    generated = not (task.archives or known.get("files") or task.reads or licensed)
    ours = generated and type(task).__module__.startswith("levelfield.tasks.")
    arrays = {name: array for split in SPLITS for name, array in prepared.columns(split, splits[split])}
    return {
        "@context": dict(CONTEXT),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": at.name,
        "description": " ".join(_sentences(task, generated, known.get("notes", ()))),
        "license": task.licence or (OURS if ours else UNKNOWN),
        "citeAs": " ".join(task.source.split()),
        **({"creator": {"@type": "sc:Organization", "name": "levelfield", "url": home()}} if ours else {}),
        "url": published.url or home(),
        "version": f"{task.version}.0.0",
        **({"datePublished": published.date} if published.date else {}),
        "distribution": [_file(at / f"{name}.npy", of["sha256"]) for name, of in known["arrays"].items()],
        "recordSet": [_splits(splits), _settings(task), *(_array(name, array) for name, array in arrays.items())],
    }


def home() -> str:
    """Returns the address of levelfield's repository, "" where the package is not installed."""
    try:
        addresses = installed.metadata("levelfield").get_all("Project-URL") or []
    except installed.PackageNotFoundError:
        return ""
    return dict(line.split(", ", 1) for line in addresses).get("Repository", "")


def _sentences(task: Task, generated: bool, notes: Sequence[str]) -> Iterator[str]:
    """Yields what a reader should know first."""
    made = "generated" if generated else "prepared"
    yield f"The task {task.name} as arrays of NumPy, {made} by levelfield, of at most {task.max_length:,} steps."
    yield f"Source: {' '.join(task.source.split()).rstrip('.')}."
    yield f"Splits: {task.split_rule.rstrip('.')}."
    yield from notes


def _file(path: Path, sha256: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "contentUrl": path.name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": "application/x-npy",
        "sha256": sha256,
    }


def _splits(splits: Mapping[SplitName, Examples]) -> dict[str, Any]:
    """Returns the table of splits: what each is to a model, and how many examples it has."""
    rows = [
        {"splits/name": split, "splits/kind": SPLIT_KINDS[split], "splits/examples": len(splits[split])}
        for split in SPLITS
    ]
    return _table("splits", "cr:Split", {"name": "sc:Text", "kind": "sc:URL", "examples": "cr:Int64"}, rows)


def _settings(task: Task) -> dict[str, Any]:
    """Returns the table of settings: with the version of the generator, they give the same arrays anywhere."""
    rows = [{"settings/name": name, "settings/value": json.dumps(value)} for name, value in describe(task).items()]
    return _table("settings", "", {"name": "sc:Text", "value": "sc:Text"}, rows)


def _table(name: str, kind: str, columns: Mapping[str, str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a table whose rows stand in the description itself."""
    fields = [
        {"@type": "cr:Field", "@id": f"{name}/{column}", "name": column, "dataType": of}
        for column, of in columns.items()
    ]
    known = {"dataType": kind} if kind else {}
    return {"@type": "cr:RecordSet", "@id": name, "name": name, **known, "field": fields, "data": rows}


def _array(name: str, array: np.ndarray) -> dict[str, Any]:
    """Returns a set of one record: the array. (Several files in one set would have to be joined by a key.)"""
    split, _, column = name.partition(".")
    meaning = MEANINGS.get(column, f"the column {column.removeprefix('slices.')} to slice scores by, of each example")
    values = {
        "@type": "cr:Field",
        "@id": f"{name}/values",
        "name": "values",
        "description": meaning,
        "dataType": data_type(array.dtype),
        "isArray": True,
        "arrayShape": ",".join(map(str, array.shape)),
        "source": {"fileObject": {"@id": f"{name}.npy"}, "extract": {"fileProperty": "content"}},
    }
    about = f"{split}: {meaning}."
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "description": about, "field": values}


def data_type(dtype: np.dtype) -> str:
    """Returns the standard's word for a type of NumPy: "cr:UInt8" for uint8, and "sc:Text" for text."""
    for begins, word in (("uint", "UInt"), ("int", "Int"), ("float", "Float")):
        if dtype.name.startswith(begins):
            return f"cr:{word}{dtype.itemsize * 8}"
    return "sc:Boolean" if dtype.kind == "b" else "sc:Text"
