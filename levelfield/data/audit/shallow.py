"""Scores rules that read no sequence: naive Bayes and ridge regression on features that have lost the order.

    for probe in PROBES:
        answer = score(task, splits, probe)       # Answer("2-grams", "accuracy", test scores, ...)

Of naive Bayes and ridge regression, with several strengths of smoothing each, the one that is best on validation
answers the test split, once. What such a rule gets, a benchmark gives away without any sequence model. For labels at
steps there are other rules (`steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from levelfield.data.audit.features import (
    BUCKETS,
    Features,
    Probe,
    Vocabulary,
    ends,
    lengths,
    ngrams,
    positions,
)
from levelfield.spec import SPLITS, Examples, Label, LabelSet, SplitName, Task
from levelfield.spec.label_sets import f1, guessed

VERSION = 10  # of facts and rules: another one when either changes, so that what earlier audits have kept is not used
CHOSEN = 1_024  # features that ridge regression sees, those that the training targets depend on most
SMOOTHING = (1.0, 0.01)  # counts added by naive Bayes
PENALTIES = (1e-3, 1e-1, 1e1)  # of ridge regression, times the number of examples
MOST_CLASSES = 64  # beyond which there is no naive Bayes, whose tables would be large

PROBES: Mapping[str, Probe] = {
    "length": lengths,
    **{f"first {k}": partial(ends, steps=k) for k in (1, 8, 32)},
    **{f"last {k}": partial(ends, steps=-k) for k in (1, 8, 32)},
    "positions": positions,
    **{f"{n}-grams": partial(ngrams, n=n) for n in (1, 2, 3, 5)},
}
"""What is counted, by the name that rows and pages have for it; simpler things first."""


@dataclass(frozen=True)
class Answer:
    """What a rule scores: 1 or 0 for each test example, F1, or minus the squared error; and its mean on validation.

    rule: the kind of rule that validation chose. later: of a rule for steps that knows the latest few, what it and the
    commonest label score after so many first steps, (2, N), NaN for an example without such steps.
    """

    rule: str
    test: np.ndarray
    validation: float
    later: np.ndarray | None = None


class Counted(NamedTuple):
    """What a split has: the features of its examples, and their targets, (N,) or (N, columns)."""

    features: Features
    y: np.ndarray


def score(task: Task, splits: Mapping[SplitName, Examples], probe: Probe) -> Answer:
    """Fits every rule to train, chooses on val and answers test."""
    vocabulary = Vocabulary.of(task, splits["train"])
    train, val, test = (
        Counted(vocabulary.features(probe, split), split.y) for split in (splits[name] for name in SPLITS)
    )
    return answered(task, train, val, test)


def answered(task: Task, train: Counted, val: Counted, test: Counted) -> Answer:
    """Does what `score` does, where features are counted already."""
    goal = _Goal.of(task, train.y)
    best: tuple[float, str, Predict] | None = None
    for rule, predict in _rules(goal, train.features):
        validation = float(goal.scores(predict(val.features, len(val.y)), val.y).mean())
        if best is None or validation > best[0]:
            best = validation, rule, predict
    assert best is not None
    validation, rule, predict = best
    return Answer(rule, goal.scores(predict(test.features, len(test.y)), test.y), validation)


class _Goal(NamedTuple):
    """What is predicted: one column for each class or label (1 or 0), or the numbers, (N, columns) of the training
    split. labels: the class of each example, where it has one. sets: whether columns are labels of a set."""

    targets: np.ndarray
    labels: np.ndarray | None
    sets: bool = False

    @staticmethod
    def of(task: Task, y: np.ndarray) -> _Goal:
        if isinstance(task.output, Label):
            labels = np.asarray(y, np.int64)
            return _Goal(np.eye(task.output.classes)[labels], labels)
        columns = np.asarray(y, np.float64).reshape(len(y), -1)
        return _Goal(columns, None, isinstance(task.output, LabelSet))

    def scores(self, predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Returns the score of each example, (N,), for predictions of shape (N, columns)."""
        if self.labels is not None:
            return (predicted.argmax(1) == y).astype(np.float64)
        if self.sets:
            return f1(guessed(predicted.clip(0, 1)), np.asarray(y) > 0)
        return -np.square(predicted - np.asarray(y).reshape(len(predicted), -1)).mean(1)


Predict = Callable[[Features, int], np.ndarray]


def _rules(goal: _Goal, train: Features) -> Iterator[tuple[str, Predict]]:
    """Yields each rule, fitted."""
    if goal.labels is not None and goal.targets.shape[1] <= MOST_CLASSES:
        yield from _naive_bayes(goal, train)
    yield from _ridge(goal, train)


def _naive_bayes(goal: _Goal, train: Features) -> Iterator[tuple[str, Predict]]:
    """Multinomial naive Bayes on counts, to which what the training split has not says nothing: smoothed, it would be
    likeliest in the class that has least."""
    assert goal.labels is not None
    classes = goal.targets.shape[1]
    keys = train.bucket * classes + goal.labels[train.example]
    counts = np.bincount(keys, train.times, BUCKETS * classes).reshape(BUCKETS, classes)
    there = counts.any(1)
    seen, whole = counts[there], counts.sum(0)
    prior = np.log((goal.targets.sum(0) + 1) / (len(goal.targets) + classes))
    for added in SMOOTHING:
        logs = np.zeros_like(counts)
        logs[there] = np.log((seen + added) / (whole + added * max(1, len(seen))))

        def predict(found: Features, examples: int, logs: np.ndarray = logs) -> np.ndarray:
            sums = [np.bincount(found.example, found.times * logs[found.bucket, c], examples) for c in range(classes)]
            return prior + np.stack(sums, 1)

        yield f"naive Bayes, {added:g} added", predict


def _ridge(goal: _Goal, train: Features) -> Iterator[tuple[str, Predict]]:
    """Ridge regression on the logarithms of counts, standardised, by one decomposition for all penalties."""
    count = len(goal.targets)
    centred = goal.targets - goal.targets.mean(0)
    chosen = _dependent(centred, train)
    place = np.full(BUCKETS, -1)
    place[chosen] = np.arange(len(chosen))
    x = _dense(train, place, len(chosen), count)
    middle, scale = x.mean(0), np.where(x.std(0) > 0, x.std(0), 1.0)
    x = (x - middle) / scale
    values, vectors = np.linalg.eigh(x.T @ x)
    along = vectors.T @ (x.T @ centred)
    for penalty in PENALTIES:
        weights = vectors @ (along / (values + penalty * count)[:, None])

        def predict(found: Features, examples: int, weights: np.ndarray = weights) -> np.ndarray:
            seen = (_dense(found, place, len(chosen), examples) - middle) / scale
            return seen @ weights + goal.targets.mean(0)

        yield f"ridge regression, penalty {penalty:g}", predict


def _dependent(centred: np.ndarray, train: Features) -> np.ndarray:
    """Returns the buckets on whose presence the targets depend most in the training split, at most CHOSEN."""
    present = np.bincount(train.bucket, minlength=BUCKETS)
    dependence = np.zeros(BUCKETS)
    for column in centred.T:
        dependence += np.square(np.bincount(train.bucket, column[train.example], BUCKETS))
    ranked = np.argsort(-dependence / np.maximum(present, 1), kind="stable")[:CHOSEN]
    return ranked[present[ranked] > 0]


def _dense(found: Features, place: np.ndarray, columns: int, examples: int) -> np.ndarray:
    out = np.zeros((examples, columns))
    here = place[found.bucket] >= 0
    out[found.example[here], place[found.bucket[here]]] = np.log1p(found.times[here])
    return out
