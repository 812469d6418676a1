"""The verdict on precision, fed with scores that are alike, apart, and too noisy to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from levelfield.spec import Numerics, Row
from levelfield.studies import precision

Scores = Mapping[str, Sequence[float]]
CLOSE, WIDE = (-0.2, 0.0, 0.2), (-6.0, 0.0, 6.0)


def rows(scores: Scores, chance: float = 0.17) -> list[Row]:
    """Rows of test scores in percent, one a seed."""
    made = [
        Row(task="listops", protocol="none", model="chance", metric="accuracy", split="test", value=chance, n=5_000)
    ]
    for model, values in scores.items():
        for seed, value in enumerate(values):
            row = Row(run=f"{model}{seed}", task="listops", model=model, protocol="scratch", seed=seed, n=5_000)
            made.append(row | Row(metric="accuracy", split="test", value=value / 100))
    return made


def around(middle: float, spread: Sequence[float]) -> list[float]:
    return [middle + shift for shift in spread]


@pytest.mark.parametrize(
    ("lower", "spread", "decided", "seen"),
    [(0.3, CLOSE, 1, 1), (8.0, CLOSE, -1, -1), (-8.0, CLOSE, -1, -1), (2.5, CLOSE, 0, 1)],
)
def test_scores_in_both_precisions_are_alike_apart_or_undecided(
    lower: float, spread: Sequence[float], decided: int, seen: int
) -> None:
    scores = {name: around(50.0, spread) for name in precision.MIXERS}
    scores |= {name + precision.ROUNDED: around(50.0 - lower, spread) for name in precision.MIXERS}
    found = precision.findings(rows(scores))
    assert [(each.decided, each.seen) for each in found] == [(decided, seen)] * 2
    assert f"{-lower:+.1f} points (95 % interval" in precision.verdict(rows(scores))


def test_seeds_are_compared_one_by_one() -> None:
    """Seeds far apart hide nothing where both precisions move together, and all where they do not."""
    scores = {name: around(50.0, WIDE) for name in precision.MIXERS}
    together = scores | {name + precision.ROUNDED: around(50.3, WIDE) for name in precision.MIXERS}
    assert [each.decided for each in precision.findings(rows(together))] == [1, 1]
    crossed = scores | {name + precision.ROUNDED: around(50.3, WIDE[::-1]) for name in precision.MIXERS}
    assert [each.decided for each in precision.findings(rows(crossed))] == [0, 0]


@pytest.mark.parametrize("sign", [1, -1])
def test_at_the_margin_few_reports_say_within_or_beyond_it(sign: int) -> None:
    """Of 300 reports on pairs at the margin, by normal scatter between seeds and binomial test examples."""
    draw, erring = np.random.default_rng(0), 0
    for _ in range(300):
        scores: dict[str, list[float]] = {}
        for name in precision.MIXERS:
            truth = draw.normal(50.0, 2.0, 3)
            pair = {name: truth, name + precision.ROUNDED: truth + sign * precision.MARGIN + draw.normal(0.0, 1.0, 3)}
            scores |= {arm: list(draw.binomial(5_000, mine / 100) / 50) for arm, mine in pair.items()}
        erring += any(each.decided for each in precision.findings(rows(scores)))
    assert erring <= 0.05 * 300


def test_nothing_is_said_of_a_mixer_that_did_not_learn_or_was_not_run() -> None:
    assert precision.verdict(rows({})).startswith("Nothing can be said yet")
    guessing = {name + end: around(17.0, CLOSE) for name in precision.MIXERS for end in ("", precision.ROUNDED)}
    assert precision.verdict(rows(guessing)).startswith("Cannot be said: ")


def test_the_arms_of_a_mixer_differ_in_precision_alone() -> None:
    for effort in ("smoke", "minutes"):
        runs = precision.runs(effort)
        for plain, rounded in zip(runs[::2], runs[1::2], strict=True):
            assert (plain.numerics, rounded.numerics) == (Numerics(), Numerics("bf16"))
            assert (plain.task, plain.protocol, plain.seed) == (rounded.task, rounded.protocol, rounded.seed)
            assert rounded.model.label == f"{plain.model.label}_bf16"
            assert (plain.model.mixers, plain.model.block) == (rounded.model.mixers, rounded.model.block)
