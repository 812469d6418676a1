"""Copying against a reader that writes the symbols down, and its law and bound against plain counts."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from levelfield.spec import UserError
from levelfield.tasks.copying import Copying

FIRST = Copying(5, 4, 9, train=200, val=30, test=30)
SCATTERED = replace(FIRST, placement="scattered", cue="markers")
MIXED = [FIRST, SCATTERED, replace(FIRST, placement="scattered"), replace(FIRST, cue="markers")]
every_form = pytest.mark.parametrize("task", MIXED, ids=lambda t: f"{t.placement}-{t.cue}")


@every_form
def test_the_labels_are_the_symbols_in_order(task: Copying):
    for examples in task.build(None).values():
        y = examples.y.reshape(-1, 17)
        for i in range(len(examples)):
            sequence = examples.sequence(i).tolist()
            written = [s - 1 for s in sequence if s not in (0, 6)]
            assert len(written) == 4
            assert y[i].tolist() == [-1] * 13 + written


@every_form
def test_the_cue_is_where_the_paper_has_it(task: Copying):
    """Arjovsky et al.: T - 1 blanks after the symbols, a delimiter, as many blanks as symbols."""
    x = task.build(None)["train"].x.reshape(-1, 17)
    if task.cue == "delimiter":
        assert (x[:, 12] == 6).all() and (x == 6).sum() == len(x) and (x[:, 13:] == 0).all()
    else:
        assert (x[:, 13:] == 6).all() and (x == 6).sum() == 4 * len(x)
    if task.placement == "first":
        assert ((x[:, :4] >= 1) & (x[:, :4] <= 5)).all() and (x[:, 4:12] == 0).all()


def test_scattered_items_are_a_uniform_subset():
    task = Copying(300, 3, 4, "scattered", "markers", train=1, val=1, test=20_000)
    x = task.build(None)["test"].x.reshape(-1, 10)[:, :7]
    found = np.unique((x > 0) @ (1 << np.arange(7)), return_counts=True)
    assert sorted(found[0]) == sorted(sum(1 << p for p in places) for places in combinations(range(7), 3))
    assert np.abs(found[1] - 20_000 / 35).max() < 4.5 * np.sqrt(20_000 / 35)
    said = x[x > 0]
    assert said.min() == 1 and said.max() == 300 and abs(said.mean() - 150.5) < 4.5 * 86.6 / np.sqrt(len(said))


@every_form
def test_a_changed_sequence_has_other_labels(task: Copying):
    examples = task.build(None)["val"]
    assert np.array_equal(task.recompute_labels(examples), examples.y)
    x = examples.x.copy()
    x[np.flatnonzero(x)[1]] = 1 + x[np.flatnonzero(x)[1]] % 5
    assert np.flatnonzero(task.recompute_labels(replace(examples, x=x)) != examples.y).tolist() == [14]


@every_form
@pytest.mark.parametrize("steps", [3, 6, 9, 13, 14, 16])
def test_a_bounded_reader_scores_what_the_bound_says(task: Copying, steps: int):
    task = replace(task, train=1, val=1, test=8_000, symbols=200)  # so that equal rows are rare
    test = task.build(None)["test"]
    x, y = test.x.reshape(-1, 17), test.y.reshape(-1, 17)
    right = []
    for item in range(4):
        window = x[:, max(0, 13 + item - steps + 1) : 13]
        for row, truth in zip(window, y[:, 13 + item], strict=True):
            seen = [int(s) - 1 for s in row if 0 < s <= 200]  # the last of those that were said
            rank = item - (4 - len(seen))
            right.append(float(seen[rank] == truth) if rank >= 0 else 1 / 200)
    assert np.mean(right) == pytest.approx(task.bounded(steps), abs=0.012)


def test_first_items_are_all_in_reach_at_once_or_not_at_all():
    task = Copying()
    assert (task.bounded(110), task.bounded(111)) == (1 / 8, 1.0)


def test_the_slice_says_how_widely_the_items_stand():
    task = Copying(6, 3, 45, "scattered", "markers", train=200, val=1, test=1)
    examples = task.build(None)["train"]
    for i in range(200):
        places = np.flatnonzero((examples.sequence(i) > 0) & (examples.sequence(i) < 7))
        width = (places[-1] - places[0] + 1) / 48 * 16
        assert examples.slices["spread"][i] - 1 < width <= examples.slices["spread"][i]


def test_lengths_and_settings():
    assert Copying().max_length == 120
    assert (Copying().at_length(220, 10).delay, Copying().at_length(220, 10).test) == (200, 10)
    with pytest.raises(UserError, match="more than 20 steps"):
        Copying().at_length(20)
    with pytest.raises(UserError, match="at least one item"):
        Copying(items=0)
    with pytest.raises(UserError, match="at least one sequence"):
        Copying(val=0)
    with pytest.raises(UserError, match="too few different"):
        Copying(2, 1, 5, train=10, val=1, test=1).build(None)
