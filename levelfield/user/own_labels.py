"""Reads sets of labels from a user's columns: lists in one column, or one column for each label.

    label_sets([["fast; cheap", "cheap", None]], ("tags",))       # (("cheap", "fast"), [[1, 1], [1, 0], [-1, -1]])
    label_sets([["1", "0"], ["yes", "yes"]], ("toxic", "insult"))  # (("toxic", "insult"), [[1, 1], [0, 1]])

Letters: N rows, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from levelfield.spec import UserError
from levelfield.user.own_columns import LISTS, MOST_CLASSES, by_number, items, label_text, missing

YES, NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}
SEPARATORS = ("|", ";", ",")
"""What may stand between the labels of a cell: the first of these that the column has."""
NONE = "[]"  # what a cell has where an example has no label


def label_sets(columns: Sequence[Sequence[Any]], names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Returns the names of the labels, and which of them each row has, (N, L) int8 of 0 and 1; -1 all along a row whose
    labels are missing.

    One column has a list in each cell, or text with `SEPARATORS`; `[]` is no label, and an empty cell is not known.
    Several columns are a label each, with 1 or 0, yes or no, true or false. Raises UserError for others.
    """
    if len(columns) > 1:
        return tuple(names), np.stack([_answers(c, name) for c, name in zip(columns, names, strict=True)], 1)
    (column,), (name,) = columns, names
    if all(isinstance(cell, np.ndarray) and cell.ndim == 1 for cell in column):
        return _array(column, name)
    sets = _sets(column)
    if all(found is None for found in sets):
        raise UserError(f"The column {name} has nothing in it: give a column of sets of labels.")
    there = sorted({label for found in sets if found for label in found}, key=by_number)
    if max((len(found) for found in sets if found), default=0) < 2:
        raise UserError(
            f"The column {name} never has two labels in a cell: "
            + (
                "write each label by itself, without a list, and name the column with --label."
                if any(isinstance(cell, LISTS) for cell in column)
                else f"name it with --label, or separate the labels of a cell by one of {' '.join(SEPARATORS)}."
            )
        )
    if len(there) > MOST_CLASSES:
        raise UserError(f"The column {name} has {len(there):,} labels: give one of at most {MOST_CLASSES:,}.")
    number = {label: place for place, label in enumerate(there)}
    y = np.zeros((len(sets), len(there)), np.int8)
    for row, found in enumerate(sets):
        y[row, [number[label] for label in found or ()]] = 1
        if found is None:
            y[row] = -1
    return tuple(there), y


def named(numbers: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns names of labels in place of their numbers, where the files have some; else what is given."""
    known = {str(place): name for place, name in enumerate(names)}
    return tuple(known.get(number, number) for number in numbers)


def _sets(column: Sequence[Any]) -> list[list[str] | None]:
    """Returns the labels of each cell; None for an empty cell."""
    texts = [cell for cell in column if isinstance(cell, str) and not missing(cell)]
    listed = bool(texts) and all(items(text) is not None for text in texts)
    between = next((each for each in SEPARATORS if any(each in text for text in texts)), None)
    found: list[list[str] | None] = []
    for cell in column:
        if not isinstance(cell, LISTS) and missing(cell):
            found.append(None)
            continue
        if isinstance(cell, LISTS):
            given = list(cell)
        elif isinstance(cell, str) and (listed or cell.strip() == NONE):
            given = items(cell) or []
        else:
            given = str(cell).split(between) if between else [cell]
        found.append([text for each in given if not missing(each) and (text := label_text(each))])
    return found


def _answers(column: Sequence[Any], name: str) -> np.ndarray:
    """Returns 1 for yes, 0 for no and -1 for nothing, (N,) int8, of a column that is one label."""
    made = np.full(len(column), -1, np.int8)
    for row, cell in enumerate(column):
        if missing(cell):
            continue
        text = label_text(cell).lower()
        if text not in YES | NO:
            raise UserError(
                f"Row {row + 1} of the column {name} says '{str(cell)[:40]}': of several columns of --labels each is a "
                "label, with 1 or 0, yes or no; name a column of lists alone."
            )
        made[row] = text in YES
    return made


def _array(column: Sequence[np.ndarray], name: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Returns what an array of (N, L) zeros and ones says, whose labels are called by their numbers."""
    y = np.stack(column)
    if y.shape[1] < 2 or not np.isin(y, (0, 1)).all():
        raise UserError(f"{name}.npy does not say which labels are there: give 0 and 1, of shape (examples, labels).")
    return tuple(map(str, range(y.shape[1]))), y.astype(np.int8)
