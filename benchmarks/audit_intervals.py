"""Simulates how often intervals of scores in audits and reports hold the truth, where examples come in groups.

    python benchmarks/audit_intervals.py                   writes results/audit-intervals.csv, in some 10 minutes
    python benchmarks/audit_intervals.py --draws 50        a look

Each test set has new groups, whose sizes stay. Accuracies: each group is right with a chance of its own. `beta`:
chances have a beta distribution with a correlation from 0, all the same, to 1, all right or all wrong. `fail`: a share
of the groups is right in one of twenty examples, and the others in 99 of 100 or, where that is too much, less. Squared
errors are of normal errors, of errors with Student's t of five or three degrees of freedom, or of ones whose logarithm
is normal with a standard deviation of 0.5; the correlation is that of the squares of normal ones within a group, whose
scale they share. The truth is the expected score of an example of a new group.

`before` are Wilson's interval of as many examples as the design effect leaves, which audits and reports once had, and
the normal interval of squared errors, which reports of own data still have. `wider` is the median of how many times
wider the interval is than that one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro

from levelfield.files import write_text
from levelfield.report.intervals import wilson
from levelfield.report.tables import to_csv
from levelfield.spec.groups import design_effect, equal_groups, independent, limits
from levelfield.spec.quantiles import z_quantile

GROUPS = (5, 10, 20, 40, 80, 200)
CORRELATIONS = (0.0, 0.1, 0.3, 0.6, 1.0)
ACCURACIES = (0.5, 0.8, 0.95, 0.99)
FAILING, WORKING = 0.05, 0.99  # chances in a group that fails, and at most in one that does not
ERRORS = ("normal", "t5", "t3", "lognormal")
FIELDS = ("score", "law", "sizes", "groups", "equal_groups", "correlation", "truth", "held_before", "held", "wider")

Limits = tuple[float, float]


class Case(NamedTuple):
    """What is simulated. draw: makes the scores of a test set, (N,), of each example's group, (N,)."""

    score: str
    law: str
    sizes: str
    groups: np.ndarray
    correlation: float
    truth: float
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]


def numbers(sizes: str, groups: int) -> np.ndarray:
    """Returns the group of each example, (N,). sizes: "heavy", of which a few groups have most, or that of each."""
    if sizes != "heavy":
        return np.repeat(np.arange(groups), int(sizes))
    drawn = np.exp(np.random.default_rng(groups).normal(math.log(15), 1.2, groups))
    return np.repeat(np.arange(groups), np.maximum(1, drawn.round().astype(int)))


def cases() -> Iterator[Case]:
    """Every combination, accuracies first."""
    for sizes, groups in product(("5", "40", "heavy"), GROUPS):
        of = numbers(sizes, groups)
        for truth in ACCURACIES:
            for correlation in CORRELATIONS:
                yield Case("accuracy", "beta", sizes, of, correlation, truth, _right(truth, correlation))
            if truth < 0.99:
                yield Case("accuracy", "fail", sizes, of, _alike(truth), truth, _failing(truth))
    for law, sizes, groups in product(ERRORS, ("1", "10", "heavy"), (20, 40, 80, 200, 1_000)):
        for correlation in (0.0,) if sizes == "1" else (0.0, 0.3):
            of, truth = numbers(sizes, groups), _mean_square(law)
            yield Case("squared error", law, sizes, of, correlation, truth, _squares(law, correlation))


def _right(truth: float, correlation: float) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    def draw(rng: np.random.Generator, of: np.ndarray) -> np.ndarray:
        groups = int(of[-1]) + 1
        if correlation in (0.0, 1.0):
            chances = np.where(rng.random(groups) < truth, 1.0, 0.0) if correlation else np.full(groups, truth)
        else:
            a = (1 - correlation) / correlation
            chances = rng.beta(truth * a, (1 - truth) * a, groups)
        return (rng.random(len(of)) < chances[of]).astype(float)

    return draw


def _share(truth: float) -> tuple[float, float]:
    """Returns the share of groups that fail, and the chance in the others; one in ten fails where nearly all work."""
    failing = max((WORKING - truth) / (WORKING - FAILING), 0.04)
    return failing, (truth - failing * FAILING) / (1 - failing)


def _alike(truth: float) -> float:
    """Returns the correlation within a group that fails or does not."""
    failing, working = _share(truth)
    return failing * (1 - failing) * (working - FAILING) ** 2 / (truth * (1 - truth))


def _failing(truth: float) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    failing, working = _share(truth)

    def draw(rng: np.random.Generator, of: np.ndarray) -> np.ndarray:
        chances = np.where(rng.random(int(of[-1]) + 1) < failing, FAILING, working)
        return (rng.random(len(of)) < chances[of]).astype(float)

    return draw


def _mean_square(law: str) -> float:
    return {"normal": 1.0, "t5": 5 / 3, "t3": 3.0, "lognormal": math.exp(0.5)}[law]


def _squares(law: str, correlation: float) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    """Squares whose scale has a gamma distribution of mean 1 over groups: of variance v, normal ones correlate by
    v / (2 + 3 v)."""
    variance = 2 * correlation / (1 - 3 * correlation)

    def draw(rng: np.random.Generator, of: np.ndarray) -> np.ndarray:
        count, groups = len(of), int(of[-1]) + 1
        errors = {
            "normal": rng.standard_normal,
            "t5": lambda n: rng.standard_t(5, n),
            "t3": lambda n: rng.standard_t(3, n),
            "lognormal": lambda n: np.exp(0.5 * rng.standard_normal(n)),
        }[law](count)
        scale = rng.gamma(1 / variance, variance, groups)[of] if variance else 1.0
        return np.square(errors) * scale

    return draw


def before(case: Case, scores: np.ndarray) -> Limits:
    """The interval that there was once."""
    mean = float(scores.mean())
    count = len(scores) / design_effect(scores - mean, case.groups)
    if case.score == "accuracy":
        return wilson(mean, max(1, round(count)))
    half = z_quantile(0.05) * float(scores.std()) / math.sqrt(count)
    return max(0.0, mean - half), mean + half


def after(case: Case, scores: np.ndarray) -> Limits:
    """The interval that there is."""
    if case.score == "accuracy":
        return wilson(float(scores.mean()), independent(scores, case.groups))
    return limits(scores, case.groups)


def simulate(case: Case, draws: int) -> dict[str, object]:
    """One line of the results file."""
    rng = np.random.default_rng([sum(map(ord, case.law)), len(case.groups), round(1_000 * case.truth)])
    held = np.zeros((draws, 2), bool)
    wider = np.zeros(draws)
    for i in range(draws):
        scores = case.draw(rng, case.groups)
        found = [before(case, scores), after(case, scores)]
        held[i] = [low <= case.truth <= high for low, high in found]
        old, new = (high - low for low, high in found)
        wider[i] = new / old
    few, equal = int(case.groups[-1]) + 1, equal_groups(case.groups)
    line = (case.score, case.law, case.sizes, few, round(equal, 1), round(case.correlation, 2), round(case.truth, 3))
    return dict(zip(FIELDS, (*line, *held.mean(0).round(3).tolist(), round(float(np.median(wider)), 2)), strict=True))


def main(draws: int = 1_000, to: Path = Path("results/audit-intervals.csv")) -> None:
    """Writes a line for every case."""
    lines = []
    for case in cases():
        lines.append(simulate(case, draws))
        print(*lines[-1].values(), flush=True)
    write_text(to, to_csv(lines))


if __name__ == "__main__":
    tyro.cli(main)
