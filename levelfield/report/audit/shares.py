"""Computes which share of what can be learnt on a dataset each arm of an audit has, with intervals, as rows.

    findings([Scored("window9", "window", 0.81, scores), ...], floor)

The reference is the arm that is best on validation. A share is (arm - guessing) / (reference - guessing), on the same
test examples. Its 95 % interval is the bootstrap's: test examples are drawn anew for all arms together, and the seeds
of each arm for itself. Whether anything is learnable is decided first, at 1 %, and nothing has a share where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from levelfield.report.intervals import wilson
from levelfield.spec import Row

DRAWS = 1_000
LEARNT = 0.01  # how often nothing may pass for something, two-sided
FEWEST = 100  # test examples below which nothing is claimed

RULE, WINDOW, FREE, DISORDERED = "rule", "window", "free", "disordered"


class Scored(NamedTuple):
    """One arm. kind: what it is an instance of; place: of a window its steps. scores: (seeds, N), of the same test
    examples in all arms; right or wrong as 1 or 0, or minus a squared error. validation: the mean score there."""

    name: str
    kind: str
    validation: float
    scores: np.ndarray
    place: str = ""


def findings(arms: Sequence[Scored], floor: np.ndarray) -> list[Row]:
    """Returns rows of every arm: score and share, each with `_low` and `_high`; and of what is learnable.

    floor: the scores of the rule that guesses best, (N,).
    """
    reference = max(arms, key=lambda arm: arm.validation)
    count = len(floor)
    rows = [_row("guessing", "score", float(floor.mean()), count)]
    drawn = _Drawn.of(arms, floor)
    gain = drawn.means[reference.name] - drawn.floor
    learnt = count >= FEWEST and bool(np.quantile(gain, LEARNT / 2) > 0)
    rows.append(_row(reference.name, "learnable", float(learnt), count))
    for arm in arms:
        at = f"{arm.kind}={arm.place or arm.name}"
        mean = float(arm.scores.mean())
        rows += _three(arm.name, "score", (mean, *_limits(arm.scores, drawn.means[arm.name])), at, count)
        rows.append(_row(arm.name, "validation", arm.validation, count, at))
        if learnt:
            share = (mean - floor.mean()) / (reference.scores.mean() - floor.mean())
            shares = (drawn.means[arm.name] - drawn.floor) / np.maximum(gain, 1e-12)
            low, high = np.quantile(shares, (0.025, 0.975))
            rows += _three(arm.name, "share", (float(share), float(low), float(high)), at, count)
    return rows


class _Drawn(NamedTuple):
    """Means over test sets drawn anew: of guessing, (DRAWS,), and of each arm."""

    floor: np.ndarray
    means: dict[str, np.ndarray]

    @staticmethod
    def of(arms: Sequence[Scored], floor: np.ndarray) -> _Drawn:
        rng = np.random.default_rng(0)
        count = len(floor)
        times = rng.multinomial(count, np.full(count, 1 / count), DRAWS) / count
        means = {}
        for arm in arms:
            seeds = len(arm.scores)
            weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), DRAWS) / seeds
            means[arm.name] = ((times @ arm.scores.T.astype(np.float64)) * weights).sum(1)
        return _Drawn(times @ floor.astype(np.float64), means)


def _limits(scores: np.ndarray, drawn: np.ndarray) -> tuple[float, float]:
    """Returns the interval of a mean: Wilson's for one seed of right and wrong, else the bootstrap's."""
    if len(scores) == 1 and np.isin(scores, (0, 1)).all():
        return wilson(float(scores.mean()), scores.shape[1])
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def _three(name: str, metric: str, values: tuple[float, float, float], at: str, count: int) -> Iterator[Row]:
    for ending, value in zip(("", "_low", "_high"), values, strict=True):
        yield _row(name, metric + ending, value, count, at)


def _row(name: str, metric: str, value: float, count: int, at: str = "") -> Row:
    row = Row(source="levelfield", model=name, protocol="none", split="test", metric=metric, value=value, n=count)
    return row | Row(at=at) if at else row
