"""Whether classes are as frequent in test as in train: told where they are not, and hardly ever where chance did it."""

from __future__ import annotations

import numpy as np
import pytest

from levelfield.data.audit.facts import shifted


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_classes_that_are_as_frequent_in_test_are_hardly_ever_said_to_have_moved(classes: int) -> None:
    rng = np.random.default_rng(classes)
    law = rng.dirichlet(np.ones(classes))
    draws = [(rng.choice(classes, 800, p=law), rng.choice(classes, 100, p=law)) for _ in range(500)]
    assert np.mean([shifted(*drawn) > 0 for drawn in draws]) < 0.02


@pytest.mark.parametrize("people", [5, 25])
def test_classes_of_few_people_are_hardly_ever_said_to_have_moved(people: int) -> None:
    """The rows of a person are of one class: of five persons in test, more than half of all draws were said to."""
    rng, said = np.random.default_rng(people), {"alone": 0, "grouped": 0}
    who = rng.integers(4 * people, size=800), rng.integers(4 * people, 5 * people, 200)
    for _ in range(200):
        own = rng.integers(2, size=5 * people)
        for name, groups in (("alone", None), ("grouped", who)):
            said[name] += shifted(own[who[0]], own[who[1]], groups) > 0
    assert said["grouped"] <= 12 and said["alone"] > 40
    mixed = np.arange(800) % 2, np.arange(200) % 10 // 8
    assert shifted(*mixed, who) == pytest.approx(0.3), (
        "where persons have rows of both classes, it is told all the same"
    )


def test_groups_that_tell_nothing_of_classes_hide_no_move() -> None:
    """Taken about the share of both splits, the move itself was likeness within groups: 12 of 100 were told."""
    told = {"grouped": 0, "still": 0}
    who = np.arange(4_000) // 100, 40 + np.arange(4_000) // 400
    for seed in range(100):
        rng = np.random.default_rng(seed)
        train, test, still = (rng.random(4_000) < share for share in (0.5, 0.6, 0.5))
        told["grouped"] += shifted(train.astype(int), test.astype(int), who) > 0
        told["still"] += shifted(train.astype(int), still.astype(int), who) > 0
    assert told["grouped"] >= 90 and told["still"] <= 2


def test_classes_that_have_moved_are_told_by_how_much() -> None:
    train, test = np.repeat([0, 1], [500, 500]), np.repeat([0, 1], [180, 20])
    assert shifted(train, test) == pytest.approx(0.4)
    assert shifted(train, np.repeat([2], 200)) == 1.0, "a class that training has not"
