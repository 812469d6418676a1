"""Draws a report's rows of seeds that scatter in a given way around true scores: what `false_alarms` feeds to verdicts.

rows_of(case, "places", seeds=5, draw=np.random.default_rng(0))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from levelfield.runs.hits import Hits, with_hits
from levelfield.spec import Row

Law = Literal["bell", "unequal", "loud", "plateaus", "fail", "places"]
EXAMPLES = 2_000
ALIKE = 0.6  # share of the variance of how hard an example is that all arms of a task have in common
GUESS, LEVEL = 10.0, 60.0  # percent: of guessing, and of an arm that has learnt


@dataclass(frozen=True)
class Cell:
    """An arm with its true score in percent, or R2 in percent of the variance."""

    task: str
    model: str
    protocol: str
    truth: float
    at: str = ""
    metric: str = "accuracy"


@dataclass(frozen=True)
class Case:
    """A rule and a truth at which it has nothing to decide. decided: what it says of the rows, subject by subject."""

    rule: str
    truth: str
    cells: tuple[Cell, ...]
    decided: Callable[[Sequence[Row]], Sequence[int]]
    paired: bool = False  # the cells of a model are of the same trained weights

    def has(self, law: Law) -> bool:
        """Whether seeds may scatter in this way, and the truth is still where nothing can rightly be decided.

        Near 100 %, where R2 is asked for, seeds that fail or fall are not made up for by others: the mean of an arm is
        below its truth, which decides a question about that arm alone.
        """
        if law in ("fail", "plateaus") and any(cell.metric == "r2" for cell in self.cells):
            return False
        return law != "places" or any(self.of_places(cell) for cell in self.cells)

    def arm(self, cell: Cell) -> tuple[str, str, str]:
        """What was trained: all cells of a model where they are of the same weights."""
        return cell.task, cell.model, "" if self.paired else cell.protocol

    def of_places(self, cell: Cell) -> bool:
        """Whether a cell is one of several places of the same trained weights."""
        return self.paired or cell.at.startswith("length=")


def rows_of(case: Case, law: Law, seeds: int, draw: np.random.Generator) -> list[Row]:
    """A report's rows: noise between seeds, then noise of the test examples, which all arms of a task share."""
    hard = {cell.task: draw.standard_normal(EXAMPLES, np.float32) for cell in case.cells}
    made = [row for task in {cell.task: None for cell in case.cells} for row in _rules(task, case)]
    spreads, shifts = _spreads(case, law, draw), {}
    for cell in case.cells:
        arm = case.arm(cell)
        spread = spreads[arm]
        fresh = _shifts(law, spread, cell.truth, seeds, draw)
        paired = case.of_places(cell)
        shift = shifts.setdefault(arm, fresh) if paired else fresh
        for seed in range(seeds):
            share = np.clip((cell.truth + shift[seed]) / 100, 0.0, 0.999)
            if paired and law == "places":
                share = _held(cell.truth, draw)
            elif paired:  # the same weights: what is above guessing at one length is scaled to that of the other
                share = _scaled(cell.truth, shift[seed])
            made += measured(cell, seed, float(share), draw, hard)
    return made


def _spreads(case: Case, law: Law, draw: np.random.Generator) -> dict[tuple[str, str, str], float]:
    """Returns the standard deviation of each arm's seeds, in points, where they scatter around their truth."""
    arms = list(dict.fromkeys(map(case.arm, case.cells)))
    if law == "unequal":
        return {arm: float(10 ** draw.uniform(-1, 1)) for arm in arms}
    if law == "loud":
        tasks = {task: [arm for arm in arms if arm[0] == task] for task, _, _ in arms}
        loud = {arms[draw.integers(len(arms))]: float(10 ** draw.uniform(0, 1)) for arms in tasks.values()}
        return dict.fromkeys(arms, 0.5) | loud
    return dict.fromkeys(arms, 1.0)


def _scaled(truth: float, shift: float) -> float:
    return float(np.clip(GUESS + (truth - GUESS) * (1 + shift / 100), 0, 99.9)) / 100


def _held(truth: float, draw: np.random.Generator) -> float:
    """The share of a seed that does as well as any here, or guesses, so that the mean is the truth."""
    best = max(truth, LEVEL)
    level = best if draw.random() < (truth - GUESS) / (best - GUESS) else GUESS
    return float(np.clip(level + draw.normal(0, 0.2), 0, 99.9)) / 100


def _shifts(law: Law, spread: float, truth: float, seeds: int, draw: np.random.Generator) -> np.ndarray:
    """The deviations of `seeds` runs, in points: (seeds,)."""
    if law == "plateaus":
        return 15.0 * draw.choice((-1.0, 1.0), seeds) + draw.normal(0, 0.2, seeds)
    if law == "fail":
        return np.where(draw.random(seeds) < 0.5, GUESS - truth, 0.0) + draw.normal(0, 0.2, seeds)
    return draw.normal(0, spread, seeds)


def measured(
    cell: Cell, seed: int, share: float, draw: np.random.Generator, hard: Mapping[str, np.ndarray]
) -> Iterator[Row]:
    """Yields the rows of one run whose true score is `share`, with the noise of its test examples.

    hard: task -> how hard each of its test examples is for all arms, (EXAMPLES,), normally distributed.
    """
    run = f"{cell.task}-{cell.model}-{cell.protocol}-{seed}" + (f"-{cell.at}" if cell.at.startswith("kernel") else "")
    row = Row(run=run, task=cell.task, model=cell.model, protocol=cell.protocol, seed=seed, metric=cell.metric)
    if cell.metric == "r2":
        yield row | Row(split="test", value=float(draw.normal(share, 0.002)), stderr=0.002, n=EXAMPLES)
        return
    row |= Row(at=cell.at) if cell.at else Row()
    own = draw.standard_normal(EXAMPLES, np.float32)
    limit = NormalDist().inv_cdf(share) if share else -np.inf
    right = ALIKE**0.5 * hard[cell.task] + (1 - ALIKE) ** 0.5 * own < limit
    hits = Hits(cell.task, EXAMPLES, np.packbits(right).tobytes())
    yield with_hits(row | Row(split="test", value=float(right.mean()), n=EXAMPLES), {run: hits})
    if cell.at.startswith("kernel"):
        yield Row(run=run, split="val", metric="accuracy", value=draw.binomial(EXAMPLES, share) / EXAMPLES)


def _rules(task: str, case: Case) -> list[Row]:
    """The row of the rule that guesses, which in regression explains nothing."""
    metric = next(cell.metric for cell in case.cells if cell.task == task)
    rule = Row(task=task, protocol="none", model="chance", metric=metric, split="test", n=EXAMPLES)
    return [rule | Row(value=0.0 if metric == "r2" else GUESS / 100)]
