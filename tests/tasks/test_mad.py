"""The tasks of MAD against readers that go through a sequence from left to right and keep what they are told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from levelfield.presets import efforts
from levelfield.spec import Examples, UserError
from levelfield.tasks._state_tracking import StateTracking
from levelfield.tasks.in_context_recall import InContextRecall

RECALL = InContextRecall(24, None, 60, 20, 80, keys=5, values=4)
NOISY = InContextRecall(24, None, 60, 20, 80, keys=5, values=4, noise=0.5, noise_symbols=3)


def rows(task: StateTracking, examples: Examples) -> list[tuple[list[int], list[int]]]:
    """Each sequence with its labels."""
    x, y = (part.reshape(-1, task.max_length).tolist() for part in (examples.x, examples.y))
    return list(zip(x, y, strict=True))


@pytest.mark.parametrize("task", [RECALL, NOISY], ids=lambda task: task.name)
def test_what_a_key_stood_for_is_asked_wherever_it_comes_again(task: InContextRecall) -> None:
    examples = task.build(None)["test"]
    for (x, y), distance in zip(rows(task, examples), examples.slices["distance"].tolist(), strict=True):
        told: dict[int, int] = {}
        latest: dict[int, int] = {}
        back = 0
        for step in range(0, task.length, 2):
            key, value = x[step], x[step + 1] - task.keys
            if key >= task.keys:
                assert key >= 9 and value >= 4 and y[step : step + 2] == [-1, -1]  # both are symbols of noise
                continue
            assert told.setdefault(key, value) == value < 4
            assert y[step : step + 2] == [value if key in latest else -1, -1]
            back, latest[key] = step - latest.get(key, step), step
        assert y[-2] >= 0 and distance / 2 < back <= distance


@pytest.mark.parametrize("noise", [0.2, 0.8])
def test_noise_keys_and_values_come_as_often_as_they_should(noise: float) -> None:
    x = InContextRecall(400, None, 1, 1, 100, noise=noise, noise_symbols=16).build(None)["test"].x.reshape(-1, 2)[:-1]
    noisy = x[:, 0] >= 16
    expected = noise * (200 - 2) / 200  # one pair of each sequence is kept, beside the last one
    assert abs(noisy.mean() - expected) < 4.5 * np.sqrt(0.25 / len(x))
    shares = np.bincount(x[noisy].ravel() - 16, minlength=16) / x[noisy].size
    assert np.abs(shares - 1 / 16).max() < 4.5 * np.sqrt(1 / 16 / x[noisy].size)
    keys = np.bincount(x[~noisy, 0], minlength=8) / (~noisy).sum()
    assert np.abs(keys - 1 / 8).max() < 4.5 * np.sqrt(1 / 8 / (~noisy).sum())


def test_maps_differ_from_sequence_to_sequence() -> None:
    """Across sequences each key has all values equally often, so that nothing is to be had from the key alone."""
    task = InContextRecall(32, train=1, val=1, test=400)
    x = task.build(None)["test"].x.reshape(400, 16, 2)
    told = np.array([x[:, 0, 1][x[:, 0, 0] == key].tolist().count(value) for key in range(8) for value in range(8, 16)])
    assert told.sum() == 400 and told.max() < 400 / 64 + 4.5 * np.sqrt(400 / 64)


def test_the_value_before_is_a_rule() -> None:
    splits = NOISY.build(None)
    right: list[bool] = []
    for x, y in rows(NOISY, splits["test"]):
        for step in (step for step, label in enumerate(y) if label >= 0):
            before = [symbol - 5 for symbol in x[:step] if 5 <= symbol < 9]
            right.append(before[-1] == y[step])
    assert NOISY.baselines(splits["train"], splits["test"])["last_value"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize("task", [RECALL, NOISY], ids=lambda task: task.name)
def test_longer_sequences_are_asked_at_as_many_last_steps(task: StateTracking) -> None:
    some = replace(task, asked=6)
    longer = some.at_length(4 * task.length + 1, 20)
    assert (longer.asked, longer.length, longer.test) == (6, 4 * task.length, 20)
    y = longer.build(None)["test"].y.reshape(20, -1)
    assert (y[:, :-6] == -1).all() and (y[:, -6:] >= 0).any(1).all()


@pytest.mark.parametrize("task", [RECALL, NOISY], ids=lambda task: task.name)
def test_labels_of_other_sequences_are_found_wrong(task: StateTracking) -> None:
    examples = task.build(None)["val"]
    x, y = examples.x.reshape(20, -1), examples.y.reshape(20, -1)
    again = task.recompute_labels(replace(examples, x=x[::-1].reshape(-1)))
    assert np.array_equal(again, y[::-1].reshape(-1)) and not np.array_equal(again, examples.y)


def test_the_published_settings_are_those_at_paper() -> None:
    """Of the files in configs/tasks of github.com/athms/mad-lab: symbols in all, steps, training sequences."""
    published = {"in_context_recall": (16, 128, 12_800), "noisy_recall": (32, 128, 12_800)}
    for name in efforts.MAD:
        task = efforts.task(name, "paper")
        assert isinstance(task, StateTracking)
        assert (task.input.symbols, task.max_length, task.train) == published[name], name  # pyright: ignore
        assert task.test == 1_280


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: InContextRecall(9), "even length"),
        (lambda: InContextRecall(asked=1), "asked is at least 2"),
        (lambda: InContextRecall(keys=0), "at least one key and 2 values"),
        (lambda: InContextRecall(noise=1.0, noise_symbols=4), "from 0 to below 1"),
        (lambda: InContextRecall(noise=0.5), "noise=0.5 and noise_symbols=0"),
    ],
)
def test_bad_settings_are_one_sentence(make, sentence: str) -> None:  # pyright: ignore[reportMissingParameterType]
    with pytest.raises(UserError, match=sentence):
        make()
