"""The tasks of MAD against readers that go through a sequence from left to right and keep what they are told."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from levelfield.mixers.conv import Conv
from levelfield.model import Network
from levelfield.objectives import default_objective, heads
from levelfield.presets import efforts
from levelfield.spec import Examples, Model, SplitName, StepLabels, Tokens, UserError
from levelfield.tasks._state_tracking import StateTracking
from levelfield.tasks.compression import Compression
from levelfield.tasks.fuzzy_recall import FuzzyRecall
from levelfield.tasks.in_context_recall import InContextRecall
from levelfield.tasks.memorisation import Memorisation

RECALL = InContextRecall(24, None, 60, 20, 80, keys=5, values=4)
NOISY = InContextRecall(24, None, 60, 20, 80, keys=5, values=4, noise=0.5, noise_symbols=3)
FUZZY = FuzzyRecall(30, None, 200, 20, 80, keys=3, values=4, key_steps=2, value_steps=3)
FACTS = Memorisation(20, None, 60, 20, 80, keys=30, values=40)
every_task = pytest.mark.parametrize("task", [RECALL, NOISY, FUZZY, FACTS], ids=lambda task: task.name)


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


@pytest.mark.parametrize("task", [NOISY, FUZZY], ids=lambda task: task.name)
def test_the_value_before_is_a_rule(task: InContextRecall | FuzzyRecall) -> None:
    splits = task.build(None)
    right: list[bool] = []
    for x, y in rows(task, splits["test"]):
        for step in (step for step, label in enumerate(y) if label >= 0):
            before = [symbol - task.keys for symbol in x[: step + 1] if 0 <= symbol - task.keys < task.values]
            right.append(before[-1] == y[step])
    assert task.baselines(splits["train"], splits["test"])["last_value"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize("task", [NOISY, replace(NOISY, noise=0.0, noise_symbols=0)], ids=lambda task: task.name)
def test_the_commonest_value_before_is_a_rule(task: InContextRecall) -> None:
    splits = task.build(None)
    right: list[bool] = []
    for x, y in rows(task, splits["test"]):
        for step in (step for step, label in enumerate(y) if label >= 0):
            before = sorted(symbol - task.keys for symbol in x[:step] if 0 <= symbol - task.keys < task.values)
            right.append(max(before, key=before.count) == y[step])
    assert task.baselines(splits["train"], splits["test"])["commonest_value"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize("split", ["train", "test"])
def test_keys_and_values_of_several_symbols_are_those_that_a_pattern_finds(split: SplitName) -> None:
    """Written with small letters for keys and capitals for values, pairs are what a regular expression finds."""
    examples = FUZZY.build(None)[split]
    keys: set[str] = set()
    for (x, y), steps in zip(rows(FUZZY, examples), examples.slices["value"].tolist(), strict=True):
        text = "".join("abcABCD."[symbol] for symbol in x)
        assert re.fullmatch(r"\.*([abc]{1,2}[ABCD]{1,3})+", text)
        asked: list[str | None] = [None] * 30
        told: dict[str, str] = {}
        for pair in re.finditer(r"([abc]+)([ABCD]+)", text):
            key, value = pair.groups()
            assert len(set(key)) == len(key) and len(set(value)) == len(value)
            if key in told:
                asked[pair.end(1) - 1 : pair.end(2) - 1] = told[key]
            assert told.setdefault(key, value) == value
            keys.add(key)
        assert [None if label < 0 else "ABCD"[label] for label in y] == asked
        assert y[-2] >= 0 and len(value) == steps  # pyright: ignore[reportPossiblyUnboundVariable]
    longest = {"ab", "ac", "ba", "bc", "ca", "cb"}
    assert keys == (longest if split == "test" else longest | {"a", "b", "c"})


@pytest.mark.parametrize("known, share", [(1, 0.49), (2, 0.90)])
def test_two_symbols_of_a_key_tell_most_values(known: int, share: float) -> None:
    """As the page on tasks says, of whoever looks up what of a value last followed the same symbols."""
    task = FuzzyRecall(train=1, val=1, test=600)
    right: list[bool] = []
    for x, y in rows(task, task.build(None)["test"]):
        text = "".join(chr(97 + symbol) for symbol in x)  # keys a to g, values h to o, p for the blank
        for step in (step for step, label in enumerate(y) if label >= 0):
            before = re.findall(f"(?={text[step + 1 - known : step + 1]}([h-o]))", text[: step + 1])
            right.append(bool(before) and ord(before[-1]) - 104 == y[step])
    assert abs(np.mean(right) - share) < 0.03


def test_motifs_of_all_lengths_and_symbols_are_equally_likely() -> None:
    """In the first pair of a sequence, which is there whatever follows."""
    task = FuzzyRecall(12, None, 900, 1, 1, values=9)
    x = task.build(None)["train"].x.reshape(-1, 12)
    kinds = ["".join("k" * (symbol < 7) or "v" * (symbol < 16) or "." for symbol in row) for row in x.tolist()]
    first = [re.match(r"\.*(k+)(v+)", kind) for kind in kinds]
    for part in (1, 2):
        sizes = np.bincount([len(found[part]) for found in first if found], minlength=4)[1:]
        assert sizes.sum() == 900 and np.abs(sizes / 900 - 1 / 3).max() < 4.5 * np.sqrt(2 / 9 / 900)
    begins = np.bincount([row[found.start(1)] for row, found in zip(x, first, strict=True) if found], minlength=7)
    assert np.abs(begins / 900 - 1 / 7).max() < 4.5 * np.sqrt(6 / 49 / 900)


def test_a_table_of_the_training_pairs_answers_what_it_has_seen() -> None:
    task = Memorisation(10, None, 40, 10, 400, keys=200, values=300)
    splits = task.build(None)
    table = {x[i]: y[i + 1] for x, y in rows(task, splits["train"]) for i in range(0, 10, 2)}
    questions = [(x[i], y[i + 1]) for x, y in rows(task, splits["test"]) for i in range(0, 10, 2)]
    assert all(table.get(key, value) == value for key, value in questions)
    seen = np.mean([key in table for key, _ in questions])
    assert abs(seen - task.known) < 0.06 and task.known == 1 - (199 / 200) ** 200  # of how many training holds
    assert len(set(table.values())) == len(table)
    assert Memorisation(keys=4_095, values=4_096).known == pytest.approx(0.632, abs=1e-3)  # as the page on tasks says


@pytest.mark.parametrize("symbols", [128, 129, 255, 256, 32_768, 32_769])
def test_recomputed_labels_have_none_at_the_mark_whatever_type_the_symbols_have(symbols: int) -> None:
    task = Compression(5, symbols, train=3, val=3, test=3)
    test = task.build(None)["test"]
    assert test.y.reshape(-1, 5)[:, -1].tolist() == [-1, -1, -1]
    assert np.array_equal(task.recompute_labels(test), test.y)


@pytest.mark.parametrize("asked", [1, 3, 4, 10])
def test_only_questions_that_training_asks_count_as_known(asked: int) -> None:
    task = Memorisation(10, asked, 40, 10, 400, keys=100, values=300)
    splits = task.build(None)
    table = {x[i]: y[i + 1] for x, y in rows(task, splits["train"]) for i in range(0, 10, 2) if y[i + 1] >= 0}
    seen = np.mean([key in table for x, _ in rows(task, splits["test"]) for key in x[::2]])
    assert abs(seen - task.known) < 0.08


def test_the_map_is_the_same_at_all_lengths_and_sizes_and_another_with_another_seed() -> None:
    for other in (FACTS.at_length(80, 10), replace(FACTS, train=5, asked=3)):
        assert np.array_equal(other.map, FACTS.map)
    assert not np.array_equal(replace(FACTS, seed=1).map, FACTS.map)
    assert (FACTS.bounded(1), FACTS.bounded(2)) == (1 / 40, 1.0)


def test_all_symbols_are_asked_of_the_state_of_the_mark() -> None:
    task = Compression(7, 5, train=1, val=1, test=600)
    x, y = (part.reshape(600, 7) for part in (task.build(None)["test"].x, task.build(None)["test"].y))
    assert (x[:, -1] == 5).all() and (y[:, -1] == -1).all() and (x[:, :-1] == y[:, :-1]).all()
    shares = np.stack([np.bincount(x[:, step], minlength=5) / 600 for step in range(6)])
    assert shares.shape == (6, 5) and np.abs(shares - 1 / 5).max() < 4.5 * np.sqrt(4 / 25 / 600)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_decoder_sees_the_pooled_state_and_the_number_of_a_step_alone(pooling: Literal["last", "mean"]) -> None:
    task = Compression(6, 3, train=8, val=2, test=2)
    model = Model((Conv(5, hidden=16),), 1, 16, causal=True, pooling=pooling)
    net = Network(model, task.input, heads(default_objective(task), task), mask_flag=False, seed=0).eval()
    states = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0))
    others = states.flip(1) if pooling == "mean" else torch.cat([torch.zeros(2, 5, 16), states[:, -1:]], 1)
    with torch.no_grad():
        out, same = (net.head("steps", each, None) for each in (states, others))
        longer = net.head("steps", states[:, -1:].expand(-1, 9, -1), None)
    assert out.shape == (2, 6, 3) and torch.allclose(out, same, atol=1e-6)
    assert longer.shape == (2, 9, 3) and float(out.diff(dim=1).abs().amax((0, 2)).min()) > 1e-4


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9])
def test_a_state_that_sees_few_steps_is_right_about_those(steps: int) -> None:
    """Of all sequences of three bits, those that end alike share an answer, and the best one is counted."""
    task = Compression(4, 2)
    x = np.array([[code >> place & 1 for place in range(3)] for code in range(8)])
    ends = [tuple(row[max(0, 4 - steps) :]) for row in x.tolist()]
    right = [np.bincount(x[[end == key for end in ends], step]).max() for key in sorted(set(ends)) for step in range(3)]
    assert task.bounded(steps) == pytest.approx(sum(right) / 24)


@every_task
def test_longer_sequences_are_asked_at_as_many_last_steps(task: StateTracking) -> None:
    some = replace(task, asked=6)
    longer = some.at_length(4 * task.length + 1, 20)
    assert (longer.asked, longer.length - 4 * task.length, longer.test) == (6, task.name == "fuzzy_recall", 20)
    y = longer.build(None)["test"].y.reshape(20, -1)
    assert (y[:, :-6] == -1).all() and (y[:, -6:] >= 0).any(1).all()


@every_task
def test_labels_of_other_sequences_are_found_wrong(task: StateTracking) -> None:
    examples = task.build(None)["val"]
    x, y = examples.x.reshape(20, -1), examples.y.reshape(20, -1)
    again = task.recompute_labels(replace(examples, x=x[::-1].reshape(-1)))
    assert np.array_equal(again, y[::-1].reshape(-1)) and not np.array_equal(again, examples.y)


def test_the_published_settings_are_those_at_paper() -> None:
    """Of the files in configs/tasks of github.com/athms/mad-lab: symbols in all, steps, training sequences."""
    published = {
        "in_context_recall": (16, 128, 12_800),
        "noisy_recall": (32, 128, 12_800),
        "fuzzy_recall": (16, 128, 12_800),
        "memorisation": (256, 32, 256),
        "compression": (16, 32, 12_800),
    }
    for name in efforts.MAD:
        task = efforts.generated(name, "paper")
        assert isinstance(task, StateTracking | Compression) and isinstance(task.output, StepLabels)
        assert isinstance(task.input, Tokens)
        symbols = task.input.symbols + (task.output.classes if name == "memorisation" else 0)  # values are never shown
        assert (symbols, task.max_length, task.train, task.test) == (*published[name], 1_280), name


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: InContextRecall(9), "even length"),
        (lambda: InContextRecall(asked=1), "asked is at least 2"),
        (lambda: InContextRecall(keys=0), "at least one key and 2 values"),
        (lambda: InContextRecall(noise=1.0, noise_symbols=4), "from 0 to below 1"),
        (lambda: FuzzyRecall(keys=2), "different symbols, not of 3 out of 2"),
        (lambda: FuzzyRecall(11), "room for two pairs, 12 steps, not 11"),
        (lambda: FuzzyRecall(shortest_key=4), "shortest_key of 1 to 3, not 4"),
        (lambda: FuzzyRecall(asked=1), "asked is at least 2"),
        (lambda: FuzzyRecall(keys=40_000, values=40_000), "at most 65,000 symbols"),
        (lambda: Memorisation(7), "even length of at least 4 steps, not 7"),
        (lambda: Memorisation(2), "even length of at least 4 steps, not 2"),
        (lambda: Compression(1), "at least 2 steps and 2 to 65,000 symbols, not 1 and 15"),
        (lambda: Compression(4, 2).build(None), "too few different sequences"),
        (lambda: Memorisation(keys=129), "not 128 and 129"),
        (lambda: InContextRecall(noise=0.5), "noise=0.5 and noise_symbols=0"),
        (lambda: InContextRecall(noise_symbols=-3), "noise=0.0 and noise_symbols=-3"),
    ],
)
def test_bad_settings_are_one_sentence(make, sentence: str) -> None:  # pyright: ignore[reportMissingParameterType]
    with pytest.raises(UserError, match=sentence):
        make()
