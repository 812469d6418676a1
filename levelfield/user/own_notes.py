"""Says of a user's data what was left out, what is not as the files have it, and what may not be meant.

list(changed(task, lengths, {"1.0": "1"}))      # ["Labels that mean the same are one class: '1.0' is '1'."]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from levelfield.user import own_columns, own_files
from levelfield.user.own_columns import MOST_CLASSES
from levelfield.user.own_settings import Settings


def surprises(
    task: Settings, emptied: Sequence[str], split: np.ndarray, y: np.ndarray, names: tuple[str, ...]
) -> Iterator[str]:
    """Yields what a user may not have meant. emptied: splits whose rows were all left out; split, y: of the others."""
    for name in emptied:
        yield f"No row of the split {name} has input and label, so that a share of the training rows takes its place."
    trained = split == "train"
    if lost := sorted(_found(y[~trained]) - _found(y[trained])) if names else []:
        shown = ", ".join([f"'{names[each]}'" for each in lost[:5]] + (["..."] if len(lost) > 5 else []))
        kind = "classes" if y.ndim == 1 else "labels"
        yield f"{len(lost):,} of {len(names):,} {kind} have no row to train on: {shown}."
    if alike := _by_capitals(names):
        shown = ", ".join([*(" and ".join(map(repr, each)) for each in alike[:5]), *["..."] * (len(alike) > 5)])
        yield f"What differs in capitals only is kept apart: {shown}. Where that is one thing, write it alike."
    if not names and not task.target and y.shape[1] == 1 and set(y[:, 0].tolist()) <= {*range(MOST_CLASSES)}:
        yield "y.npy has whole numbers, but stored as fractions, so numbers are predicted: for classes give --label y."


def of_groups(task: Settings, groups: Sequence[str]) -> Iterator[str]:
    """Yields a sentence for each name of a group that programs write for a missing value. groups: of each row, (N,)."""
    for name in sorted(own_columns.NOTHING.intersection(groups)):
        many = groups.count(name)
        rows = f"{many:,} {'row' if many == 1 else 'rows'} with '{name}' in the column {task.group}"
        yield f"{rows} {_were(many)} taken for one group: where they have none, give --missing {name}."


def _by_capitals(names: Sequence[str]) -> list[list[str]]:
    """Returns the names of classes or labels that are the same but for capitals, those of one together."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name.casefold(), []).append(name)
    return [each for each in alike.values() if len(each) > 1]


def _found(y: np.ndarray) -> set[int]:
    """Returns the classes or labels that some row has."""
    return set(np.unique(y).tolist()) if y.ndim == 1 else set(np.flatnonzero(y.any(0)).tolist())


def left_out(task: Settings, missing: tuple[int, int], skipped: int, shared: Mapping[str, int]) -> list[str]:
    """Returns what was left out, and which groups are on both sides.

    missing: rows without input or label, and of how many. skipped: broken rows. shared: groups, by pair of splits.
    """
    left, rows = missing
    none = " Where an example has none of the labels, write [] for an empty cell." if len(task.labels) == 1 else ""
    notes = [f"{left:,} of {rows:,} rows without input or label {_were(left)} left out.{none}"] if left else []
    notes += [f"{skipped:,} broken {'row' if skipped == 1 else 'rows'} {_were(skipped)} left out."] if skipped else []
    if unused := own_files.unused_splits(Path(task.path)):
        notes.append(f"Splits that are none of train, val and test were left out: {', '.join(unused)}.")
    notes += [
        f"{n:,} {'group' if n == 1 else 'groups'} of {task.group} {'is' if n == 1 else 'are'} in both "
        f"{pair.replace('+', ' and ')}."
        for pair, n in shared.items()
        if n
    ]
    return notes


def changed(task: Settings, lengths: np.ndarray, spellings: Mapping[str, str]) -> Iterator[str]:
    """Yields what is not as the files have it. lengths: of the sequences before they are cut, (N,); spellings: of
    labels, each with the one that stands for it."""
    if count := int((lengths > task.longest).sum()):
        yield (
            f"{count:,} of {len(lengths):,} sequences {_were(count)} cut at {task.longest:,} steps, and the rest of "
            f"them is not read: --longest {lengths.max()} keeps them whole."
        )
    if said := [f"'{one}' is '{other}'" for one, other in spellings.items()]:
        shown = ", ".join([*said[:5], *(["..."] if len(said) > 5 else [])])
        yield f"Labels that mean the same are one class: {shown}."


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
