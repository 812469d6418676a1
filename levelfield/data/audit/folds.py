"""Scores rules without a sequence model on all examples by cross-validation, where one split is a matter of luck.

    sets = kept_together(groups, inputs)                  # of `data.copies`: which share a group or an input
    fold = folds(sets)                                    # [3, 0, 0, 4, ...]: each set lies in one of five folds
    held_out(task, joined(parts), fold, PROBES["length"]) # the score of every example

Each fold is answered once, as a test split is: rules are fitted to three of the other folds and chosen on the fourth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from levelfield.data.audit.features import Probe, Vocabulary
from levelfield.data.audit.shallow import Counted, answered
from levelfield.spec import Examples, Task, derive_seed

FOLDS = 5


def folds(sets: np.ndarray) -> np.ndarray:
    """Returns the fold of each example, (N,), so that folds are about as large as each other: of sets in a random order
    the largest go first, each to the fold that has least. sets: the number of each example's set, from 0 on, (N,)."""
    sizes = np.bincount(sets)
    drawn = np.random.default_rng(derive_seed(0, "folds")).permutation(len(sizes))
    fold, filled = np.zeros(len(sizes), np.int64), np.zeros(FOLDS)
    for each in drawn[np.argsort(-sizes[drawn], kind="stable")]:
        fold[each] = filled.argmin()
        filled[fold[each]] += sizes[each]
    return fold[sets]


def divided(sets: np.ndarray, fold: np.ndarray) -> int:
    """Returns how many examples have a set that lies in several folds. sets: the number of each one's set, from 0 on,
    (N,). fold: (N,)."""
    least, most = np.full(sets.max() + 1, FOLDS), np.full(sets.max() + 1, -1)
    np.minimum.at(least, sets, fold)
    np.maximum.at(most, sets, fold)
    return int((least < most)[sets].sum())


def joined(parts: Sequence[Examples]) -> Examples:
    """Returns the examples of several splits, whose targets are not at steps, as one, without their slices."""
    ends = np.cumsum([0, *(part.offsets[-1] for part in parts)])
    offsets = [part.offsets[1:] + before for part, before in zip(parts, ends[:-1], strict=True)]
    return Examples(
        np.concatenate([part.x for part in parts]),
        np.concatenate([[0], *offsets]),
        np.concatenate([part.y for part in parts]),
        documents=parts[0].documents,
    )


def held_out(
    task: Task,
    examples: Examples,
    fold: np.ndarray,
    probe: Probe,
    answering: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Returns the score of each example, (N,), by rules that know nothing of its fold or, of signals, no more than the
    levels into which they are cut, which all examples decide. fold: (N,), of which none is empty. answering: told the
    number of each fold before it is answered."""
    features = Vocabulary.of(task, examples).features(probe, examples)

    def part(which: np.ndarray) -> Counted:
        return Counted(features.of(which), examples.y[which])

    scores = np.zeros(len(examples))
    for number in range(FOLDS):
        if answering:
            answering(number)
        test, val = fold == number, fold == (number + 1) % FOLDS
        scores[test] = answered(task, part(~(test | val)), part(val), part(test)).test
    return scores
