"""Computes which share of what can be learnt on a dataset each arm of an audit has, with intervals, as rows.

    findings([Scored("window9", "window", 0.81, scores), ...], floor)

The reference is the arm that is best on validation. A share is (arm - guessing) / (reference - guessing), on the same
test examples. Its 95 % interval joins two, as `stats.summarise` does: the bootstrap's over test examples, drawn anew
for all arms together, and Welch's over the seeds of the arm and of the reference. So few seeds make wide intervals; a
bootstrap over two or three is narrower, and held the truth in 72 and 77 of 100 simulations. Whether anything is
learnable is decided first, at 1 %, by what the trained weights score on test examples drawn anew. Nothing has a share
where it is not. Of examples that come in groups, such as those of one patient, whole groups are drawn anew, and a score
counts as one of so many fewer examples as its groups make it less certain (`spec.groups`). Of fewer than some twenty
groups no such interval is wide enough, so that nothing is learnable there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from levelfield.report.decisions import SPAN, Contrast, Seeds
from levelfield.report.stats import SHARE, summarise
from levelfield.spec import Row
from levelfield.spec.groups import design_effect, equal_groups, independent, limits

DRAWS = 1_000
LEARNT = 0.01  # how often nothing may pass for something, two-sided
FEWEST = 100  # test examples below which nothing is claimed
FEWEST_GROUPS = 20  # equally large groups of test examples below which nothing is claimed

RULE, WINDOW, FREE, DISORDERED = "rule", "window", "free", "disordered"

Limited = tuple[float, float, float]
"""A number and the ends of its 95 % interval."""


class Scored(NamedTuple):
    """One arm. kind: what it is an instance of; place: of a window its steps. scores: (seeds, N), of the same test
    examples in all arms; right or wrong as 1 or 0, or minus a squared error. validation: the mean score there. later:
    of a rule that knows the latest few steps, what it and the commonest label score after so many, (2, N), or NaN."""

    name: str
    kind: str
    validation: float
    scores: np.ndarray
    place: str = ""
    later: np.ndarray | None = None


def findings(
    arms: Sequence[Scored], floor: np.ndarray, groups: np.ndarray | None = None, constant: np.ndarray | None = None
) -> list[Row]:
    """Returns rows of every arm: score and share, each with `_low` and `_high`; and of what is learnable.

    floor: the scores of the rule that guesses best, (N,). groups: the number of each example's group, such as those
    with the same input, (N,); None where each stands by itself. constant: the scores of the one answer that is
    best on these very examples, (N,), which what is learnable has to be above as well, since a model that has
    learnt nothing may happen to give it.
    """
    reference = max(arms, key=lambda arm: arm.validation)
    count = len(floor)
    _, own = np.unique(np.arange(count) if groups is None else groups, return_inverse=True)
    rows = [_row("guessing", "score", float(floor.mean()), count)]
    if constant is not None:
        rows.append(_row("guessing", "one_answer", float(constant.mean()), count))
    kept = _as_kept(floor, reference.scores)
    drawn = _Drawn.of(arms, kept, own)
    enough = count >= FEWEST and equal_groups(own) >= FEWEST_GROUPS
    learnt = enough and all(drawn.above(reference, rival) for rival in (floor, constant) if rival is not None)
    rows.append(_row(reference.name, "learnable", float(learnt), count))
    for arm in arms:
        at = f"{arm.kind}={arm.place or arm.name}"
        rows += _three(arm.name, "score", _score(arm.scores, own, bool(floor.min() >= 0)), at, count)
        rows.append(_row(arm.name, "validation", arm.validation, count, at))
        rows += _later(arm, own, at)
        if learnt:
            rows += _three(arm.name, "share", _share(arm, reference, float(kept.mean()), drawn), at, count)
    return rows


def _later(arm: Scored, groups: np.ndarray, at: str) -> Iterator[Row]:
    """Yields what a rule and the commonest label score after the first steps, where it has others than these."""
    if arm.later is None:
        return
    there = ~np.isnan(arm.later[0])
    rule, commonest = arm.later[:, there]
    yield from _three(
        arm.name, "later", _score(rule[None], np.unique(groups[there], return_inverse=True)[1], True), at, len(rule)
    )
    yield _row(arm.name, "later_commonest", float(commonest.mean()), len(rule), at)


def unleaked(
    arms: Sequence[Scored], floor: np.ndarray, groups: np.ndarray | None, apart: np.ndarray, by: str
) -> Iterator[Row]:
    """Yields the share of test examples that are in train too, and what guessing and every arm score on the others, the
    arms with `_low` and `_high`; nothing where there are none in train. apart: which are not, (N,) bool; by: what
    tells, "copies" or "groups"; the others as of `findings`.
    """
    if apart.all():
        return
    yield _row("data", "in_train", float(1 - apart.mean()), len(apart), f"by={by}")
    if not apart.any():
        return
    count, floor = int(apart.sum()), floor[apart]
    _, own = np.unique(np.arange(count) if groups is None else groups[apart], return_inverse=True)
    yield _row("guessing", "unleaked", float(floor.mean()), count)
    for arm in arms:
        found = _score(arm.scores[:, apart], own, bool(floor.min() >= 0))
        yield from _three(arm.name, "unleaked", found, f"{arm.kind}={arm.place or arm.name}", count)


def cross_validated(scores: Mapping[str, np.ndarray], floor: np.ndarray, groups: np.ndarray) -> Iterator[Row]:
    """Yields what the one best guess and each rule score on all examples, the rules with `_low` and `_high`, and
    whether the best rule is above guessing at LEARNT, divided among the rules, which nothing is on fewer than FEWEST
    examples or FEWEST_GROUPS groups.

    scores: by rule, of each example by a rule that was fitted without it, (N,). floor, groups: as of `findings`, (N,).
    """
    yield _row("guessing", "folds", float(floor.mean()), len(floor)) | Row(split="all")
    for name, each in scores.items():
        found = _score(each[None], groups, bool(floor.min() >= 0))
        yield from (row | Row(split="all") for row in _three(name, "folds", found, f"{RULE}={name}", len(floor)))
    best = max(scores, key=lambda name: float(scores[name].mean()))
    gain = scores[best].astype(np.float64) - _as_kept(floor, scores[best])
    error = float(gain.std()) * math.sqrt(design_effect(gain - gain.mean(), groups) / len(gain))
    # so rare an error is beyond what DRAWS test sets can tell
    enough = len(gain) >= FEWEST and equal_groups(groups) >= FEWEST_GROUPS
    sure = enough and float(gain.mean()) > NormalDist().inv_cdf(1 - LEARNT / 2 / len(scores)) * error
    yield _row(best, "folds_learnt", float(sure), len(floor), f"{RULE}={best}") | Row(split="all")


class _Drawn(NamedTuple):
    """Means over test sets drawn anew: of guessing, (DRAWS,), and of each arm, whose seeds stay as they are.

    times: what each example counts in each draw, (DRAWS, N).
    """

    times: np.ndarray
    floor: np.ndarray
    means: dict[str, np.ndarray]

    @staticmethod
    def of(arms: Sequence[Scored], floor: np.ndarray, groups: np.ndarray) -> _Drawn:
        """Draws as many groups as there are. groups: their numbers from 0 on, (N,)."""
        count = int(groups.max()) + 1
        times = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), DRAWS)[:, groups]
        times = times / times.sum(1, keepdims=True)
        means = {arm.name: times @ arm.scores.mean(0, dtype=np.float64) for arm in arms}
        return _Drawn(times, times @ floor.astype(np.float64), means)

    def above(self, arm: Scored, rival: np.ndarray) -> bool:
        """Whether the arm is above the scores of a rival, (N,), at LEARNT."""
        return bool(np.quantile(self.means[arm.name] - self.times @ _as_kept(rival, arm.scores), LEARNT / 2) > 0)

    def gain(self, arm: Scored) -> np.ndarray:
        """How far the arm is above guessing, (DRAWS,)."""
        return self.means[arm.name] - self.floor


def _as_kept(guessing: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns what a guess scores, (N,) float64, rounded as those scores are that it is compared with: an arm that
    guesses the same is above it by nothing, and not by what float32 makes of an F1 of two thirds."""
    return guessing.astype(scores.dtype).astype(np.float64)


def _score(scores: np.ndarray, groups: np.ndarray, right_or_wrong: bool) -> Limited:
    """Returns the mean and its interval, over test examples and, where there are several, over seeds."""
    seeds, mean_scores = scores.mean(1, dtype=np.float64), scores.mean(0, dtype=np.float64)
    if right_or_wrong:
        count = independent(mean_scores, groups)
        found, unit = summarise((100 * seeds).tolist(), SHARE, examples=count), 100
    else:
        least, most = limits(-mean_scores, groups)
        found, unit = summarise(seeds.tolist(), within=(-math.inf, 0.0), test=(-most, -least)), 1
    mean = float(seeds.mean())
    low, high = (found and (found.interval or found.test)) or (unit * mean, unit * mean)
    return mean, low / unit, high / unit


def _share(arm: Scored, reference: Scored, floor: float, drawn: _Drawn) -> Limited:
    """Returns the share and its interval. The seeds' part is that of (arm - share * reference) / (reference - floor):
    to first order a share differs by as much where these seeds were others."""
    if arm is reference:
        return 1.0, 1.0, 1.0
    mean, best = (float(each.scores.mean(dtype=np.float64)) for each in (arm, reference))  # float32 would round them
    gain = best - floor
    share = (mean - floor) / gain
    low, high = np.quantile(drawn.gain(arm) / np.maximum(drawn.gain(reference), 1e-12), (SPAN / 2, 1 - SPAN / 2))
    seeds = Contrast(((1.0, _seeds(arm)), (-share, _seeds(reference)))).over_seeds(SPAN) / gain
    return share, share - math.hypot(seeds, share - low), share + math.hypot(seeds, high - share)


def _seeds(arm: Scored) -> Seeds:
    """The mean score of each seed; a rule, and what was trained once, has no spread between seeds."""
    return Seeds(tuple(arm.scores.mean(1, dtype=np.float64).tolist()), trained=len(arm.scores) > 1)


def _three(name: str, metric: str, values: Limited, at: str, count: int) -> Iterator[Row]:
    for ending, value in zip(("", "_low", "_high"), values, strict=True):
        yield _row(name, metric + ending, value, count, at)


def _row(name: str, metric: str, value: float, count: int, at: str = "") -> Row:
    row = Row(source="levelfield", model=name, protocol="none", split="test", metric=metric, value=value, n=count)
    return row | Row(at=at) if at else row
