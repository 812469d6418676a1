"""Scores rules without a sequence model where an answer stands at each of many steps: tables of what stands near.

    for name, context in contexts(task.output).items():
        answer = score(task, splits, context)       # Answer("table", share of each test example's labels, ...)

A context is a number for every step. The rule answers a step with the label that is commonest in training at steps of
that context, and with the commonest of all where training has none. No context knows a later step. A rule that knows
the latest few symbols is also scored after so many first steps alone, since of a running sum it has nothing but these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from levelfield.data.audit.features import SPREAD, Vocabulary, places
from levelfield.data.audit.shallow import Answer
from levelfield.spec import Examples, SplitName, StepLabels, Task


class Context(NamedTuple):
    """What a rule knows of a step.

    number: the context of every step, (total,) int64, from the codes of a split, (total,). steps: how many it knows,
    up to that step; 0 where it is no such window.
    """

    number: Callable[[np.ndarray, Examples], np.ndarray]
    steps: int = 0


def anything(codes: np.ndarray, examples: Examples) -> np.ndarray:
    """The same context at all steps."""
    return np.zeros(len(codes), np.int64)


def place(codes: np.ndarray, examples: Examples) -> np.ndarray:
    """The number of the step."""
    return places(examples, from_end=False)


def latest(codes: np.ndarray, examples: Examples, steps: int) -> np.ndarray:
    """The symbols of the last `steps` steps, that of the step itself included; fewer at the beginning."""
    at, found = places(examples, from_end=False), np.zeros(len(codes), np.uint64)
    for back in reversed(range(steps)):
        symbols = np.where(at >= back, np.roll(codes, back) + 1, 0)
        found = found * SPREAD + symbols.astype(np.uint64)
    return found.view(np.int64)


def shown(codes: np.ndarray, examples: Examples) -> np.ndarray:
    """The symbol behind the last step before that had a label, which in many tasks tells that label; 0 before any."""
    at, step = places(examples, from_end=False), np.arange(len(codes))
    behind = (at > 0) & np.roll(np.asarray(examples.y) >= 0, 1)
    last = np.maximum.accumulate(np.where(behind, step, -1))
    return np.where(last >= step - at, codes[last] + 1, 0)


def contexts(output: StepLabels) -> Mapping[str, Context]:
    """Returns contexts by the names that rows and pages have for them, simpler ones first.

    Where one state of the whole sequence answers at all steps, the symbol of a step is no simple thing to know, so that
    only what knows no symbols is left.
    """
    unread = {"commonest": Context(anything), "place": Context(place)}
    if output.pooled:
        return unread
    windows = {f"latest {n}": Context(partial(latest, steps=n), n) for n in (1, 2, 3)}
    return {**unread, **windows, "shown": Context(shown)}


def score(task: Task, splits: Mapping[SplitName, Examples], context: Context) -> Answer:
    """Fits a table to train, and answers val and test by it."""
    vocabulary = Vocabulary.of(task, splits["train"])

    def asked(split: SplitName) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The steps with labels, the contexts there, and the labels."""
        examples = splits[split]
        at = np.flatnonzero(np.asarray(examples.y) >= 0)
        return at, context.number(vocabulary.codes(examples), examples)[at], np.asarray(examples.y[at], np.int64)

    _, seen, labels = asked("train")
    known, which = np.unique(seen, return_inverse=True)
    pairs, counts = np.unique(np.stack([which, labels]), axis=1, return_counts=True)
    order = np.argsort(counts, kind="stable")
    table = np.zeros(len(known), np.int64)
    table[pairs[0, order]] = pairs[1, order]  # the last one written is the commonest
    commonest = np.bincount(labels).argmax()

    def answered(split: SplitName) -> np.ndarray:
        """Tells which steps are right, (total,)."""
        at, found, wanted = asked(split)
        row = np.minimum(np.searchsorted(known, found), len(known) - 1)
        right = np.zeros(len(splits[split].y), bool)
        right[at] = np.where(known[row] == found, table[row], commonest) == wanted
        return right

    test, right = splits["test"], answered("test")
    validation = float(shares(answered("val"), splits["val"]).mean())
    return Answer("table", shares(right, test), validation, _later((right, test.y == commonest), test, context.steps))


def _later(right: tuple[np.ndarray, ...], examples: Examples, steps: int) -> np.ndarray | None:
    """Returns the share of each example's labels after its first `steps` that are right, for each of `right`, (K, N),
    NaN where it has none; None where no label stands at one of the first steps, or none after them."""
    told = np.asarray(examples.y) >= 0
    later = told & (places(examples, from_end=False) >= steps)
    if not later.any() or later.sum() == told.sum():
        return None
    counts, *hits = (
        np.add.reduceat(w.astype(float), examples.offsets[:-1]) for w in (later, *(r & later for r in right))
    )
    return np.stack(hits) / np.where(counts > 0, counts, np.nan)


def shares(right: np.ndarray, examples: Examples) -> np.ndarray:
    """Returns the share of each example's labelled steps that are right, (N,). right: (total,), False without label."""
    told = np.asarray(examples.y) >= 0
    sums = [np.add.reduceat(which.astype(np.int64), examples.offsets[:-1]) for which in (right, told)]
    return sums[0] / np.maximum(sums[1], 1)
