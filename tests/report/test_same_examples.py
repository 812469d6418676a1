"""How far arms that answered the same examples may be off: against McNemar's formula, and by how often it covers."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from levelfield.report.decisions import Contrast, Seeds, difference
from levelfield.report.same_examples import Right, reach
from levelfield.report.verdicts import Key, Table
from levelfield.runs import hits
from levelfield.runs.hits import Hits, hits_of, with_hits
from levelfield.spec import Row, UserError

Z = NormalDist().inv_cdf(0.975)


def drawn(share: float, hard: np.ndarray, seeds: int, draw: np.random.Generator) -> Right:
    """An arm that has this share right, of examples that are as hard for others."""
    own = draw.standard_normal((seeds, len(hard)))
    return Right("exam", 0.6**0.5 * hard + 0.4**0.5 * own < NormalDist().inv_cdf(share))


def test_two_arms_are_as_far_off_as_mcnemars_formula_says() -> None:
    """By hand: of n pairs, b and c are right in one arm alone; the variance of (b - c) / n is theirs (Fleiss 1981)."""
    draw = np.random.default_rng(0)
    hard = draw.standard_normal(5_000)
    one, other = drawn(0.6, hard, 1, draw), drawn(0.55, hard, 1, draw)
    b, c = (int((x.seeds & ~y.seeds).sum()) for x, y in ((one, other), (other, one)))
    error = math.sqrt(b + c - (b - c) ** 2 / 5_000) / 5_000
    for up in (False, True):
        assert reach([(1.0, one), (-1.0, other)], 5_000, 0.05, up=up) == pytest.approx(100 * Z * error, rel=0.01)
    twice = reach([(1.0, one), (-1.0, other)], 2_500, 0.05, up=True)
    assert twice == pytest.approx(100 * Z * error * math.sqrt(2), rel=0.01), "half as many independent examples"


@pytest.mark.parametrize(("n", "most"), [(50, 0.07), (1_000, 0.07)])
def test_intervals_cover(n: int, most: float) -> None:
    """True differences of fixed arms, over new test sets; of two arms and of four, one of them nearly perfect."""
    draw, shares = np.random.default_rng(n), (0.5, 0.7, 0.9, 0.97)
    for weights in ((1.0, -1.0, 0.0, 0.0), (0.0, 0.0, 1.0, -1.0), (1.0, -1.0, -1.0, 1.0), (0.0, 1.0, -0.9, 0.0)):
        truth, missed = 100 * sum(w * share for w, share in zip(weights, shares, strict=True)), 0
        for _ in range(400):
            hard = draw.standard_normal(n)
            terms = [(w, drawn(share, hard, 2, draw)) for w, share in zip(weights, shares, strict=True) if w]
            value = 100 * sum(w * arm.seeds.mean() for w, arm in terms)
            down, up = (reach(terms, n, 0.05, up=up) for up in (False, True))
            missed += not value - down <= truth <= value + up
        assert missed / 400 < most, weights


def test_arms_that_never_differ_are_still_known_only_so_well() -> None:
    same = Right("exam", np.ones((3, 100), bool))
    far = reach([(1.0, same), (-1.0, same)], 100, 0.05, up=True)
    assert 100 * Z / 102 * 0.9 < far < 100 * Z / 102 * 1.1


def arm(values: Right) -> Seeds:
    shares = tuple(float(100 * share) for share in values.seeds.mean(1))
    return Seeds(shares, examples=values.seeds.shape[1], numbers=(0, 1, 2), right=values)


def test_only_arms_of_one_exam_are_compared_example_by_example() -> None:
    draw = np.random.default_rng(2)
    hard = draw.standard_normal(2_000)
    one, other = (arm(drawn(share, hard, 3, draw)) for share in (0.6, 0.55))
    elsewhere = replace(other, right=replace(other.right, exam="another") if other.right else None)

    def width(second: Seeds) -> float:
        span = difference(one, second).span()
        assert span
        return span.high - span.low

    apart = width(replace(other, right=None))
    assert width(other) < 0.9 * apart and width(elsewhere) == pytest.approx(apart)
    guessing = Seeds((10.0,), trained=False)
    share = Contrast(((1.0, one), (-0.9, other), (-0.1, guessing))).span()
    without = Contrast(((1.0, replace(one, right=None)), (-0.9, other), (-0.1, guessing))).span()
    assert share and without and share.high - share.low < without.high - without.low
    kept = one.only([0, 2])
    assert kept.right and kept.right.seeds.tolist() == [one.right.seeds[n].tolist() for n in (0, 2) if one.right]


def test_hits_come_back_from_their_file(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    spec, other = {"task": {"kind": "A", "version": 1}}, {"task": {"kind": "B", "version": 1}}
    for size, dtype in product((1, 7, 8, 1_001), (np.uint8, np.float32)):
        scores = draw.integers(0, 2, size).astype(dtype)
        own = Hits.of(spec, scores)
        assert own and own.right.tolist() == scores.astype(bool).tolist()
        path = tmp_path / hits.FILE
        path.write_text(hits.to_csv({"a": own, "b": own}))
        assert hits.read(path, "get it") == {"a": own, "b": own}
        again = Hits.of(other, scores)
        assert again and again.exam != own.exam
    assert Hits.of(spec, np.array([0.0, 0.5])) is None and hits.read(tmp_path / "none", "get it") == {}


@pytest.mark.parametrize("text", ["run,exam,n,right\na,b,8,!\n", "run,exam,n,right\na,b,9,eJxjAAAAAQAB\n", "run\na\n"])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / hits.FILE).write_text(text)
    with pytest.raises(UserError, match=r"hits\.csv cannot be read .*: get it\."):
        hits.read(tmp_path / hits.FILE, "get it")


def test_only_a_runs_own_score_of_the_test_split_has_hits() -> None:
    own = Hits.of({"task": {"kind": "A"}}, np.array([1, 0, 1, 1]))
    assert own
    row = Row(
        run="a", task="t", model="m", protocol="scratch", seed=0, split="test", metric="accuracy", value=0.75, n=4
    )
    assert hits_of(with_hits(row, {"a": own})) == own
    for other in (
        Row(protocol="none"),
        Row(split="val"),
        Row(at="length=9"),
        Row(n=3),
        Row(metric="cross_entropy"),
        Row(run="b"),
    ):
        assert hits_of(with_hits(row | other, {"a": own})) is None
    rows = [with_hits(row | Row(seed=seed, run=run), {"a": own, "b": own}) for seed, run in ((1, "b"), (0, "a"))]
    cell = Table.of(rows).cells[Key("t", "m", "scratch")]
    assert cell.right and cell.right.seeds.tolist() == [[True, False, True, True]] * 2
    assert Table.of([rows[0], row]).cells[Key("t", "m", "scratch")].right is None, "one seed's hits are not known"
