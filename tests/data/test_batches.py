"""Which examples a step sees: bucketed batches, pairs of documents and targets at steps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import MODEL, FirstSymbol, recipe
from torch.nn.functional import cross_entropy

from levelfield import protocols
from levelfield.data import prepared
from levelfield.data.batches import Batch, Buckets, ModelInput, SplitOnDevice
from levelfield.files import read_json
from levelfield.objectives import ClassifySteps
from levelfield.run import execute
from levelfield.runs import store
from levelfield.spec import Examples, Run, Tokens, derive_seed

CPU = torch.device("cpu")


def ragged(lengths: list[int], documents: int = 1) -> Examples:
    count = len(lengths) // documents
    sequences = [np.full(n, i % 7, np.uint8) for i, n in enumerate(lengths)]
    return Examples.of_sequences(sequences, np.arange(count), documents=documents)


def steps_of_an_epoch(buckets: Buckets, count: int, first: int = 0) -> list[torch.Tensor]:
    """The batches from step `first` on until `count` examples have been seen."""
    batches, seen = [], 0
    while seen < count:
        batches.append(buckets.order(first + len(batches)))
        seen += len(batches[-1])
    return batches


@pytest.mark.parametrize(("stored", "width"), [(np.uint8, 1), (np.uint16, 4), (np.float32, 4)])
def test_a_split_is_resident_by_the_bytes_that_it_takes_on_the_device(
    monkeypatch: pytest.MonkeyPatch, stored: type[np.generic], width: int
):
    examples = Examples.of_equal_length(np.arange(12).reshape(3, 4).astype(stored), np.zeros(3, np.int64))
    for room, resident in ((12 * width, True), (12 * width - 1, False)):
        monkeypatch.setattr("levelfield.data.batches.RESIDENT_BYTES", room)
        split = SplitOnDevice(examples, CPU)
        assert (split.x is not None) == resident
        assert split.x is None or split.x.nbytes == room
        assert split.gather(torch.tensor([2])).raw.tolist() == [[8, 9, 10, 11]]


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=120),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_every_epoch_has_every_example_once_within_the_budget(lengths: list[int], batch: int, seed: int):
    examples = ragged(lengths)
    buckets = Buckets(seed, examples, batch)
    budget = batch * np.mean(lengths)
    first = 0
    for _ in range(2):
        epoch = steps_of_an_epoch(buckets, len(lengths), first)
        first += len(epoch)
        assert sorted(torch.cat(epoch).tolist()) == list(range(len(lengths)))
        for indices in epoch:
            padded = len(indices) * max(lengths[i] for i in indices.tolist())
            assert padded <= budget + 1e-6 or len(indices) == 1


def test_a_resumed_run_sees_the_batches_it_would_have_seen():
    examples = ragged([int(n) for n in np.random.default_rng(0).integers(1, 60, 200)])
    whole = Buckets(3, examples, 8)
    orders = [whole.order(step).tolist() for step in range(100)]
    assert [Buckets(3, examples, 8).order(step).tolist() for step in (0, 31, 99)] == [orders[s] for s in (0, 31, 99)]
    assert whole.order(2).tolist() == orders[2]
    assert orders[:25] != [Buckets(4, examples, 8).order(step).tolist() for step in range(25)]


def test_like_lengths_leave_little_padding():
    """2,000 lengths spread over a factor of ten: random batches are nearly half padding, bucketed ones hardly any."""
    lengths = np.random.default_rng(1).integers(20, 201, 2_000)
    split = SplitOnDevice(ragged([int(n) for n in lengths]), CPU)
    buckets = Buckets(0, split.examples, 16)
    epoch = [split.gather(indices) for indices in steps_of_an_epoch(buckets, len(split))]
    waste = 1 - lengths.sum() / sum(batch.steps for batch in epoch)
    shuffled = torch.randperm(len(split), generator=torch.Generator().manual_seed(0)).split(16)
    random = 1 - lengths.sum() / sum(split.gather(indices).steps for indices in shuffled)
    assert waste < 0.06 and random > 0.35
    assert len(epoch) == pytest.approx(len(shuffled), rel=0.1)


def test_a_pair_is_as_long_as_its_longer_document():
    buckets = Buckets(0, ragged([3, 9, 9, 2, 1, 1, 2, 2], documents=2), 1)
    assert buckets.padded.tolist() == [18, 18, 2, 4]


def test_bucketed_runs_count_what_they_saw(tmp_path: Path):
    """The ledger's examples, tokens and padding are those of the batches, and padding is less than without."""
    task, numbers = FirstSymbol(length=60), dataclasses.replace(recipe(steps=40), bucketed=True)
    ledgers = []
    for each in (recipe(steps=40), numbers):
        run = Run(task, MODEL, protocols.scratch(each), 0)
        execute(run, store.directory(tmp_path, run), tmp_path / "data", device="cpu")
        ledgers.append(read_json(store.directory(tmp_path, run) / "ledger.json"))
    split = SplitOnDevice(prepared.load(task, tmp_path / "data")["train"], CPU)
    buckets = Buckets(derive_seed(0, "phase", 0), split.examples, numbers.batch)
    batches = [split.gather(buckets.order(step)) for step in range(40)]
    assert ledgers[1]["examples"] == sum(len(b.y) for b in batches)
    assert ledgers[1]["tokens"] == sum(int(b.lengths.sum()) for b in batches)
    assert ledgers[1]["padding"] == sum(b.steps for b in batches) - ledgers[1]["tokens"]
    assert ledgers[1]["padding"] < 0.4 * ledgers[0]["padding"]


def test_pairs_are_gathered_together():
    examples = ragged([2, 3, 1, 4], documents=2)
    batch = SplitOnDevice(examples, CPU).gather(torch.tensor([1, 0]))
    assert batch.lengths.tolist() == [1, 4, 2, 3] and batch.documents == 2 and batch.y.tolist() == [1, 0]
    assert batch.raw.tolist() == [[2, 0, 0, 0], [3, 3, 3, 3], [0, 0, 0, 0], [1, 1, 1, 0]]
    assert examples.take(np.array([1])).lengths.tolist() == [1, 4]
    assert examples.longest.tolist() == [3, 4] and examples.sizes.tolist() == [5, 5] and len(examples) == 2


def test_targets_at_steps_lie_along_the_input():
    x = [np.array([5, 6, 7], np.uint8), np.array([8], np.uint8)]
    examples = Examples.of_sequences(x, np.array([-1, 2, 0, 1]), stepwise=True)
    batch = SplitOnDevice(examples, CPU).gather(torch.tensor([1, 0]))
    assert batch.y.tolist() == [[1, -1, -1], [-1, 2, 0]] and batch.documents == 1
    assert examples.take(np.array([1, 0])).y.tolist() == [1, -1, 2, 0]
    equal = Examples.of_equal_length(np.zeros((2, 3), np.uint8), np.arange(6).reshape(2, 3), stepwise=True)
    assert equal.y.tolist() == [0, 1, 2, 3, 4, 5] and len(equal) == 2


def test_labels_at_steps_are_scored_where_they_are_asked():
    y = torch.tensor([[1, -1, 0], [-1, -1, -1]])
    outputs = torch.tensor([[[0.0, 3.0], [9.0, 0.0], [1.0, 2.0]], [[0.0, 1.0]] * 3])
    batch = Batch(torch.zeros(2, 3, dtype=torch.uint8), torch.tensor([3, 3]), None, y)
    view, spec = ModelInput(batch.raw), Tokens(4)
    expected = cross_entropy(torch.tensor([[0.0, 3.0], [1.0, 2.0]]), torch.tensor([1, 0]))
    torch.testing.assert_close(ClassifySteps().loss(outputs, batch, view, spec), expected)
    scores = ClassifySteps().score(outputs, batch, view, spec)
    assert scores.values.tolist() == [0.5, 0.0] and scores.weights.tolist() == [2.0, 0.0]
    empty = dataclasses.replace(batch, y=torch.full((2, 3), -1))
    assert ClassifySteps().loss(outputs.requires_grad_(), empty, view, spec).item() == 0.0
