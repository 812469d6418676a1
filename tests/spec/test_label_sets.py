"""Scores and guesses of sets of labels, against enumeration of all sets."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from levelfield.data.batches import Batch, ModelInput
from levelfield.objectives import ClassifySet, default_objective
from levelfield.spec import Label, LabelSet, Tokens, UserError
from levelfield.spec.label_sets import chance, commonest, f1, guessed

SETS = np.array(list(product([False, True], repeat=4)))  # all sets of four labels


def by_hand(guess: np.ndarray, true: np.ndarray) -> float:
    """F1 from precision and recall of two sets, as it is defined."""
    a, b = set(np.flatnonzero(guess)), set(np.flatnonzero(true))
    if not a and not b:
        return 1.0
    precision, recall = len(a & b) / max(len(a), 1), len(a & b) / max(len(b), 1)
    return 2 * precision * recall / (precision + recall) if a & b else 0.0


def test_f1_is_that_of_precision_and_recall() -> None:
    for guess in SETS:
        assert f1(np.tile(guess, (16, 1)), SETS) == pytest.approx([by_hand(guess, true) for true in SETS])


def test_chance_is_the_mean_over_all_guesses() -> None:
    true = SETS[[0, 1, 3, 3, 7, 15]]
    assert chance(true) == pytest.approx(np.mean([by_hand(guess, row) for guess in SETS for row in true]))


def test_the_guessed_set_is_nearly_the_best_of_all() -> None:
    likely = np.random.default_rng(0).uniform(0, 1, (200, 4)) ** 2
    made = guessed(likely)
    for p, guess in zip(likely, made, strict=True):
        weight = np.prod(np.where(SETS, p, 1 - p), 1)  # of each truth, labels being independent
        expected = [weight @ f1(np.tile(each, (16, 1)), SETS) for each in SETS]
        assert weight @ f1(np.tile(guess, (16, 1)), SETS) > max(expected) - 0.03
    rare = np.array([[0.3, 0.29, 0.001]])
    assert guessed(rare).tolist() == [[False, False, False]] and f1(guessed(rare), SETS[:1, :3])[0] == 1
    assert guessed(np.array([[0.3, 0.29, 0.25, 0.2, 0.2]])).any(), "rare labels are guessed below one half"
    assert guessed(np.array([[1.0, 0.0, 1.0]])).tolist() == [[True, False, True]]


def test_the_commonest_set_scores_best_of_all_fixed_ones() -> None:
    train = np.random.default_rng(1).uniform(0, 1, (300, 4)) < [0.1, 0.7, 0.5, 0.2]
    scores = [f1(np.tile(each, (300, 1)), train).mean() for each in SETS]
    assert f1(commonest(train), train).mean() == pytest.approx(max(scores))
    assert not commonest(np.zeros((5, 3))).any()


def test_the_objective_is_binary_and_scores_what_is_guessed() -> None:
    y = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]], dtype=torch.uint8)
    batch = Batch(torch.zeros(4, 2), torch.full((4,), 2), None, y)
    outputs = torch.tensor([[9.0, -9, 9], [-9, -9, -9], [9, 9, -9], [float("nan"), 9, 9]])
    shown, spec, objective = ModelInput(batch.raw), Tokens(4), ClassifySet()
    found = objective.score(outputs, batch, shown, spec)
    assert found.values.tolist() == pytest.approx([1, 1, 2 / 3, 0])
    assert found.sound.tolist() == [True, True, True, False] and found.weights.tolist() == [1, 1, 1, 1]
    p = outputs[:3].double().sigmoid()
    plain = -torch.where(y[:3] > 0, p.log(), (1 - p).log()).mean()
    part = batch.part(slice(0, 3))
    assert float(objective.loss(outputs[:3], part, shown.part(slice(0, 3)), spec)) == pytest.approx(float(plain), 1e-4)
    assert objective.head(spec, LabelSet(3)).outputs == 3
    with pytest.raises(UserError, match="use Classify"):
        objective.head(spec, Label(3))


def test_it_is_the_objective_of_tasks_with_sets() -> None:
    class Form:
        documents, input, output = 1, Tokens(4), LabelSet(3)

    assert default_objective(Form()) == ClassifySet()  # pyright: ignore[reportArgumentType]
