"""Makes splits of a user's rows: which columns are read, how they are encoded, and where the splits come from.

    content(Settings("reviews.csv", text="body", label="stars"), identity)

Files are read once in a process for each content. Whatever the training split alone may decide, such as the numbers of
symbols and the scale of signals, is decided by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from levelfield.spec import (
    SPLITS,
    Examples,
    Input,
    Label,
    LabelSet,
    Output,
    Signal,
    SplitName,
    Tokens,
    UserError,
    Values,
)
from levelfield.user import own_columns, own_files, own_labels, own_notes, own_splits
from levelfield.user.own_columns import Cells
from levelfield.user.own_folders import SPLIT_NAMES
from levelfield.user.own_settings import Settings

MOST_NUMBERS = 2**20  # symbols that an array may tell apart: each has a row of weights in every model
TESTED = 10  # examples held out from which one class among them is no chance
OTHERWISE = "give more rows or other splits, or where none are given another --split-seed, --val-share or --test-share"


class Content(NamedTuple):
    """What the files come to."""

    splits: dict[SplitName, Examples]
    input: Input
    output: Output
    classes: tuple[str, ...]
    max_length: int
    notes: tuple[str, ...]
    shared_groups: dict[str, int]
    left_out: int
    cut: int
    spellings: Mapping[str, str]
    regrouped: bool
    groups: dict[SplitName, np.ndarray] | None
    carved: bool
    apart: dict[SplitName, Examples] | None


class _Sequences(NamedTuple):
    """Inputs before symbols are numbered, which the training split decides."""

    rows: list[Any]  # arrays, or of lists of words; None where a row has no input
    kind: str  # "bytes", "pieces", "symbols", "numbers" or "signal"
    symbols: int = 0  # of pieces, how many ids there are
    broken: int = 0  # of rows that are None, those with numbers or symbols that are none
    steps: Sequence[int] = ()  # of each row, where it is cut already


@lru_cache(maxsize=4)
def content(task: Settings, identity: str) -> Content:
    """Returns what the files come to. Raises UserError for files that cannot be used.

    identity: changes whenever what they hold does, so that they are read once for each content.
    """
    parts = own_files.read(Path(task.path), task.skip_broken)
    _require_inputs(task, parts)
    cells = _joined(task, parts)
    given = _given_splits(task, cells, parts)
    sequences = _sequences(task, cells)
    y, names, spellings = _targets(task, cells, parts[0].classes)
    whole = np.array([row is not None and len(row) > 0 for row in sequences.rows]) & _known(y)
    if whole.sum() < 3:
        raise UserError(f"{task.path} has {whole.sum()} rows with input and label: give at least 3.")
    kept = np.flatnonzero(whole)
    emptied = sorted(set(given.tolist()) - set(given[kept].tolist()))
    of = cells.column(task.group, "--group", task.missing) if task.group else [None] * len(whole)
    groups, regrouped = own_columns.group_names([of[i] for i in kept])
    steps = sequences.steps
    lengths = np.array(steps)[kept] if steps else np.array([len(sequences.rows[i]) for i in kept])
    sequences = sequences._replace(rows=[sequences.rows[i][: task.longest] for i in kept])
    _require_finite(task, sequences, kept)
    keys = [_key(row, group) for row, group in zip(sequences.rows, groups, strict=True)]
    shares = {"test": task.test_share, "val": task.val_share}
    split = own_splits.completed(given[kept], keys, shares, task.seed, task.group)
    rows, spec = _encoded(sequences, split == "train")
    splits, output = _divided(rows, y[kept], split, names)
    unknown = sequences.kind == "symbols" and not all(map(np.all, rows))
    shared = own_splits.shared(split.tolist(), groups) if task.group else {}
    skipped = sum(part.skipped for part in parts) + sequences.broken
    missing = int((~whole).sum()) - sequences.broken
    return Content(
        splits=splits,
        input=spec,
        output=output,
        classes=names,
        max_length=min(task.longest, int(lengths.max())),
        notes=(
            *own_notes.left_out(task, (missing, len(whole) - sequences.broken), skipped, shared),
            *own_notes.changed(task, lengths, spellings),
            *own_notes.surprises(task, emptied, split, y[kept], names),
            *own_notes.of_groups(task, groups),
        ),
        shared_groups=shared,
        left_out=missing + skipped,
        apart=_divided(_told_apart(sequences.rows), y[kept], split, names)[0] if unknown else None,
        cut=int((lengths > task.longest).sum()),
        spellings=spellings,
        regrouped=regrouped,
        groups=_numbered_groups(groups, split) if task.group else None,
        carved="test" not in given[kept],
    )


def _require_finite(task: Settings, sequences: _Sequences, numbers: np.ndarray) -> None:
    """Raises UserError for a signal with numbers that are none. numbers: of the rows that sequences come from, (N,)."""
    for row, number in zip(sequences.rows, numbers, strict=True) if sequences.kind == "signal" else ():
        if not np.isfinite(row).all():
            raise UserError(
                f"{task.path}: example {number + 1} of x.npy has a number that is not finite, or beyond "
                f"{own_columns.LARGEST:.2g}: give another for it, or leave such examples out with --skip-broken."
            )


@lru_cache(maxsize=1_024)
def spelt_in_several_ways(task: Settings, identity: str) -> Mapping[str, int]:
    """Returns what is: {"spellings": 1} for the labels of some class, {"groups": 1} for some group, or both.

    It is {} for files that cannot be used. identity: as of `content`.
    """
    try:
        found = content(task, identity)
    except UserError:
        return {}
    return {name: 1 for name, each in (("spellings", found.spellings), ("groups", found.regrouped)) if each}


def _numbered_groups(groups: Sequence[str], split: np.ndarray) -> dict[SplitName, np.ndarray]:
    """Returns the number of each row's group by split, (N,) each, of which a row without one has its own."""
    names = [group or f"\0{row}" for row, group in enumerate(groups)]
    # not by an array of texts, in which each takes as much memory as the longest
    numbers = {name: place for place, name in enumerate(sorted(set(names)))}
    number = np.array([numbers[name] for name in names])
    return {name: number[split == name] for name in SPLITS}


def _joined(task: Settings, parts: list[own_files.Part]) -> Cells:
    names = dict.fromkeys(name for part in parts for name in part.columns)
    columns = {n: [c for part in parts for c in part.columns.get(n, [None] * part.rows)] for n in names}
    return Cells(str(task.path), columns)


def _require_inputs(task: Settings, parts: list[own_files.Part]) -> None:
    """Raises UserError for a file without the columns of the input that others have; one without labels is one whose
    labels are hidden, and that is told."""
    known = dict.fromkeys(name for part in parts for name in part.columns)
    for name in (task.text, task.symbols, *task.channels):
        for part in parts:
            if name in known and name not in part.columns:
                of = f"of the split {part.split}" if part.split else "of one file"
                raise UserError(f"The rows {of} have no column '{name}': call it so in every file of {task.path}.")


def _given_splits(task: Settings, cells: Cells, parts: list[own_files.Part]) -> np.ndarray:
    """Returns the split that files or a column give each row, (N,) text; all "train" where nothing is given."""
    if not task.split:
        return np.array([part.split or "train" for part in parts for _ in range(part.rows)], object).astype(str)
    named = ["" if own_columns.missing(c) else str(c).strip().lower() for c in cells.column(task.split, "--split")]
    if "" in named:
        raise UserError(
            f"The column {task.split} has nothing in row {named.index('') + 1}: its cells are train, val or test."
        )
    if other := next((name for name in named if name not in SPLIT_NAMES), None):
        raise UserError(f"The column {task.split} says '{other}': its cells are train, val or test.")
    return np.array([SPLIT_NAMES[name] for name in named])


def _sequences(task: Settings, cells: Cells) -> _Sequences:
    if task.text:
        column = cells.flat(task.text, "--text")
        own_columns.require_text(column, task.text)
        if not task.tokenizer:
            return _Sequences(own_columns.texts(column), "bytes")
        rows, count = own_columns.pieces(column, own_columns.tokenizer_file(task.tokenizer))
        return _Sequences(rows, "pieces", count)
    if task.symbols:
        column = cells.flat(task.symbols, "--symbols")
        if isinstance(first := column[0], np.ndarray) and (first.dtype.kind == "f" or first.ndim != 1):
            raise UserError(
                f"{task.symbols}.npy of {task.path} holds measured numbers or channels, and no symbols: leave out "
                "--symbols."
            )
        rows, steps, broken = own_columns.symbols(column, task.longest, whole=not task.skip_broken)
        return _Sequences(rows, "symbols", steps=steps, broken=broken)
    if task.channels:
        columns = [cells.flat(name, "--channels") for name in task.channels]
        first = columns[0][0]
        if isinstance(first, np.ndarray) and first.ndim == 2 and first.shape[1] > 1:
            name = task.channels[0]
            raise UserError(
                f"{task.path} is a folder of arrays, whose {name}.npy has its {first.shape[1]} channels already: leave "
                "out --channels."
            )
        return _signals(task, own_columns.signals(columns, task.channels, finite=not task.skip_broken))
    if not isinstance(next(iter(cells.columns.get("x", [None]))), np.ndarray):
        raise UserError(
            f"Nothing says what the input is: name a column of {task.path} with --text, --symbols or --channels; "
            f"it has {', '.join(cells.columns)}."
        )
    rows = cells.columns["x"]
    flat = rows[0].ndim == 1
    if flat and rows[0].dtype.kind in "bui":
        if min(int(row.min(initial=0)) for row in rows) < 0:
            raise UserError(
                f"{task.path}: x.npy has symbols below 0: number them from 0 on, or save measured numbers as fractions."
            )
        if (most := max(int(row.max(initial=0)) for row in rows)) >= MOST_NUMBERS:
            raise UserError(
                f"{task.path}: x.npy has symbols up to {most:,}, where at most {MOST_NUMBERS:,} are taken: number them "
                "without gaps, as by np.unique(x, return_inverse=True), or save measured numbers as fractions."
            )
        return _Sequences(rows, "numbers")
    if rows[0].dtype.kind not in "buif":
        raise UserError(
            f"{task.path}: x.npy holds {rows[0].dtype} and no numbers: save numbers, or name symbols with --symbols x."
        )
    with np.errstate(over="ignore"):
        signals = [np.asarray(row[:, None] if flat else row, np.float32) for row in rows]
    return _signals(task, signals)


def _signals(task: Settings, rows: Sequence[np.ndarray | None]) -> _Sequences:
    """Returns rows of (steps, channels), without those of which a number is none where broken rows are left out."""
    if not task.skip_broken:
        return _Sequences(list(rows), "signal")
    broken = [row is not None and not np.isfinite(row[: task.longest]).all() for row in rows]
    return _Sequences([None if bad else row for row, bad in zip(rows, broken)], "signal", broken=sum(broken))


class _Targets(NamedTuple):
    """Classes, (N,) int64 with their names, sets of labels, (N, L) int8 with theirs, or numbers, (N, dims) float64.
    spellings: of classes that are written in several ways, as `own_columns.spellings` has them."""

    y: np.ndarray
    names: tuple[str, ...] = ()
    spellings: Mapping[str, str] = {}


def _targets(task: Settings, cells: Cells, classes: own_files.Classes) -> _Targets:
    """Returns what is to be predicted.

    classes: column -> the names of its classes, where the files have them.
    """
    if task.target:
        columns, names = _of_one_number(
            [cells.flat(name, "--target", task.missing) for name in task.target], task.target
        )
        return _Targets(own_columns.values(columns, names))
    if task.labels:
        columns = [cells.flat(name, "--labels", task.missing) for name in task.labels]
        names, y = own_labels.label_sets(columns, task.labels)
        return _Targets(y, own_labels.named(names, classes.get(task.labels[0], ())))
    arrays = isinstance(next(iter(cells.columns.get("x", [None]))), np.ndarray)
    if arrays and not task.label:
        first = np.asarray(cells.columns["y"][0])
        if first.dtype.kind == "f":
            return _Targets(np.stack([np.atleast_1d(y) for y in cells.columns["y"]]).astype(np.float64))
    name = task.label or ("y" if arrays else "")
    if not name:
        raise UserError(
            f"Nothing says what is to be predicted: name a column of {task.path} with --label (classes), --labels "
            f"(sets of labels) or --target (numbers); it has {', '.join(cells.columns)}."
        )
    column = cells.flat(name, "--label", task.missing)
    column = [c[0] if isinstance(c, np.ndarray) and c.shape == (1,) else c for c in column]
    own_columns.require_one(column, name)
    if name in classes:
        return _Targets(own_columns.numbered_classes(column, len(classes[name])), classes[name])
    names, y, spellings = own_columns.classes(column, name)
    return _Targets(y, names, spellings)


def _of_one_number(columns: list[list[Any]], names: Sequence[str]) -> tuple[list[list[Any]], list[str]]:
    """Returns columns of one number in each cell, with their names, of columns that may be arrays of (N, dims)."""
    found, called = list[list[Any]](), list[str]()
    for column, name in zip(columns, names, strict=True):
        wide = isinstance(column[0], np.ndarray) and column[0].ndim == 1
        parts = [list(part) for part in zip(*column, strict=True)] if wide else [column]
        found += parts
        called += len(parts) * [name]
    return found, called


def _known(y: np.ndarray) -> np.ndarray:
    if y.dtype == np.int8:  # sets of labels
        return y.min(1) >= 0
    return y >= 0 if y.ndim == 1 else np.all(np.isfinite(y), axis=1)


def _key(row: Any, group: str) -> bytes:
    """Returns what keeps rows together: their group, where they have one, else their input. Half of a surrogate pair,
    as a JSON file may have one, is encoded by itself."""
    if not group and isinstance(row, np.ndarray):
        return row.tobytes()
    return (group or " ".join(map(str, row))).encode("utf-8", "surrogatepass")


def _encoded(sequences: _Sequences, train: np.ndarray) -> tuple[list[np.ndarray], Input]:
    """Returns the sequences as arrays, and what they are. train: (N,) bool, the rows that may decide it."""
    rows, kind, count = sequences[:3]
    if kind == "bytes":
        return rows, Tokens(256)
    if kind == "pieces":
        return rows, Tokens(count)
    if kind == "symbols":
        numbered, count = own_columns.numbered(rows, np.flatnonzero(train).tolist())
        return [row for row in numbered if row is not None], Tokens(count)
    if kind == "numbers":
        return rows, Tokens(max(int(row.max()) for row in rows) + 1)
    seen = np.concatenate([row for row, own in zip(rows, train, strict=True) if own])
    spread = seen.std(0, np.float64)  # float32 stops counting at 16 million steps
    scale = np.where(spread > 0, spread, 1.0)
    channels = seen.shape[1]
    return rows, Signal(channels, tuple(map(float, seen.mean(0, np.float64))), tuple(map(float, scale)))


def _told_apart(rows: list[list[str]]) -> list[np.ndarray]:
    """Returns the symbols of each row as numbers that are the same for no two symbols, of any split."""
    number: dict[str, int] = {}
    return [np.array([number.setdefault(symbol, len(number)) for symbol in row], np.int32) for row in rows]


def _divided(
    rows: list[np.ndarray], y: np.ndarray, split: np.ndarray, names: tuple[str, ...]
) -> tuple[dict[SplitName, Examples], Output]:
    """Returns the splits, and what is to be predicted; numbers are standardised by the training split."""
    train = y[split == "train"]
    if y.dtype == np.int8:
        if not (train != train[0]).any():
            raise UserError("All rows of the training split have the same labels: give more rows, or other splits.")
        output: Output = LabelSet(len(names))
        targets = y.astype(np.uint8)
    elif names:
        if len(np.unique(train)) < 2:
            raise UserError(f"The training split has one class only: {OTHERWISE}.")
        for name, why in (("test", "guessing scores 100 %"), ("val", "nothing can be chosen by it")):
            held_out = y[split == name]
            if len(held_out) >= TESTED and len(np.unique(held_out)) < 2:
                raise UserError(f"The {name} split has one class only, so that {why}: {OTHERWISE}.")
        output = Label(len(names))
        targets = y
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            spread, middle = train.std(0), train.mean(0)
            if (spread == 0).any():
                raise UserError("A target has one value only in the training split: give a column that varies.")
            output, targets = Values(y.shape[1]), ((y - middle) / spread).astype(np.float32)
        if not (np.isfinite(spread).all() and np.isfinite(targets).all()):
            raise UserError(
                f"A target goes up to {np.abs(y).max():.3g}, too far to be set in proportion to the others: divide the "
                "column by a number, or give its logarithm."
            )
    made: dict[SplitName, Examples] = {}
    for name in SPLITS:
        at = np.flatnonzero(split == name)
        made[name] = Examples.of_sequences([rows[i] for i in at], targets[at])
    return made, output
