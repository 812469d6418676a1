"""Checks a study's intervals by another method: a bootstrap over seeds and test examples, crossed, by SciPy.

    pip install scipy
    tar -xJf results/amos2025_small-overnight/runs.tar.xz -C runs
    python benchmarks/crossed_bootstrap.py --runs runs --task listops

All runs of a task score the same test examples in the same order, so two arms are compared example by example. Seeds
and examples are drawn with replacement, independently of each other (Owen 2007, "The pigeonhole bootstrap"). With three
seeds such an interval is too narrow: the bootstrap cannot see a seed beyond those at hand. The rule that decides
(`report.decisions`) takes Student's t for them and no arm to scatter less than all arms together. So it should be the
wider one throughout, and both should have the same middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro
from scipy import stats

from levelfield.files import read_rows, write_text
from levelfield.report.decisions import Seeds, difference
from levelfield.report.same_examples import Right
from levelfield.report.scatter import Scatter
from levelfield.report.tables import to_csv
from levelfield.runs import store

FIELDS = ("task", "arm", "other", "seeds", "examples", "points", "low", "high", "ours_low", "ours_high")
RESAMPLES = 2_000


class Arm(NamedTuple):
    """Scores of one arm, (seeds, examples), 0 or 1."""

    name: str
    scores: np.ndarray


def arms(runs: Path, task: str) -> list[Arm]:
    """Returns the arms of a task with at least two complete runs that kept their scores, in the order of names."""
    found: dict[str, list[np.ndarray]] = {}
    for where in sorted(path.parent for path in runs.glob(f"*/{store.SCORES}")):
        row, scores = read_rows(where / store.ROWS)[0], store.read_scores(where)
        if row["task"] == task and scores is not None and store.complete(where):
            found.setdefault(f"{row['model']} {row['protocol']}", []).append(scores)
    return [Arm(name, np.stack(each)) for name, each in found.items() if len(each) > 1]


def crossed(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % interval of the difference of two arms, each (seeds, examples), in points."""

    def points(own: np.ndarray, others: np.ndarray, examples: np.ndarray) -> float:
        return 100 * float(one[np.ix_(own, examples)].mean() - other[np.ix_(others, examples)].mean())

    places = tuple(np.arange(n) for n in (len(one), len(other), one.shape[1]))
    found = stats.bootstrap(
        places, points, n_resamples=RESAMPLES, vectorized=False, method="percentile", rng=np.random.default_rng(0)
    )
    return found.confidence_interval.low, found.confidence_interval.high


def compared(task: str, found: Sequence[Arm], scatter: Scatter) -> list[dict[str, object]]:
    """Returns a line for each two arms."""
    lines: list[dict[str, object]] = []
    for one, other in combinations(found, 2):
        examples = one.scores.shape[1]
        mine, theirs = (
            Seeds(tuple(100 * arm.scores.mean(1)), examples, right=Right(task, arm.scores)) for arm in (one, other)
        )
        span = difference(mine, theirs, 0.0, scatter).span()
        ours = (span.low, span.high) if span else (float("nan"), float("nan"))
        low, high = crossed(one.scores, other.scores)
        numbers = (mine.mean - theirs.mean, low, high, *ours)
        texts = (task, one.name, other.name, len(one.scores), examples)
        lines.append(dict(zip(FIELDS, (*texts, *(f"{number:.2f}" for number in numbers)), strict=True)))
    return lines


def main(runs: Path, task: str, to: Path = Path("results/crossed-bootstrap.csv")) -> None:
    """Writes both intervals of every two arms of a task."""
    found = arms(runs, task)
    lines = compared(task, found, Scatter.pooled([(100 * arm.scores.mean(1)).tolist() for arm in found]))
    for line in lines:
        print(*line.values())
    write_text(to, to_csv(lines))


if __name__ == "__main__":
    tyro.cli(main)
