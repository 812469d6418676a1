"""Puts examples that are duplicates of each other, exact or near, into sets, such as are kept in one fold.

    sets(task.input, examples)      # [0, 1, 0, 2]: the first and the third are duplicates

`duplicates.py` says what a near duplicate is. What is near a near duplicate is in the set too, though it may not be
near the first; so sets are the connected components of pairs. Of symbols these are the pairs that are counted there.
Pictures, and signals that are few or short enough to be ranked by all their values, are compared all with all. Of other
signals the 32 likeliest of each are measured, so that a set of more than that may come apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from levelfield.data import correlated, duplicates
from levelfield.spec import Examples, Input, Progress, Tokens, no_progress


def sets(
    kind: Input, examples: Examples, progress: Progress = no_progress, *, folded: Examples | None = None
) -> np.ndarray:
    """Returns the number of the set of each example, (N,), from 0 on. folded: the examples in the form in which near
    duplicates are looked for, as `Task.folded` has them."""
    texts = folded or examples
    found = _together([duplicates.hashed(each, each.documents) for each in (examples, texts)])
    for pairs in _near(kind, texts, found, progress):
        found = joined(found, pairs)
    return np.unique(found, return_inverse=True)[1]


def kept_together(*kinds: np.ndarray) -> np.ndarray:
    """Returns the number of the set of each example, (N,), from 0 on: those that share a number, directly or by way of
    others, are one set.

    kinds: numbers of which equal ones belong together, such as those of groups and those of inputs, (N,) each.
    """
    return np.unique(_together(kinds), return_inverse=True)[1]


def _together(kinds: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the least example of the set of each, (N,)."""
    found = np.arange(len(kinds[0]))
    for kind in kinds:
        _, first, number = np.unique(kind, return_index=True, return_inverse=True)
        found = joined(found, np.stack([np.arange(len(kind)), first[number]], 1))
    return found


def joined(of: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Returns the least example of the set of each, (N,), once the sets of each pair are one. of: the same before,
    (N,). pairs: (M, 2)."""
    of = of.copy()
    while True:
        ends = of[pairs]
        apart = ends[:, 0] != ends[:, 1]
        if not apart.any():
            return of
        pairs, ends = pairs[apart], ends[apart]
        np.minimum.at(of, ends.max(1), ends.min(1))
        while (of != of[of]).any():
            of = of[of]


def _near(kind: Input, examples: Examples, exact: np.ndarray, progress: Progress) -> Iterator[np.ndarray]:
    """Yields pairs of near duplicates, (M, 2) each. exact: the number of the set of exact ones, (N,)."""
    if not isinstance(kind, Tokens):
        yield from correlated.near_pairs(examples, progress)
        return
    from levelfield.data import shingled  # which compiles

    repeated = np.bincount(exact, minlength=len(exact))[exact] > 1
    yield shingled.near_pairs(repeated[:, None], {"all": examples}, progress)[0]
