"""MQAR against a reader that keeps a table, plain draws without replacement, and an exact small case."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from levelfield.spec import Examples, UserError
from levelfield.tasks.mqar import MQAR, choose

SMALL = MQAR(40, 5, keys=20, values=16, train=400, val=50, test=50)
NOISY = replace(SMALL, filler="noise", power=1.0)


def read(sequence: list[int], pairs: int, keys: int) -> list[int]:
    """What is asked at every step, by keeping a table of the pairs as they come."""
    table: dict[int, int] = {}
    answers = [-1] * len(sequence)
    for step in range(0, 2 * pairs, 2):
        assert 1 <= sequence[step] <= keys < sequence[step + 1]
        assert sequence[step] not in table, "a key stands twice"
        table[sequence[step]] = sequence[step + 1] - 1 - keys
    for step in range(2 * pairs, len(sequence)):
        answers[step] = table.get(sequence[step], -1)
    return answers


@pytest.mark.parametrize("task", [SMALL, NOISY], ids=["blank", "noise"])
def test_the_label_is_the_value_of_the_key(task: MQAR):
    for examples in task.build(None).values():
        y = examples.y.reshape(-1, task.length)
        for i in range(len(examples)):
            sequence = examples.sequence(i).tolist()
            assert read(sequence, task.pairs, task.keys) == y[i].tolist()
            places = np.flatnonzero(y[i] >= 0)
            assert sorted(sequence[p] for p in places) == sorted(sequence[0 : 2 * task.pairs : 2])
            assert (places % 2 == 0).all()
            assert len(set(sequence[1 : 2 * task.pairs : 2])) == task.pairs, "a value stands twice"
            rest = [s for p, s in enumerate(sequence) if p >= 2 * task.pairs and y[i, p] < 0]
            assert task.filler == "noise" or not any(rest)


def test_a_changed_sequence_has_other_labels():
    examples = SMALL.build(None)["val"]
    assert np.array_equal(SMALL.recompute_labels(examples), examples.y)
    x = examples.x.copy()
    x[1] = 1 + SMALL.keys + (int(x[1]) - SMALL.keys) % SMALL.values  # the first pair's value
    changed = np.flatnonzero(SMALL.recompute_labels(replace(examples, x=x)) != examples.y)
    assert changed.tolist() == [2 * SMALL.pairs + x[2 * SMALL.pairs : SMALL.length].tolist().index(x[0])]


def slots_of(task: MQAR, examples: Examples) -> np.ndarray:
    """(N, pairs): the slot in which each pair is asked for."""
    x = examples.x.reshape(-1, task.length)
    later = x[:, None, 2 * task.pairs :: 2] == x[:, 0 : 2 * task.pairs : 2, None]
    return later.argmax(2)


@pytest.mark.parametrize("power", [0.01, 1.0, 2.0])
def test_queries_fall_as_plain_draws_without_replacement_do(power: float):
    task = MQAR(32, 3, keys=500, values=500, power=power, train=1, val=1, test=8_000)
    ours = slots_of(task, task.build(None)["test"])
    rng, slots = np.random.default_rng(1), 13
    weights = power * np.arange(1, slots + 1) ** (power - 1.0)
    plain = np.array([rng.choice(slots, 3, replace=False, p=weights / weights.sum()) for _ in range(8_000)])
    for pair in range(3):
        law = task.slot_distribution()[pair]
        for drawn in (ours, plain):
            share = np.bincount(drawn[:, pair], minlength=slots) / len(drawn)
            assert np.abs(share - law).max() < 4.5 * np.sqrt(0.25 / len(drawn))
    both = [np.bincount(d[:, 0] * slots + d[:, 1], minlength=slots**2) / len(d) for d in (ours, plain)]
    assert np.abs(both[0] - both[1]).max() < 0.025  # also two at once


@pytest.mark.parametrize("power", [0.01, 1.7])
def test_the_slot_distribution_is_the_sum_over_all_orders(power: float):
    task = MQAR(16, 3, keys=9, values=9, power=power)
    weights = np.arange(1, 6) ** (power - 1.0)
    exact = np.zeros((3, 5))
    for order in permutations(range(5), 3):
        chance, left = 1.0, weights.sum()
        for slot in order:
            chance *= weights[slot] / left
            left -= weights[slot]
        exact[range(3), order] += chance
    np.testing.assert_allclose(task.slot_distribution(), exact, atol=1e-9)


def test_choosing_is_uniform_over_ordered_subsets():
    chosen = choose(np.random.default_rng(0), 60_000, 5, 3)
    codes, counts = np.unique(chosen @ [25, 5, 1], return_counts=True)
    assert len(codes) == 60
    assert np.abs(counts - 1000).max() < 4.5 * np.sqrt(1000)


def test_noise_is_any_symbol_but_the_own_keys():
    task = MQAR(40, 3, keys=6, values=5, filler="noise", train=1, val=1, test=5_000)
    examples = task.build(None)["test"]
    x, y = examples.x.reshape(-1, 40), examples.y.reshape(-1, 40)
    noise = y < 0
    noise[:, :6] = False
    own = np.array([np.isin(np.arange(12), row[0:6:2]) for row in x])
    expected = (noise.sum(1)[:, None] * ~own / 9).sum(0)  # of 12 symbols, nine are free in each
    counts = np.bincount(x[noise], minlength=12)
    assert np.abs(counts - expected).max() < 4.5 * np.sqrt(expected.max())


@pytest.mark.parametrize("slots", [1, 2, 5, 9, 17])
def test_a_bounded_reader_scores_what_the_bound_says(slots: int):
    task = MQAR(32, 4, keys=40, values=6, train=1, val=1, test=12_000)
    test = task.build(None)["test"]
    x, y = test.x.reshape(-1, 32), test.y.reshape(-1, 32)
    right = []
    for row, place in zip(*np.nonzero(y >= 0), strict=True):
        seen = x[row, max(0, place - 2 * slots) : min(place, 8)].tolist()
        table = dict(zip(seen[::2], seen[1::2], strict=True))
        value = table.get(int(x[row, place]))
        right.append(1 / (6 - len(table)) if value is None else float(value - 41 == y[row, place]))
    assert np.mean(right) == pytest.approx(task.bounded(slots), abs=0.01)


def test_the_slice_says_how_far_back_one_must_look():
    examples = SMALL.build(None)["train"]
    for i in range(100):
        sequence = examples.sequence(i).tolist()
        farthest = max(10 + sequence[10:].index(sequence[step]) - step for step in range(0, 10, 2))
        assert examples.slices["farthest"][i] / 2 < farthest <= examples.slices["farthest"][i]


def test_baselines_are_over_the_asked_steps():
    splits = MQAR(32, 4, keys=40, values=40, train=4_000, val=1, test=2_000).build(None)
    scores = MQAR(32, 4, keys=40, values=40).baselines(splits["train"], splits["test"])
    assert scores["label_prior"] == pytest.approx(1 / 40, abs=0.01)
    assert scores["last_value"] == 1 / 4  # every pair is asked for once


def test_other_lengths_have_pairs_in_proportion():
    assert MQAR().at_length(256, 10).pairs == 16
    assert (MQAR().at_length(256, 10).train, MQAR().at_length(256).train) == (10, 100_000)
    with pytest.raises(UserError, match="at least 20 keys"):
        MQAR(keys=10, values=99).at_length(320)


def test_settings_that_cannot_work_say_so():
    with pytest.raises(UserError, match="length=16 has room for 4, not 5"):
        MQAR(length=16, pairs=5)
    with pytest.raises(UserError, match="at least one pair, and four steps for each: length=-4 has room for 0, not 1"):
        MQAR(length=-4, pairs=1)
    with pytest.raises(UserError, match="power"):
        MQAR(power=0)
    with pytest.raises(UserError, match="65,535"):
        MQAR(keys=65_000)
    with pytest.raises(UserError, match="at least one sequence"):
        MQAR(test=0)
    with pytest.raises(UserError, match="mqar has too few different sequences"):
        MQAR(4, 1, keys=1, values=2, train=3, val=1, test=1).build(None)
