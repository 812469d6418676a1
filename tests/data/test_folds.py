"""Cross-validated scores of rules without a sequence model: against plain loops, and on data that say nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from toy_audits import SYMBOLS, Known

from levelfield.data.audit.folds import FOLDS, folds, held_out, joined
from levelfield.data.audit.shallow import PROBES, score
from levelfield.data.copies import kept_together
from levelfield.report.audit.shares import cross_validated
from levelfield.spec import SPLITS, Examples, SplitName


def test_the_first_step_tells_what_a_table_of_three_other_folds_tells() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, SYMBOLS, (300, 12)).astype(np.uint8)
    y = np.where(rng.random(300) < 0.7, x[:, 0] % 2, rng.integers(0, 2, 300))
    fold = folds(np.arange(300))
    told = list[int]()
    scores = held_out(Known("none"), Examples.of_equal_length(x, y), fold, PROBES["first 1"], told.append)
    assert told == list(range(FOLDS))
    for at in range(300):
        table = [Counter[int]() for _ in range(SYMBOLS)]
        for other in np.flatnonzero((fold != fold[at]) & (fold != (fold[at] + 1) % FOLDS)):
            table[x[other, 0]][int(y[other])] += 1
        assert scores[at] == (table[x[at, 0]].most_common(1)[0][0] == y[at])


@pytest.mark.parametrize(("rule", "probe"), [("length", "length"), ("window", "3-grams"), ("sum", "1-grams")])
def test_held_out_scores_are_those_of_rules_that_are_fitted_anew_to_each_split_of_the_folds(
    rule: str, probe: str
) -> None:
    task = Known(rule, train=200, held_out=60)
    splits = task.build(None)
    whole = joined([splits[split] for split in SPLITS])
    rows = [splits[split].sequence(i) for split in SPLITS for i in range(len(splits[split]))]
    assert len(whole) == 320 and all((whole.sequence(i) == row).all() for i, row in enumerate(rows))
    fold = folds(np.arange(320))
    scores = held_out(task, whole, fold, PROBES[probe])
    for number in range(FOLDS):
        kinds = ["test" if of == number else "val" if of == (number + 1) % FOLDS else "train" for of in fold]
        at = {split: np.array([i for i, kind in enumerate(kinds) if kind == split]) for split in SPLITS}
        made: dict[SplitName, Examples] = {split: whole.take(chosen) for split, chosen in at.items()}
        assert np.allclose(scores[at["test"]], score(task, made, PROBES[probe]).test)


def test_what_shares_a_group_or_an_input_is_one_set_and_lies_in_one_fold() -> None:
    assert kept_together(np.array([7, 7, 3, 4, 5]), np.array([0, 1, 1, 2, 3])).tolist() == [0, 0, 0, 1, 2]
    rng = np.random.default_rng(0)
    groups, inputs = rng.integers(0, 150, 400), rng.integers(0, 900, 400)
    sets = kept_together(groups, inputs)
    fold = folds(sets)
    for kind in (groups, inputs):
        for number in set(kind.tolist()):
            assert len(set(sets[kind == number])) == len(set(fold[kind == number])) == 1
    assert len(set(sets.tolist())) > 20, "no more than that is kept together"
    assert sorted(np.bincount(folds(np.repeat(np.arange(30), 7)))) == [42] * FOLDS
    assert (fold == folds(sets)).all() and (folds(np.arange(400)) != np.arange(400) % FOLDS).any()


@pytest.mark.parametrize("copies", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_where_inputs_say_nothing_intervals_cover_guessing(copies: int) -> None:
    """Also where each input comes several times with its label, so that there are fewer inputs than examples."""
    covered = Counter[str]()
    found = 0.0  # draws in which a rule is said to be above guessing
    for seed in range(40):
        rng = np.random.default_rng(seed)
        inputs = [rng.integers(0, SYMBOLS, rng.integers(9, 33)).astype(np.uint8) for _ in range(200)]
        sets = np.repeat(np.arange(200), copies)
        examples = Examples.of_sequences([inputs[i] for i in sets], rng.integers(0, 2, 200)[sets])
        scores = {name: held_out(Known("none"), examples, folds(sets), PROBES[name]) for name in ("length", "1-grams")}
        floor = examples.y == np.bincount(examples.y).argmax()
        guess, *rows, sure = [row.get("value", np.nan) for row in cross_validated(scores, floor, sets)]
        found += sure
        for name, (_, low, high) in zip(scores, (rows[:3], rows[3:]), strict=True):
            covered[name] += low <= guess <= high
            covered[name + " chance"] += low <= 0.5 <= high
    assert min(covered.values()) >= 34 and found <= 1
