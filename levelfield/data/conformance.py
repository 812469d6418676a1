"""Checks, before a task's splits are written to disk, that they are what the task declares.

    check(task, splits)     # UserError: mine: train has labels from 0 to 10, but the output is Label(classes=10): ...

A wrong label or an empty sequence would otherwise end a run far from where it was made, in an error of the model's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from levelfield.spec import SPLITS, Examples, Label, LabelSet, Signal, StepLabels, Task, Tokens, UserError, Values

INTEGERS, NUMBERS = "biu", "biuf"  # kinds of dtype
PARTING = re.compile("[,;<=]")  # what parts the keys and values of a place in rows, as in length=64,remedy=none
UNKNOWN = ("uint32", "uint64", "float128", "longdouble")  # unknown to torch, or to its operators


MEMBERS = {
    "name": "what reports and folders call it",
    "version": "1, and raise it with the data",
    "source": "citation and licence",
    "split_rule": "where the splits come from",
}
"""What the class of a task has to say, and what that is."""


def check_members(task: Task) -> None:
    """Raises UserError for a task whose class does not say what a task has to say of itself."""
    for member, meaning in MEMBERS.items():
        if not getattr(task, member, ""):
            raise UserError(f"Task {getattr(task, 'name', type(task).__name__)} has no `{member}`: say {meaning}.")
    if not isinstance(task.version, int) or task.version < 1:
        raise UserError(f"Task {task.name} has version {task.version!r}: count from 1, and raise it with the data.")


def check(task: Task, splits: Mapping[Any, Examples]) -> None:
    """Raises UserError, one sentence, for the first thing that is not as declared."""
    for fault in _declared(task):
        raise UserError(f"Task {task.name} {fault}")
    for split in SPLITS:
        if not isinstance(splits, Mapping) or not isinstance(splits.get(split), Examples):
            raise UserError(f"Task {task.name} builds no split '{split}': return Examples for train, val and test.")
        for fault in _faults(task, splits[split]):
            raise UserError(f"Task {task.name}, split {split}: {fault}")


def _declared(task: Task) -> Iterator[str]:
    """What is wrong with the declaration itself."""
    spec, output = task.input, task.output
    if isinstance(spec, Tokens) and spec.symbols < 1:
        yield f"declares Tokens(symbols={spec.symbols}): give 1 or more."
    if isinstance(spec, Signal):
        if spec.channels < 1 or not len(spec.shift) == len(spec.scale) == spec.channels:
            yield f"declares a signal of {spec.channels} channels: give a shift and a scale for each of 1 or more."
        if not all(np.isfinite([*spec.shift, *spec.scale])) or 0 in spec.scale:
            yield "declares a shift or scale that is not finite, or a scale of 0: values are (raw - shift) / scale."
    if isinstance(output, Label | LabelSet | StepLabels) and output.classes < 2:
        yield f"declares {output.classes} classes: give 2 or more."
    if isinstance(output, Values) and output.dims < 1:
        yield f"declares values of {output.dims} dimensions: give 1 or more."
    if task.max_length < 1:
        yield f"declares a max_length of {task.max_length}: give 1 or more."
    if not np.isfinite(task.chance):
        yield f"declares a chance of {task.chance}: give the score of guessing."


def _faults(task: Task, examples: Examples) -> Iterator[str]:
    """What is wrong with a split; each check supposes that those before it found nothing."""
    for name, array in (("x", examples.x), ("offsets", examples.offsets), ("y", examples.y)):
        if not isinstance(array, np.ndarray) or not array.dtype.isnative or array.dtype.name in UNKNOWN:
            yield f"{name} is {_form(np.asarray(array))}: give a NumPy array of a type that torch has."
    yield from _shape(task, examples)
    yield from _inputs(task, examples.x)
    yield from _targets(task, examples)
    for name, column in examples.slices.items():
        if np.shape(column) != (len(examples),) or np.asarray(column).dtype.hasobject:
            yield f"the slice '{name}' must have one number or text for each of the {len(examples)} examples."
        texts = [name, *(map(str, np.unique(column)) if np.asarray(column).dtype.kind in "US" else ())]
        if marked := next((text for text in texts if PARTING.search(text)), None):
            yield f"the slice '{name}' has '{marked}', but , ; < and = part places in rows: write another character."


def _shape(task: Task, examples: Examples) -> Iterator[str]:
    offsets, total = np.asarray(examples.offsets), len(examples.x)
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or not len(offsets):
        yield "offsets must be whole numbers in one dimension, one more than there are sequences."
    if len(offsets) < 2:
        yield "it is empty: give at least one example."
    if offsets[0] != 0 or offsets[-1] != total:
        yield f"offsets run from {offsets[0]} to {offsets[-1]}, but x has {total} steps: they must span it."
    if examples.documents != task.documents or (len(offsets) - 1) % task.documents:
        yield (
            f"{len(offsets) - 1} sequences of {examples.documents} documents each do not make examples of "
            f"{task.documents}: pass documents={task.documents} to Examples."
        )
    lengths = np.diff(offsets.astype(np.int64))
    if lengths.min() < 1:
        yield f"sequence {int(lengths.argmin())} has no steps: leave it out, or give it at least one."
    if lengths.max() > task.max_length:
        yield (
            f"sequence {int(lengths.argmax())} has {lengths.max()} steps, but max_length is {task.max_length}: cut it, "
            "or declare more."
        )


def _inputs(task: Task, x: np.ndarray) -> Iterator[str]:
    spec = task.input
    if isinstance(spec, Tokens):
        if x.ndim != 1 or x.dtype.kind not in INTEGERS:
            yield f"x is {_form(x)}, but the input is tokens: give whole numbers, one a step."
        low, high = x.min(), x.max()
        if low < 0 or high >= spec.symbols:
            most = spec.symbols - 1
            yield f"symbols run from {low} to {high}, but the input has {spec.symbols}: they are 0 to {most}."
        return
    if x.ndim != 2 or x.shape[1] != spec.channels or x.dtype.kind not in NUMBERS:
        yield f"x is {_form(x)}, but the input is a signal: give numbers of shape (steps, {spec.channels})."
    low, high = x.min(), x.max()  # of which NaN is part where there is one
    if not np.isfinite([low, high]).all():
        yield "x has values that are not finite: leave them out or fill them in."
    if spec.levels is not None and (low < 0 or high >= spec.levels or (x[:: max(1, len(x) // 10**6)] % 1).any()):
        yield f"values run from {low} to {high}, but are declared as levels: whole numbers, 0 to {spec.levels - 1}."


def _targets(task: Task, examples: Examples) -> Iterator[str]:
    y, output = np.asarray(examples.y), task.output
    stepwise = isinstance(output, StepLabels)
    if examples.stepwise != stepwise:
        yield f"stepwise is {examples.stepwise}, but the output is {type(output).__name__}: pass stepwise={stepwise}."
    count = len(examples.x) if stepwise else len(examples)
    if len(np.atleast_1d(y)) != count:
        yield f"y has {len(np.atleast_1d(y))} targets for {count} {'steps' if stepwise else 'examples'}: give one each."
    if isinstance(output, Label | StepLabels):
        if y.ndim != 1 or y.dtype.kind not in INTEGERS:
            yield f"y is {_form(y)}, but the output is labels: give whole numbers in one dimension."
        least = -1 if stepwise else 0
        if y.min() < least or y.max() >= output.classes:
            yield (
                f"labels run from {y.min()} to {y.max()}, but the output has {output.classes} classes: they are "
                f"{least} to {output.classes - 1}."
            )
        if y.max() < 0:
            yield "no step has a target: all are -1."
    if isinstance(output, LabelSet):
        if y.dtype.kind not in INTEGERS or y.shape != (count, output.classes):
            yield (
                f"y is {_form(y)}, but the output is a set of {output.classes} labels: give whole numbers of shape "
                f"({count}, {output.classes})."
            )
        if y.min() < 0 or y.max() > 1:
            yield f"y has numbers from {y.min()} to {y.max()}, but says of each label whether it is there: 0 or 1."
    if isinstance(output, Values):
        if y.dtype.kind not in NUMBERS or y.size != count * output.dims:
            yield f"y is {_form(y)}, but the output is {output.dims} values an example: give ({count}, {output.dims})."
        if not np.isfinite(y).all():
            yield "y has values that are not finite: leave these examples out."


def _form(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {tuple(array.shape)}"
