"""Guesses the value of ListOps expressions from their outermost levels alone.

    likeliest(train, test, 1)      # from the operator at the root and its arguments, each a digit or an operator

Of an expression further inside, only its operator is read. Its value is taken to have the distribution that the labels
of this operator have in train, and the answer is the value that is then the likeliest.
"""

from __future__ import annotations

import numpy as np

from levelfield.spec import Examples, derive_seed
from levelfield.tasks._listops.second_value import values

OPERATORS, CLOSE = range(10, 14), 14  # symbols
DRAWS = 100
"""Times that the values of inner expressions are drawn. With 3,000, scores differ by less than half a point."""


def likeliest(train: Examples, test: Examples, levels: int) -> np.ndarray:
    """Returns the likeliest value of each expression of test to a reader of so many levels: (tests,) int64.

    levels: 0 reads the operator at the root, 1 its arguments too, 2 theirs. An expression that has no more levels is
    evaluated. Draws are the same in every call.
    """
    x, starts = _outermost(test, levels)
    answers = {operator: _answers(train, operator) for operator in OPERATORS}
    inner = {operator: np.flatnonzero(x == operator + CLOSE) for operator in OPERATORS}
    random = np.random.default_rng(derive_seed(0, "listops", "levels", levels))
    votes = np.zeros((len(test), 10), np.int64)
    for _ in range(DRAWS):
        for operator, at in inner.items():
            x[at] = random.choice(answers[operator], len(at))
        votes[np.arange(len(test)), values(x, starts)] += 1
    return votes.argmax(1)


def _outermost(test: Examples, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (total,) symbols of the outermost levels and (N + 1,) offsets. An inner expression is one symbol, its
    operator's plus CLOSE."""
    x, offsets = np.asarray(test.x), np.asarray(test.offsets)
    opens, closes = (x >= OPERATORS[0]) & (x < CLOSE), x == CLOSE
    level = np.cumsum(opens.astype(int) - closes) + closes  # of the innermost expression that a symbol belongs to
    inner = opens & (level == levels + 1)
    kept = inner | (level <= levels)
    return np.where(inner, x + CLOSE, x)[kept], np.concatenate([[0], np.cumsum(kept)])[offsets]


def _answers(train: Examples, operator: int) -> np.ndarray:
    """Returns the labels of the expressions with this operator at the root; of all, where there is none."""
    of_operator = np.asarray(train.x)[np.asarray(train.offsets)[:-1]] == operator
    return train.y[of_operator] if of_operator.any() else train.y
