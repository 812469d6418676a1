"""Reads a user's data files into columns of cells: CSV, TSV, JSON lines, Parquet, Arrow, and folders.

    read(Path("reviews.csv"))           # [Part("", {"body": ["good", ...], "stars": ["5", ...]}, skipped=0)]
    read(Path("folder"))                # train.csv and test.csv in it: [Part("train", ...), Part("test", ...)]
    read(Path("saved"))                 # a Hugging Face dataset: `own_folders` says which of its files are read

A folder may also hold numpy arrays. An empty cell is "" or None, whichever the format has. What cannot be read raises
UserError, in one sentence with the line and how to mend it. CSV and JSON are read by the standard library, Parquet by
DuckDB, which is here for rows, and Arrow by pyarrow, which whoever has such files has too.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from levelfield.files import unreadable
from levelfield.spec import UserError
from levelfield.user import own_arrow, own_folders, own_hub, own_kinds
from levelfield.user.own_encoding import encoding, has_zeros, no_text
from levelfield.user.own_folders import SPLIT_NAMES

Columns = Mapping[str, list[Any]]
Classes = Mapping[str, tuple[str, ...]]
NUMPY = b"\x93NUMPY"  # what an array that NumPy saved begins with
ZONED = "TIMESTAMP WITH TIME ZONE"  # as DuckDB calls it
LFS = b"version https://git-lfs"  # what a file begins with that git has not downloaded


@dataclass(frozen=True)
class Part:
    """The cells of one file, or the arrays of one folder.

    split: "train", "val" or "test" where the name of the file says so, else "". columns: name -> a cell for each row.
    skipped: rows that were left out because they are broken. classes: column of numbers -> the names of its classes,
    where the file has them.
    """

    split: str
    columns: Columns
    skipped: int = 0
    classes: Classes = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()), []))


def on_hub(text: str) -> own_hub.Name | None:
    """Returns the dataset of the Hugging Face hub that text names; None for what is there, and where it cannot be."""
    return own_hub.parsed(text, READERS)


def is_data(text: str) -> bool:
    """Tells whether text is the path of something that `read` takes, by its ending, a folder that is there, or has the
    form of the name of a dataset on the Hugging Face hub."""
    path = Path(text)
    there = path.suffix.lower() in READERS or (("/" in text or "." in text) and path.is_dir())
    return there or on_hub(text) is not None


def require_known(path: Path) -> None:
    """Raises UserError for a file that is there but is no Python file and none that `read` takes by its ending."""
    if path.is_file() and path.suffix.lower() not in (".py", *READERS):
        raise own_kinds.other_kind(path, tuple(READERS))


def not_there(name: str) -> UserError:
    """Returns the error for a path at which nothing is; a name on the hub says no columns where it comes to this."""
    hub = f", or OwnData({name!r}, text=..., label=...) for a dataset of the Hugging Face hub" if on_hub(name) else ""
    return UserError(f"There is no file or folder {name}: give the path of your data{hub}.")


def pinned(path: str) -> str:
    """Returns the name of a dataset on the Hugging Face hub with the commit that its files are of, after a download if
    needed; any other path as it is."""
    name = on_hub(path)
    return path if name is None else f"{name.place}@{own_hub.dataset(name, _located, tuple(READERS)).commit}"


def files_of(path: Path) -> tuple[Path, ...]:
    """Returns the files that `read` reads, in a fixed order.

    Raises UserError where there is nothing to read, or where it cannot be told which files are meant.
    """
    return tuple(each.file for each in _located(path).shards)


def _located(path: Path) -> own_folders.Dataset:
    if path.is_file():
        if path.suffix.lower() not in READERS:
            raise own_kinds.other_kind(path, tuple(READERS))
        return own_folders.Dataset((own_folders.Shard("", path),))
    if (name := on_hub(path.as_posix())) is not None:
        return own_hub.dataset(name, _located, tuple(READERS)).files
    if not path.is_dir():
        raise not_there(str(path))
    arrays = [file for folder in (path, *_split_folders(path)) for file in sorted(folder.glob("*.npy"))]
    tables = sorted(file for file in path.iterdir() if file.suffix.lower() in READERS and file.is_file())
    named = [file for file in tables if file.stem.lower() in SPLIT_NAMES]
    splits = [SPLIT_NAMES[file.stem.lower()] for file in named]
    if twice := next((split for split in splits if splits.count(split) > 1), ""):
        raise UserError(f"{path} has several files for the split {twice}: leave one of them there.")
    if arrays and named:
        raise UserError(f"{path} holds arrays and tables: leave one kind of them there.")
    if arrays and (not tables or any(file.stem == "x" for file in arrays)):
        above = {file: file.parent.name.lower() if file.parent != path else "" for file in arrays}
        return own_folders.Dataset(tuple(own_folders.Shard(SPLIT_NAMES.get(above[f], ""), f) for f in arrays))
    if named:
        return own_folders.Dataset(tuple(map(own_folders.Shard, splits, named)))
    if (dataset := own_folders.found(path, READERS)) is not None:
        return dataset
    if not own_folders.files(path):
        raise UserError(f"{path} holds no files: put train.csv, or x.npy and y.npy, there, or give another folder.")
    more = f"such as {tables[0]}" if tables else f"which ends in {', '.join(READERS)}"
    raise UserError(
        f"{path} has no train.csv, nor x.npy and y.npy: name its files so, or give the file itself, {more}."
    )


def _split_folders(path: Path) -> list[Path]:
    return sorted(folder for folder in path.iterdir() if folder.is_dir() and folder.name.lower() in SPLIT_NAMES)


def unused_splits(path: Path) -> tuple[str, ...]:
    """Returns the names of splits in a folder that are none of train, val and test, and are not read."""
    return _located(path).unused


def read(path: Path, skip_broken: bool = False) -> list[Part]:
    """Returns the rows of each file. Raises UserError for what cannot be read, and for a file without rows.

    skip_broken: leave broken rows out, counted, where the default is to name the first one.
    """
    shards = _located(path).shards
    if shards[0].file.suffix == ".npy":
        folders = {each.file.parent: each.split for each in shards}
        parts = [_arrays(folder, split) for folder, split in folders.items()]
    else:
        parts = [_table(each.file, each.split, skip_broken) for each in shards]
    for part, each in zip(parts, shards):
        if not part.rows:
            raise UserError(f"{each.file} has no rows: give a file with at least one example.")
    return parts


class Table(NamedTuple):
    """What a reader finds in a file; the fields are those of `Part`."""

    columns: Columns
    skipped: int = 0
    classes: Classes = {}


def _table(path: Path, split: str, skip_broken: bool) -> Part:
    try:
        with path.open("rb") as file:
            if (head := file.read(len(LFS))) == LFS:
                raise UserError(f"{path} only points to data that git has not downloaded: run `git lfs pull` there.")
        own_kinds.require_unpacked(path, head)
        table = READERS[path.suffix.lower()](path, skip_broken)
    except UnicodeDecodeError as error:
        if error.encoding == "utf-8" and has_zeros(path):
            raise no_text(path) from error
        kind, usual = ("UTF-8", "latin1") if error.encoding == "utf-8" else (error.encoding.upper(), error.encoding)
        raise UserError(
            f"{path} is no {kind} text (byte {error.start:,}): convert it, for example by `iconv -f {usual} -t utf8`."
        ) from error
    except OSError as error:
        raise unreadable(path, error, "give the path of your data") from error
    return Part(split, table.columns, table.skipped, table.classes)


def _csv(path: Path, skip_broken: bool) -> Table:
    with path.open(encoding=encoding(path), newline="") as file, _long_cells():
        head = next((line for line in iter(file.readline, "") if line.strip()), "")
        file.seek(0)
        tabs = path.suffix.lower() == ".tsv" and "\t" in head
        lines = csv.reader(file, delimiter="\t" if tabs else _delimiter(head), strict=True)
        rows = (cells for cells in lines if len(cells) > 1 or "".join(cells).strip())  # no blank lines
        try:
            names = [name.strip() for name in next(rows, [])]
        except csv.Error as error:
            raise UserError(f"{path}, line {lines.line_num}: {error}: mend its quotation marks.") from error
        if not any(names):
            raise UserError(f"{path} is empty: give a file whose first line names the columns.")
        _distinct(path, names)
        kept, skipped, first = [], 0, lines.line_num + 1
        try:
            for cells in rows:
                first = lines.line_num + 1
                if len(cells) == len(names):
                    kept.append(cells)
                elif not skip_broken:
                    raise UserError(
                        f"{path}, line {lines.line_num}: it has {len(cells)} cell{'s' * (len(cells) > 1)}, but the "
                        f"first line names {len(names)} columns: mend it, or leave such rows out with --skip-broken."
                    )
                else:
                    skipped += 1
        except csv.Error as error:
            raise UserError(
                f"{path}, line {first}: {error}: mend its quotation marks. --skip-broken cannot leave it out, as it "
                "cannot be told where the row ends."
            ) from error
    columns = map(list, zip(*kept, strict=True)) if kept else ([] for _ in names)
    return Table(dict(zip(names, columns, strict=True)), skipped)


def _delimiter(head: str) -> str:
    """Returns what stands most often between the names of columns, the comma if in doubt."""
    return max((",", "\t", ";"), key=head.count)


@contextmanager
def _long_cells() -> Iterator[None]:
    """Lets a cell be as long as a book; the standard library refuses more than 131,072 characters."""
    before = csv.field_size_limit(2**31 - 1)  # the most that Windows takes, where a C long has 32 bits
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _jsonl(path: Path, skip_broken: bool) -> Table:
    rows: list[dict[str, Any]] = []
    skipped = 0
    with path.open(encoding=encoding(path)) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row, why = _object(line)
            if row is not None:
                rows.append(row)
            elif skip_broken:
                skipped += 1
            else:
                raise UserError(f"{path}, line {number}: {why}: mend it, or leave such rows out with --skip-broken.")
    names = dict.fromkeys(name for row in rows for name in row)
    return Table({name: [row.get(name) for row in rows] for name in names}, skipped)


def _object(line: str) -> tuple[dict[str, Any] | None, str]:
    if line.lstrip().startswith("["):
        return None, "it begins a list, where each line is an object (`jq -c '.[]'` writes a list so)"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, f"it is no JSON ({error})"
    return (row, "") if isinstance(row, dict) else (None, "it is no JSON object")


def _parquet(path: Path, skip_broken: bool) -> Table:
    import duckdb

    try:
        with duckdb.connect(config={"threads": 1, "autoload_known_extensions": False}) as base:
            kinds = base.execute("DESCRIBE SELECT * FROM read_parquet($1)", [str(path)]).fetchall()
            found = base.execute(f"SELECT *{_zones_as_text(kinds)} FROM read_parquet($1)", [str(path)])
            read = [column[0] for column in found.description or ()]
            rows = found.fetchall()
            nodes = base.execute("SELECT name, num_children FROM parquet_schema($1)", [str(path)]).fetchall()
            said = base.execute(
                "SELECT value FROM parquet_kv_metadata($1) WHERE decode(key) = 'huggingface'", [str(path)]
            )
            features = said.fetchone()
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is no Parquet file that can be read ({reason}): write it anew.") from error
    own = _top_level(nodes)
    names = own + read[len(own) :]  # and columns that DuckDB takes from the names of folders
    _distinct(path, names)
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    return Table(columns, classes=_classes(features[0] if features else b""))


def _top_level(nodes: Sequence[tuple[str, int | None]]) -> list[str]:
    """Returns the names of a Parquet file's columns as it has them; DuckDB renames those that differ by case only.

    nodes: name and number of children of each node of the schema, depth first, which begins with the root.
    """
    names, inside = [], 0  # nodes that are left within the last column
    for name, children in nodes[1:]:
        names += [name] if not inside else []
        inside = max(0, inside - 1) + (children or 0)
    return names


def _distinct(path: Path, names: Sequence[str]) -> None:
    """Raises UserError for a name that two columns have."""
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{path} has two columns '{twice}': rename one of them.")


def _zones_as_text(kinds: Sequence[tuple[str, ...]]) -> str:
    """Returns what replaces times with a zone by texts, in UTC, which without an extension of DuckDB they are; DuckDB
    needs the package pytz to give them, which many have not, and would read nothing of the file. kinds: name and type
    of each column."""
    quoted = [(name.replace('"', '""'), kind) for name, kind, *_ in kinds if ZONED in kind]
    texts = [f'CAST("{name}" AS {kind.replace(ZONED, "VARCHAR")}) AS "{name}"' for name, kind in quoted]
    return f" REPLACE ({', '.join(texts)})" if texts else ""


def _arrow(path: Path, skip_broken: bool) -> Table:
    """Reads an Arrow file, as a stream, which is what `datasets` writes, or with a footer."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UserError(f"To read {path} install pyarrow: pip install 'levelfield[data]'.") from error
    try:
        with pa.memory_map(str(path)) as source:
            with_footer = source.read(6) == b"ARROW1"
            source.seek(0)
            table = (pa.ipc.open_file if with_footer else pa.ipc.open_stream)(source).read_all()
            _distinct(path, table.column_names)
            columns = {name: own_arrow.cells(table.column(name), path, name) for name in table.column_names}
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk, and not of what the file holds
        raise UserError(f"{path} is no Arrow file that can be read ({error}): write it anew.") from error
    return Table(columns, classes=_classes((table.schema.metadata or {}).get(b"huggingface", b"")))


def _classes(features: bytes) -> Classes:
    """Returns the names of classes, by column, that `datasets` writes into the head of a file; {} where it did not."""
    try:
        columns = json.loads(features)["info"]["features"]
        kinds = {name: _of_one(kind) for name, kind in columns.items()}
        return {name: tuple(map(str, kind["names"])) for name, kind in kinds.items() if "names" in kind}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _of_one(kind: Any) -> dict[str, Any]:
    """Returns the kind of one label, where cells are lists of them, as `datasets` has written that over time."""
    inner = kind[0] if isinstance(kind, list) else kind.get("feature", kind)
    return inner if isinstance(inner, dict) else {}


READERS: dict[str, Callable[[Path, bool], Table]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
"""How a file is read, by its ending."""


def _array(file: Path) -> np.ndarray:
    """Returns the array of a file. Raises UserError for other content, in words other than NumPy's, which advise to
    unpickle what may do anything."""
    try:
        with file.open("rb") as opened:
            if opened.read(len(NUMPY)) != NUMPY:
                raise UserError(f"{file} is no array as NumPy saves it: write it with np.save.")
        found = np.load(file, allow_pickle=False)
    except OSError as error:
        raise unreadable(file, error, "give the path of your data") from error
    except (ValueError, EOFError) as error:
        why = "holds Python objects" if "bject" in str(error) else f"is damaged ({str(error).splitlines()[0]})"
        ragged = file.stem == "x" and "obj" in why
        pad = ", padded to one length, and the steps of each as lengths.npy" if ragged else ""
        raise UserError(f"{file} {why}: save an array of numbers with np.save{pad}.") from error
    if found.dtype.kind == "c":
        raise UserError(f"{file} has complex numbers: save real and imaginary parts as two channels.")
    return found


def _arrays(folder: Path, split: str) -> Part:
    """Returns x.npy, (N, T) or (N, T, channels), as a column `x` of sequences, and the other arrays, (N, ...), as they
    are. `lengths.npy`, (N,), says how many steps of each are real."""
    found: dict[str, np.ndarray] = {}
    for file in sorted(folder.glob("*.npy")):
        found[file.stem] = _array(file)
    for needed in ("x", "y"):
        if needed not in found:
            raise UserError(f"{folder} has no {needed}.npy: save inputs as x.npy and labels as y.npy.")
    x, count = found["x"], len(found["x"])
    if x.ndim not in (2, 3):
        raise UserError(
            f"{folder / 'x.npy'} has shape {x.shape}: give (examples, steps) or (examples, steps, channels)."
        )
    if wrong := next((stem for stem, array in found.items() if array.shape[:1] != (count,)), None):
        raise UserError(f"{folder / wrong}.npy does not have {count} entries as x.npy does: save one for each example.")
    lengths = found.pop("lengths", np.full(count, x.shape[1]))
    most = x.shape[1]
    if lengths.shape != (count,) or not np.isin(lengths, np.arange(most + 1)).all():
        raise UserError(f"{folder / 'lengths.npy'} says no steps of each example: give whole numbers from 0 to {most}.")
    columns: dict[str, list[Any]] = {name: list(array) for name, array in found.items()}
    columns["x"] = [row[: int(length)] for row, length in zip(x, lengths, strict=True)]
    return Part(split, columns)
