"""Turns the cells of a user's data into sequences and targets, and says what is missing or wrong in one sentence.

    texts(cells.column("body", "--text"))                       # UTF-8 bytes of each text
    pieces(cells.column("body", "--text"), tokenizer_file("gpt2"))                   # its pieces, by a tokenizer
    classes(cells.column("stars", "--label"), "stars")          # (("1", "2", ..., "5"), class of each row, {})

A row whose input or label is missing is left out, and counted; a column that is not there, a label of one class only,
one that says "nan" and a number that is none are refused.
"""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from levelfield.spec import UserError, closest

MOST_CLASSES = 1_000
MOST_SYMBOLS = 60_000
LISTS = (list, tuple, np.ndarray)
NOTHING = frozenset({"nan", "NaN", "NA", "N/A", "n/a", "<NA>", "#N/A", "null", "NULL"})
"""What programs write for a missing value."""
NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")  # 01 is a code, and another one than 1
BRACKETS = frozenset("[]()")
COMMAS = re.compile(r"[0-9],[0-9]")  # of a decimal comma, where something else parts numbers
APART = re.compile(r"[0-9]\s*;|[0-9]\s+[-+.0-9]")
NEARLY = re.compile(r"\W{0,2}[0-9][0-9.,'\s]*\W?")  # a number with separators, a percent sign or a currency's
LARGEST = float(np.finfo(np.float32).max)
BETWEEN = str.maketrans(",;[]()", "      ")  # what may stand between or around numbers in a cell


@dataclass(frozen=True)
class Cells:
    """The rows of all files, one after another: name of a column -> a cell for each row; a row without it has None."""

    where: str
    columns: dict[str, list[Any]]

    def column(self, name: str, flag: str, empty: Collection[str] = ()) -> list[Any]:
        """Returns a column. Raises UserError where there is none of that name; flag: what named it.

        empty: texts for which cells are None instead.
        """
        if name not in self.columns:
            if self._unnamed():
                raise UserError(
                    f"{self.where} has no column '{name}' for {flag}, and its first line seems to be data: add a line "
                    "above it that names the columns."
                )
            raise UserError(f"{self.where} has no column '{name}' for {flag}: {closest(name, list(self.columns))}")
        found = self.columns[name]
        return [None if isinstance(c, str) and c.strip() in empty else c for c in found] if empty else found

    def flat(self, name: str, flag: str, empty: Collection[str] = ()) -> list[Any]:
        """Returns a column as `column` does. Raises UserError also for a cell that is a record, or a list of them, as
        JSON lines and Parquet may have."""
        found = self.column(name, flag, empty)
        _require_flat(found, name)
        return found

    def _unnamed(self) -> bool:
        """Tells whether a text file names a column as one of its own cells is, as where its first line is a row."""
        text = Path(self.where).suffix.lower() in (".csv", ".tsv")
        return text and any(name and name in cells for name, cells in self.columns.items())


def missing(cell: Any) -> bool:
    """Tells whether a cell is empty: None, blanks, or a number that is none (NaN)."""
    return _nothing(cell) or (isinstance(cell, str) and not cell.strip())


def _nothing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float | np.floating) and bool(cell != cell))


def _require_flat(cells: Sequence[Any], name: str) -> None:
    """Raises UserError for a cell that is a record, or a list of them."""
    for number, cell in enumerate(cells, 1):
        listed = isinstance(cell, (list, tuple))
        if isinstance(record := next(iter(cell), None) if listed else cell, dict):
            fields = list(map(str, record)) or ["field"]
            raise UserError(
                f"Row {number} of the column {name} is a {'list of records' if listed else 'record'} "
                f"({', '.join(fields)}): write the field that is meant into a column of its own, such as "
                f"{name}_{fields[0]}, and name that."
            )


def require_text(cells: Sequence[Any], name: str) -> None:
    """Raises UserError for a cell that holds several things, or bytes, which has no text of its own."""
    for number, cell in enumerate(cells, 1):
        if isinstance(cell, (bytes, bytearray)):
            raise UserError(
                f"Row {number} of the column {name} is bytes and no text: store it as text, in UTF-8, or name a column "
                "of text."
            )
        if isinstance(cell, LISTS):
            raise UserError(
                f"Row {number} of the column {name} is a list and no text: name lists of words or symbols with "
                "--symbols, lists of measured numbers with --channels, or give --text a column of text."
            )


def texts(cells: Sequence[Any]) -> list[np.ndarray | None]:
    """Returns the UTF-8 bytes of each cell; None where there are none."""
    encoded = (None if missing(c) else str(c).encode("utf-8", "replace") for c in cells)
    return [None if text is None else np.frombuffer(text, np.uint8) for text in encoded]


def pieces(cells: Sequence[Any], file: Path) -> tuple[list[np.ndarray | None], int]:
    """Returns the ids of the pieces of each cell's text, and how many ids there are.

    file: a tokenizer.json. No ids are added for the beginning or the end of a text. None where there is no text, and
    where it has no pieces. Raises UserError for a file that is no tokenizer, and where the package is not installed.
    """
    from levelfield.pretrained.tokenizers.read import JsonTokenizer

    tokenizer = JsonTokenizer(file)
    kind = np.uint16 if tokenizer.symbols <= 2**16 else np.int32  # uint32 is unknown to torch
    texts = (None if missing(cell) else str(cell).encode("utf-8", "replace").decode() for cell in cells)
    found = [[] if text is None else tokenizer.encode(text) for text in texts]
    return [np.array(ids, kind) if ids else None for ids in found], tokenizer.symbols


def tokenizer_file(where: str | PathLike[str]) -> Path:
    """Returns the tokenizer.json of a folder, or the file itself. Raises UserError where there is none."""
    path = Path(where)
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.suffix.lower() != ".json" or not file.is_file():
        raise UserError(f"{where} is no tokenizer.json, nor a folder with one: give either to --tokenizer.")
    return file


def symbols(cells: Sequence[Any], longest: int, *, whole: bool = True) -> tuple[list[list[str] | None], list[int], int]:
    """Returns the first symbols of each cell, at most `longest`, which are words between blanks, or the items of a
    list, None for none; how many there are in all; and how many rows are broken, which are None too.

    Equal symbols are one object, as many long rows of them would fill the memory otherwise. Text is a list where every
    cell of the column is one: among words, as in ListOps, brackets are symbols too. Raises UserError for bytes and for
    lists of lists.
    """
    if any(isinstance(cell, (bytes, bytearray)) for cell in cells):
        raise UserError("A cell of --symbols is bytes: name a column of words, or of lists of them.")
    if any(isinstance(next(iter(cell), None), LISTS) for cell in cells if isinstance(cell, LISTS)):
        raise UserError("A cell of --symbols has lists within a list: name a column of plain lists.")
    texts = [str(cell) for cell in cells if not isinstance(cell, LISTS) and not missing(cell)]
    split = items if all(items(text) is not None for text in texts) else str.split
    rows: list[list[str] | None] = []
    steps: list[int] = []
    broken = 0
    one: dict[str, str] = {}
    for number, cell in enumerate(cells, 1):
        found = cell if isinstance(cell, LISTS) else [] if missing(cell) else split(str(cell)) or []
        lacks = (split is items or isinstance(cell, LISTS)) and any(map(_nothing, found[:longest]))
        if lacks and whole:
            raise UserError(
                f"Row {number} of --symbols has an item that is empty: write a symbol for it, or leave such rows out "
                "with --skip-broken."
            )
        broken += lacks
        rows.append(None if lacks else [one.setdefault(text, text) for text in map(str, found[:longest])] or None)
        steps.append(len(found))
    return rows, steps, broken


def items(text: str) -> list[Any] | None:
    """Returns the items of a list as JSON, Python or NumPy writes it; None where text is no such list."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found = read(text)
            flat = isinstance(found, list) and not any(isinstance(item, (list, tuple, dict, set)) for item in found)
            return found if flat else None
    return None if BRACKETS.intersection(text[1:-1]) else text.translate(BETWEEN).split()


def numbered(rows: Sequence[Sequence[str] | None], known: Iterable[int]) -> tuple[list[np.ndarray | None], int]:
    """Returns the symbols of each row as numbers, and how many symbols there are.

    known: rows of the training split, whose symbols are numbered from 1 on, the commonest first. 0 stands for others.
    """
    counts = Counter(symbol for index in known for symbol in rows[index] or ())
    ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))[:MOST_SYMBOLS]
    number = {symbol: place for place, symbol in enumerate(ranked, 1)}
    kind = np.uint8 if len(number) < 256 else np.uint16
    return [None if r is None else np.array([number.get(s, 0) for s in r], kind) for r in rows], len(number) + 1


def signals(columns: Sequence[Sequence[Any]], names: Sequence[str], *, finite: bool = True) -> list[np.ndarray | None]:
    """Returns (steps, channels) float32 for each row, from one cell of numbers for each channel; None where one is
    missing. Raises UserError for a cell that holds other things, lists of lists among them, for channels of different
    lengths and, where all have to be `finite`, for numbers that are not, or beyond LARGEST."""
    found: list[np.ndarray | None] = []
    for number, cells in enumerate(zip(*columns, strict=True), 1):
        values = [_numbers(cell, name, number, finite) for cell, name in zip(cells, names, strict=True)]
        if any(not len(v) for v in values):
            found.append(None)
            continue
        if len({len(v) for v in values}) > 1:
            said = ", ".join(f"{name} {len(v)}" for name, v in zip(names, values, strict=True))
            raise UserError(f"Row {number} has channels of different lengths ({said}): give equally many steps.")
        with np.errstate(over="ignore"):
            found.append(np.stack(values, 1).astype(np.float32))
    return found


def _numbers(cell: Any, name: str, number: int, finite: bool) -> np.ndarray:
    if isinstance(cell, str) and COMMAS.search(cell) and APART.search(cell):
        raise UserError(
            f"Row {number} of the column {name} has commas within and blanks or semicolons between its numbers: write "
            "0.12 with a point, or put a blank behind each comma that parts two numbers."
        )
    try:
        items = [] if missing(cell) else cell.translate(BETWEEN).split() if isinstance(cell, str) else cell
        values = _floats(items)
    except (TypeError, ValueError):
        raise UserError(
            f"Row {number} of the column {name} is no list of numbers: give a cell such as '0.1 0.2', or --text."
        ) from None
    several = sum(size > 1 for size in values.shape) > 1
    if several or (isinstance(cell, str) and sum(map(cell.count, "[(")) > 1):
        raise UserError(
            f"Row {number} of the column {name} has lists within a list: give each channel a column of its own, or a "
            "folder of arrays, with x.npy of (examples, steps, channels), without --channels."
        )
    values = values.ravel()
    if finite and not np.isfinite(values).all():
        raise UserError(
            f"Row {number} of the column {name} has a number that is not finite: give a number for it, or leave such "
            "rows out with --skip-broken."
        )
    if finite and np.abs(values).max(initial=0) > LARGEST:
        raise UserError(
            f"Row {number} of the column {name} has a number beyond {LARGEST:.2g}, the largest that models compute "
            "with: divide the column by a number, or leave such rows out with --skip-broken."
        )
    return values


def _floats(items: Any) -> np.ndarray:
    """Returns numbers as float64, and infinity for whole ones beyond it, such as 10**400."""
    try:
        return np.asarray(items, np.float64)
    except OverflowError:
        return np.array([float(str(item)) for item in items])


def require_one(cells: Sequence[Any], name: str) -> None:
    """Raises UserError for a cell of a label that holds several classes."""
    if any(isinstance(cell, (list, tuple)) or (isinstance(cell, np.ndarray) and cell.ndim) for cell in cells):
        raise UserError(
            f"The label {name} has several classes in a cell, but an example has one here: name a column of sets of "
            f"labels with --labels {shlex.quote(name)}."
        )


def classes(cells: Sequence[Any], name: str) -> tuple[tuple[str, ...], np.ndarray, dict[str, str]]:
    """Returns the names of the classes, sorted, the class of each row, (N,), -1 where it is missing, and what
    `spellings` says of the labels.

    Raises UserError for a single class, for so many that the column cannot be one of classes, and for one
    of NOTHING, of which it cannot be told whether it is a class.
    """
    texts = [None if missing(cell) else label_text(cell) for cell in cells]
    if said := {text: count for text, count in Counter(texts).items() if text in NOTHING}:
        counts = " and ".join(f"'{text}' in {count:,}" for text, count in said.items())
        raise UserError(
            f"The label {name} is {counts} of {len(texts):,} rows, as missing labels are often written: leave such "
            f"rows out with --missing {shlex.join(said)}, or keep them as a class by another word in the file."
        )
    known = [text for text in texts if text is not None]
    others = spellings(known)
    there = sorted({others.get(text, text) for text in known}, key=by_number)
    if len(there) < 2:
        only = f"only '{there[0]}'" if there else "nothing"
        raise UserError(f"The label {name} has {only} in it: give a column of two classes or more.")
    if len(there) > MOST_CLASSES or (len(there) > 20 and len(there) > len(known) / 2):
        raise UserError(
            f"The label {name} has {len(there):,} different values in {len(known):,} rows: give a column of classes, "
            "or name numbers with --target."
        )
    number = {text: place for place, text in enumerate(there)}
    y = np.array([-1 if text is None else number[others.get(text, text)] for text in texts], np.int64)
    return tuple(there), y, others


def spellings(texts: Iterable[str]) -> dict[str, str]:
    """Returns what stands for other spellings of the same: where all texts are numbers the shortest, as 1 for 1.0, and
    where all are truths True or False, as for TRUE. {} where nothing is spelt in two ways, and for other texts."""
    there = sorted(set(texts), key=lambda text: (len(text), text))
    names: dict[str, str] = {}
    if all(map(NUMBER.fullmatch, there)):
        shortest = {Decimal(text): text for text in reversed(there)}
        names = {text: shortest[Decimal(text)] for text in there}
    elif all(text.lower() in ("true", "false") for text in there):
        names = {text: text.capitalize() for text in there}
    if len(set(names.values())) == len(names):
        return {}
    return {text: name for text, name in names.items() if name != text}


def numbered_classes(cells: Sequence[Any], count: int) -> np.ndarray:
    """Returns the class of each row, (N,), of cells that are numbers of classes already; -1 where there is none, which
    is what hubs give for the hidden labels of a test split."""
    known = (isinstance(cell, int) and 0 <= cell < count for cell in cells)
    return np.array([cell if there else -1 for cell, there in zip(cells, known, strict=True)], np.int64)


def label_text(cell: Any) -> str:
    """Returns the name of a class or label: that of 3.0 is "3", as programs write whole numbers among empty cells."""
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    return str(cell).strip()


def group_names(cells: Sequence[Any]) -> tuple[list[str], bool]:
    """Returns the group of each row, "" where it has none, and whether some group is spelt in several ways.

    These are one, such as 1 in one file and 1.0 in another; where there are none, groups are called as the cells are.
    """
    given = ["" if missing(cell) else str(cell) for cell in cells]
    texts = [label_text(cell) if name else "" for cell, name in zip(cells, given, strict=True)]
    others = spellings(filter(None, texts))
    names = [others.get(text, text) for text in texts]
    return (names, True) if len(set(names)) < len(set(given)) else (given, False)


def by_number(text: str) -> tuple[bool, float, str]:
    """Returns what names of classes are sorted by: numbers come first, by their value. NAN is a name: as a number it is
    neither above nor below others."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    return (True, 0.0, text) if math.isnan(number) else (False, number, text)


def values(columns: Sequence[Sequence[Any]], names: Sequence[str]) -> np.ndarray:
    """Returns the numbers to predict, (N, dims) float64, NaN where one is missing. Raises UserError for other cells."""
    found = np.full((len(columns[0]), len(names)), np.nan)
    for at, (cells, name) in enumerate(zip(columns, names, strict=True)):
        for row, cell in enumerate(cells):
            try:
                found[row, at] = np.nan if missing(cell) else float(cell)
            except OverflowError:  # of a whole number beyond all of float64
                found[row, at] = np.inf
            except (TypeError, ValueError):
                nearly = NEARLY.fullmatch(str(cell))
                way = "write numbers as 1234.5, without other signs, " if nearly else ""
                raise UserError(
                    f"Row {row + 1} of the column {name} is no number ('{str(cell)[:40]}'): {way}name classes with "
                    "--label, or what stands for a missing number with --missing."
                ) from None
            if np.isinf(found[row, at]):
                text = isinstance(cell, str)  # what --missing is compared with
                way = f" with --missing {shlex.quote(cell.strip())}" if text else ": empty the cell"
                raise UserError(
                    f"Row {row + 1} of the column {name} has a number that is not finite: give a number for it, "
                    f"or leave such rows out{way}."
                )
    return found
