"""Objectives against hand-made cases and plain loops."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import pytest
import torch
from tiny import MODEL, FirstSymbol, training_loss
from torch import Tensor
from torch.nn import functional as F

from levelfield.data.batches import Batch, ModelInput, SplitOnDevice, encode, order
from levelfield.evaluate import validation_scores
from levelfield.model import Network
from levelfield.objectives import (
    Causal,
    Classify,
    ClassifySteps,
    Masked,
    Regress,
    StepObjective,
    Sum,
    Trainable,
    heads,
    mean_where,
)
from levelfield.rng import generator
from levelfield.spec import Examples, Input, Label, Signal, Tokens, UserError, Values

TOKENS = Tokens(8)
GRAY = Signal(1, (4.0,), (2.0,), levels=8)
CPU = torch.device("cpu")


def ragged(continuous: bool = False) -> Batch:
    """Sequences of 5, 3 and 1 steps."""
    sequences = [np.array(s, np.uint8) for s in ([1, 2, 3, 4, 5], [7, 0, 2], [6])]
    return SplitOnDevice(Examples.of_sequences(sequences, np.array([0, 1, 2])), CPU).gather(torch.tensor([0, 1, 2]))


def test_gather_pads_with_zeros_and_masks():
    batch = ragged()
    assert batch.raw.tolist() == [[1, 2, 3, 4, 5], [7, 0, 2, 0, 0], [6, 0, 0, 0, 0]]
    assert batch.mask is not None
    assert batch.mask.sum(1).tolist() == batch.lengths.tolist() == [5, 3, 1]
    assert encode(batch.raw, batch.mask, TOKENS)[1].tolist() == [9, 2, 4, 0, 0]
    assert encode(batch.raw, batch.mask, GRAY)[1, :, 0].tolist() == [1.5, -2.0, -1.0, 0.0, 0.0]


def test_data_on_disk_and_on_the_device_give_the_same_batches(monkeypatch: pytest.MonkeyPatch):
    here = ragged()
    monkeypatch.setattr("levelfield.data.batches.RESIDENT_BYTES", 0)
    there = ragged()
    assert torch.equal(here.raw, there.raw)


def test_every_epoch_sees_every_example_once():
    drawn = torch.cat([order(3, step, batch=8, count=20) for step in range(10)])
    assert len(drawn) == 80
    for epoch in range(4):
        assert sorted(drawn[20 * epoch : 20 * epoch + 20].tolist()) == list(range(20))
    assert drawn[:20].tolist() != drawn[20:40].tolist()
    assert torch.equal(order(3, 7, batch=8, count=20), drawn[56:64])


def test_batches_larger_than_the_split():
    assert sorted(order(0, 0, batch=50, count=20).tolist()) == sorted(
        [*range(20)] * 2 + order(0, 0, batch=50, count=20)[40:].tolist()
    )


@pytest.mark.parametrize("block", [1, 4])
def test_masked_hides_the_stated_share_and_never_padding(block: int):
    lengths = np.arange(50, 150)
    x = np.ones(lengths.sum(), np.uint8)
    offsets = np.concatenate([[0], lengths.cumsum()])
    batch = SplitOnDevice(Examples(x, offsets, np.zeros(100)), CPU).gather(torch.arange(100))
    view = Masked(ratio=0.3, block=block).model_input(batch, TOKENS, generator(0, "mask"))
    assert view.masked is not None and batch.mask is not None
    assert not (view.masked & ~batch.mask).any()
    share = view.masked.sum() / batch.mask.sum()
    assert abs(share - 0.3) < 0.03 * block**0.5
    assert (view.x[view.masked] == Tokens.MASK).all()
    assert torch.equal(view.x[~view.masked], encode(batch.raw, batch.mask, TOKENS)[~view.masked])
    if block > 1:  # whole aligned runs, except at the ends
        runs = view.masked[99, :148].view(-1, block)
        assert ((runs.sum(1) == 0) | (runs.sum(1) == block)).all()


def test_a_third_of_the_hidden_symbols_are_random():
    x = np.full(40000, 5, np.uint8)
    batch = SplitOnDevice(Examples.of_equal_length(x.reshape(40, 1000), np.zeros(40)), CPU).gather(torch.arange(40))
    view = Masked(ratio=0.3, random=1 / 3).model_input(batch, TOKENS, generator(0, "mask"))
    assert view.masked is not None
    hidden = view.x[view.masked]
    # The mask symbol itself is one of the 10 ids a random one may be.
    assert abs((hidden == Tokens.MASK).double().mean() - (2 / 3 + 1 / 30)) < 0.02
    assert set(hidden.unique().tolist()) == set(range(TOKENS.vocabulary))


def test_hidden_values_are_zero_and_flagged():
    batch = ragged()
    view = Masked(ratio=0.5, loss_kind="l1").model_input(batch, GRAY, generator(1, "mask"))
    assert view.masked is not None
    assert (view.x[view.masked] == 0).all()


def test_masked_loss_is_the_mean_over_hidden_steps():
    batch = ragged()
    objective = Masked(ratio=0.5)
    view = objective.model_input(batch, TOKENS, generator(4, "mask"))
    assert view.masked is not None
    outputs = torch.randn(3, 5, 8, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    places = [(i, t) for i in range(3) for t in range(5) if view.masked[i, t]]
    assert 0 < len(places) < 9
    by_hand = [-outputs[i, t].log_softmax(-1)[batch.raw[i, t].long()].item() for i, t in places]
    assert objective.loss(outputs, batch, view, TOKENS).item() == pytest.approx(np.mean(by_hand), rel=1e-5)
    everywhere = Masked(ratio=0.5, scope="all")
    real = [(i, t) for i, n in enumerate([5, 3, 1]) for t in range(n)]
    by_hand = [-outputs[i, t].log_softmax(-1)[batch.raw[i, t].long()].item() for i, t in real]
    assert everywhere.loss(outputs, batch, view, TOKENS).item() == pytest.approx(np.mean(by_hand), rel=1e-5)


def test_causal_loss_predicts_the_next_real_step():
    batch = ragged()
    outputs = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    pairs = [(i, t) for i, n in enumerate([5, 3, 1]) for t in range(n - 1)]
    by_hand = [-outputs[i, t].log_softmax(-1)[batch.raw[i, t + 1].long()].item() for i, t in pairs]
    objective = Causal()
    view = objective.model_input(batch, TOKENS, generator(0, "mask"))
    assert objective.loss(outputs, batch, view, TOKENS).item() == pytest.approx(np.mean(by_hand), rel=1e-5)
    scores = objective.score(outputs, batch, view, TOKENS)
    assert scores.weights.tolist() == [4, 2, 0]
    right = [float(outputs[0, t].argmax() == batch.raw[0, t + 1]) for t in range(4)]
    assert scores.values[0].item() == pytest.approx(np.mean(right))


def test_l1_is_on_normalised_values():
    batch = ragged()
    objective = Causal(loss_kind="l1")
    outputs = torch.zeros(3, 5, 1)
    # (raw - 4) / 2 of the targets 2 3 4 5 and 0 2
    expected = np.mean(np.abs([-1.0, -0.5, 0.0, 0.5, -2.0, -1.0]))
    view = objective.model_input(batch, GRAY, generator(0, "mask"))
    assert objective.loss(outputs, batch, view, GRAY).item() == pytest.approx(expected)


def test_channels_are_predicted_each_by_itself():
    colour = Signal(3, (0.0,) * 3, (1.0,) * 3, levels=4)
    raw = np.array([[[0, 1, 2], [3, 0, 1], [2, 2, 2]]], np.uint8)
    batch = SplitOnDevice(Examples.of_equal_length(raw, np.zeros(1)), CPU).gather(torch.tensor([0]))
    outputs = torch.randn(1, 3, 12, generator=torch.Generator().manual_seed(0))
    objective = Causal()
    view = objective.model_input(batch, colour, generator(0, "mask"))
    logits = outputs.view(1, 3, 3, 4)
    by_hand = [
        F.cross_entropy(logits[0, t, c], torch.tensor(int(raw[0, t + 1, c]))).item() for t in range(2) for c in range(3)
    ]
    assert objective.head(colour, Label(2)).outputs == 12
    assert objective.loss(outputs, batch, view, colour).item() == pytest.approx(np.mean(by_hand), rel=1e-5)


def test_sum_trains_on_the_hidden_view_and_is_scored_on_clean_input():
    task = FirstSymbol()
    objective = Sum((Classify(), Masked(ratio=0.9)), (1.0, 0.5))
    net = Network(MODEL, task.input, heads(objective, task), mask_flag=False, seed=0)
    batch = ragged()
    view = objective.model_input(batch, task.input, generator(0, "mask"))
    hidden_states = net.hidden_states(view.x, batch.mask)
    label = F.cross_entropy(net.head("label", hidden_states, batch.mask), batch.y)
    denoise = Masked(ratio=0.9).loss(net.head("denoise", hidden_states, batch.mask), batch, view, task.input)
    total = training_loss(net, batch, objective, task.input, generator(0, "mask"))
    assert total.item() == pytest.approx((label + 0.5 * denoise).item(), rel=1e-6)
    clean = net.hidden_states(encode(batch.raw, batch.mask, task.input), batch.mask)
    right = (net.head("label", clean, batch.mask).argmax(-1) == batch.y).double()
    assert torch.equal(validation_scores(net, batch, objective, task.input, generator(0, "x")).values, right)


def test_regression_scores_squared_error():
    batch = dataclasses.replace(ragged(), y=torch.tensor([[1.0], [2.0], [4.0]]))
    outputs = torch.tensor([[1.0], [3.0], [1.0]])
    objective = Regress()
    view = objective.model_input(batch, TOKENS, generator(0, "mask"))
    assert objective.loss(outputs, batch, view, TOKENS).item() == pytest.approx((0 + 1 + 9) / 3)
    assert objective.score(outputs, batch, view, TOKENS).values.tolist() == [0.0, -1.0, -9.0]


@pytest.mark.parametrize(
    ("objective", "spec", "output", "word"),
    [
        (Classify(), TOKENS, Values(1), "Regress"),
        (Regress(), TOKENS, Label(2), "Classify"),
        (Masked(loss_kind="l1"), TOKENS, Label(2), "ce"),
        (Masked(), Signal(1, (0.0,), (1.0,)), Label(2), "l1"),
    ],
)
def test_what_does_not_fit_says_what_would(
    objective: Trainable, spec: Tokens | Signal, output: Label | Values, word: str
):
    with pytest.raises(UserError, match=word):
        objective.head(spec, output)


def test_impossible_settings_are_refused():
    for make in (
        lambda: Masked(ratio=0.0),
        lambda: Masked(ratio=1.0),
        lambda: Masked(block=0),
        lambda: Masked(random=2),
    ):
        with pytest.raises(UserError, match="ratio"):
            make()
    with pytest.raises(UserError, match="at most one"):
        Sum((Masked(), Masked(ratio=0.5)))
    with pytest.raises(UserError, match="one weight"):
        Sum((Classify(), Masked()), (1.0,))


def test_nothing_hidden_gives_a_zero_loss_with_a_gradient():
    batch = ragged()
    view = Causal().model_input(batch, TOKENS, generator(0, "mask"))
    short = Batch(batch.raw[2:, :1], batch.lengths[2:], None, batch.y[2:])
    outputs = torch.randn(1, 1, 8, requires_grad=True)
    loss = Causal().loss(outputs, short, view, TOKENS)
    loss.backward()
    assert loss.item() == 0.0
    assert outputs.grad is not None


PIXELS = Signal(3, (4.0,) * 3, (2.0,) * 3, levels=8)


@pytest.mark.parametrize("spec", [TOKENS, GRAY, PIXELS], ids=["tokens", "gray", "three channels"])
@pytest.mark.parametrize("kind", ["hidden", "everywhere", "next"])
@pytest.mark.parametrize("loss", ["ce", "l1"])
def test_losses_that_pick_no_places_are_those_that_do(kind: str, spec: Input, loss: Literal["ce", "l1"]) -> None:
    """A GPU has these, a CPU the others; both in value and in gradient."""
    if loss == "l1" and isinstance(spec, Tokens):
        return
    objective: StepObjective = Causal(loss)
    if kind != "next":
        objective = Masked(loss, ratio=0.5, scope="all" if kind == "everywhere" else "hidden")
    batch = ragged()
    if spec is PIXELS:
        batch = dataclasses.replace(batch, raw=torch.stack([batch.raw, (batch.raw + 3) % 8, batch.raw.flip(1)], -1))
    shown = objective.model_input(batch, spec, generator(0, "mask"))
    count = objective.head(spec, Label(3)).outputs
    outputs = torch.randn(3, 5, count, generator=generator(1, "outputs"), requires_grad=True)
    picked = objective.loss(outputs, batch, shown, spec)
    dense = mean_where(objective.everywhere(outputs, batch, spec), objective.scored(batch, shown))
    torch.testing.assert_close(dense, picked)
    found, wanted = (torch.autograd.grad(value, outputs)[0] for value in (dense, picked))
    torch.testing.assert_close(found, wanted)
    assert found.any()


@pytest.mark.parametrize("asked", [[[0, -1, 2], [-1, 1, -1]], [[-1] * 3] * 2])
def test_labels_of_steps_are_learnt_alike_on_devices_that_pick_no_places(
    asked: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(torch.zeros(2, 3), torch.tensor([3, 3]), None, torch.tensor(asked))
    outputs = torch.randn(2, 3, 4, generator=generator(1, "outputs"), requires_grad=True)
    shown, objective = ModelInput(batch.raw), ClassifySteps()
    picked = objective.loss(outputs, batch, shown, TOKENS)
    monkeypatch.setattr(Tensor, "is_cpu", False)
    dense = objective.loss(outputs, batch, shown, TOKENS)
    torch.testing.assert_close(dense, picked)
    found, wanted = (torch.autograd.grad(value, outputs)[0] for value in (dense, picked))
    torch.testing.assert_close(found, wanted)
