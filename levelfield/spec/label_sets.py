"""Scores sets of labels, and guesses them: what models, rules and simple guesses are scored by alike.

    f1(guessed(likely), true)       # the F1 of each example, (N,), of the sets that probabilities (N, L) suggest
    commonest(train)                # the one set, (L,), that scores best on these examples

Letters: N examples, L labels.
"""

from __future__ import annotations

import math

import numpy as np


def f1(guess: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Returns the F1 of each example, (N,), of two sets of labels, (N, L) bool each; 1 where both are empty."""
    return _f1((guess & true).sum(-1), guess.sum(-1) + true.sum(-1))


def _f1(both: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns F1 from how many labels are in both sets, and how many in the one and in the other together, (N,)."""
    return np.where(sizes > 0, 2 * both / np.maximum(sizes, 1), 1.0)


def guessed(likely: np.ndarray) -> np.ndarray:
    """Returns the set, (N, L) bool, of which F1 is expected to be highest, by the probability of each label, (N, L).

    It is the k likeliest labels, or none, for independent labels: a label of probability p that is guessed and there
    adds 2 / (k + 1 + others) to F1, where `others` is how many of the rest are there, and stands here for its mean.
    """
    ranked = np.argsort(-likely, axis=-1, kind="stable")
    best_first = np.take_along_axis(likely, ranked, -1)
    total, count = likely.sum(-1, keepdims=True), np.arange(1, likely.shape[-1] + 1)
    found = np.cumsum(best_first, -1)
    own = np.cumsum(best_first**2, -1) / np.maximum(found, 1e-12)  # the mean p of those that are there
    expected = 2 * found / (count + 1 + total - own)
    nothing = np.prod(1 - likely, -1, keepdims=True)
    chosen = np.argmax(np.concatenate([nothing, expected], -1), -1)  # how many labels, (N,)
    made = np.zeros(likely.shape, bool)
    np.put_along_axis(made, ranked, np.arange(likely.shape[-1]) < chosen[:, None], -1)
    return made


def commonest(train: np.ndarray) -> np.ndarray:
    """Returns the set, (L,) bool, of the k commonest labels, for the k that scores best on train, (N, L)."""
    true = train > 0
    ranked = np.argsort(-true.mean(0), kind="stable")
    both, size = np.zeros(len(true), int), true.sum(1)
    best, most = -1.0, 0
    for count in range(true.shape[1] + 1):
        if count:
            both += true[:, ranked[count - 1]]
        if (score := float(_f1(both, size + count).mean())) > best:
            best, most = score, count
    made = np.zeros(true.shape[1], bool)
    made[ranked[:most]] = True
    return made


def chance(true: np.ndarray) -> float:
    """Returns the expected F1 on examples, (N, L), of a fair coin for each label.

    Of m labels that are guessed, m t / L are expected to be among the t true ones, so that F1 is 2 m t / (L (m + t)).
    """
    labels = true.shape[1]
    sizes, counts = np.unique((true > 0).sum(1), return_counts=True)
    guesses = np.arange(labels + 1)
    logs = [math.lgamma(labels + 1) - math.lgamma(m + 1) - math.lgamma(labels - m + 1) for m in guesses.tolist()]
    drawn = np.exp(np.array(logs) - labels * math.log(2))
    each = [float(drawn @ (2 * guesses * t / (labels * np.maximum(guesses + t, 1)))) if t else drawn[0] for t in sizes]
    return float(np.average(each, weights=counts))
