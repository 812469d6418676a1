"""Batches of like lengths train on the loss that shuffled ones train on: each example counts once in an epoch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import MODEL, FirstSymbol, recipe, training_loss

from levelfield import protocols
from levelfield import train as training
from levelfield.data.batches import Batch, Buckets, ModelInput, Shuffled, SplitOnDevice
from levelfield.files import read_json
from levelfield.model import Network
from levelfield.objectives import Causal, Classify, ClassifySteps, Masked, Regress, Sum, Trainable, heads
from levelfield.rng import generator
from levelfield.run import execute
from levelfield.spec import Duration, Examples, Progress, Recipe, Run, SplitName, Tokens, no_progress
from levelfield.tasks.text import Text
from levelfield.train import Plan, State, make_optimizer, train

CPU = torch.device("cpu")
REAL = os.environ.get("LEVELFIELD_TEST_DATA")
STEADY = dataclasses.replace(recipe(batch=16, lr=5e-3), schedule="constant", weight_decay=0.0, clip=None, bucketed=True)


def drawn(count: int = 400, documents: int = 1) -> Examples:
    """Lengths over a factor of forty, with targets at steps, some of them asked."""
    rng = np.random.default_rng(0)
    lengths = np.exp(rng.uniform(0, np.log(40), count * documents)).astype(int)
    x = [rng.integers(0, 5, n, dtype=np.uint8) for n in lengths]
    return Examples.of_sequences(x, rng.integers(0, 3, count), documents=documents)


def asking(examples: Examples) -> Examples:
    """The same with a target at about every third step."""
    y = np.random.default_rng(1).integers(-6, 3, len(examples.x))
    return dataclasses.replace(examples, y=np.maximum(y, -1), stepwise=True)


def outputs_of(objective: Trainable, batch: Batch) -> torch.Tensor:
    """Made up for each example, or each step, from what it holds, so that they are the same in any batch."""
    steps = torch.stack([(batch.raw * k).double().cos() for k in (1, 2, 3, 5, 7)], -1)
    if isinstance(objective, (Classify, Regress)):
        real = torch.arange(batch.raw.shape[1]) < batch.lengths[:, None]
        pooled = (steps * real[..., None]).sum(1).unflatten(0, (-1, batch.documents)).sum(1)
        return pooled[:, : 1 if isinstance(objective, Regress) else 3]
    return steps[..., :3] if isinstance(objective, ClassifySteps) else steps


@pytest.mark.parametrize("documents", [1, 2])
@pytest.mark.parametrize("objective", [Classify(), Regress(), ClassifySteps(), Masked(scope="all"), Causal()])
def test_an_epoch_of_buckets_is_the_mean_over_all_of_the_split(objective: Trainable, documents: int):
    """Against the loss of the whole split as one batch; batches that count alike are far from it."""
    if documents == 2 and isinstance(objective, ClassifySteps):
        pytest.skip("tasks with targets at steps have one document")
    examples = drawn(documents=documents)
    examples = asking(examples) if isinstance(objective, ClassifySteps) else examples
    if isinstance(objective, Regress):
        examples = dataclasses.replace(examples, y=np.arange(len(examples), dtype=np.float32)[:, None] / 100)
    split, buckets = SplitOnDevice(examples, CPU), Buckets(0, examples, 8)
    units = objective.units(examples)

    def loss(batch: Batch) -> float:
        view = ModelInput(batch.raw, torch.ones_like(batch.raw, dtype=torch.bool))
        return float(objective.loss(outputs_of(objective, batch), batch, view, Tokens(5)))

    epoch = buckets.epoch(0)
    found = [(buckets.share(step, units, units.sum()), loss(split.gather(buckets.order(step)))) for step in epoch]
    assert np.mean([share for share, _ in found]) == pytest.approx(1)
    whole = loss(split.gather(torch.arange(len(examples))))
    assert np.mean([share * value for share, value in found]) == pytest.approx(whole, rel=1e-4)
    assert all(Shuffled(0, examples, 8).share(step, units, units.sum()) == 1 for step in range(5))


def test_a_step_may_have_nothing_to_predict():
    """The symbols of single steps have no next one, and their batches count for nothing."""
    examples = Examples.of_sequences([np.zeros(n, np.uint8) for n in [1] * 40 + [9] * 40], np.zeros(80, int))
    buckets, units = Buckets(0, examples, 4), Causal().units(examples)
    shares = {
        int(examples.lengths[buckets.order(s)].max()): buckets.share(s, units, units.sum()) for s in buckets.epoch(0)
    }
    assert shares[1] == 0 and shares[9] > 1


def test_the_logged_loss_is_the_mean_of_every_objective():
    """A batch of long sequences counts few examples, but as many steps as any: each objective by its own share."""
    objective = Sum((Classify(), Masked(ratio=0.3)), by=(1.0, 2.0))
    task, split = FirstSymbol(), SplitOnDevice(drawn(), CPU)
    net = Network(MODEL, task.input, heads(objective, task), mask_flag=False, seed=0)
    still = dataclasses.replace(STEADY, lr=1e-12, batch=8)
    state, buckets = State(net, make_optimizer(net, still, {})), Buckets(0, split.examples, 8)
    plan = Plan(objective, still, task.input, steps=9, warmup=0, validate_every=9)
    for metrics in train(state, plan, split, 0, lambda: 0.0):
        batch, draws = split.gather(buckets.order(metrics.step - 1)), generator(0, "mask", metrics.step - 1)
        with torch.no_grad():
            mean = float(training_loss(net, batch, objective, task.input, draws))
        assert metrics.loss == pytest.approx(mean, rel=1e-5)


@dataclasses.dataclass(frozen=True)
class Blind(FirstSymbol):
    """Reviews of one symbol alone, of given lengths: the label is whether one is longer than half of them. A mean over
    steps cannot see it."""

    lengths: tuple[int, ...] = ()

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        lengths = np.array(self.lengths)
        y = (lengths > np.median(lengths)).astype(np.int64)
        whole = Examples.of_sequences([np.zeros(n, np.uint8) for n in lengths], y)
        return {"train": whole, "val": whole.take(np.arange(8)), "test": whole.take(np.arange(8))}


def believed(lengths: np.ndarray, numbers: Recipe, steps: int) -> tuple[float, float]:
    """The share of long reviews that a model believes in which cannot see length, on average over the last third of
    training; and what is true."""
    task = Blind(classes=2, lengths=tuple(int(n) for n in lengths))
    split = SplitOnDevice(task.build(None)["train"], CPU)
    model = dataclasses.replace(MODEL, depth=1, width=8)
    net = Network(model, task.input, heads(Classify(), task), mask_flag=False, seed=0)
    one = split.gather(torch.tensor([int(lengths.argmax())]))
    state = State(net, make_optimizer(net, numbers, {}))
    plan = Plan(Classify(), numbers, task.input, steps, warmup=0, validate_every=steps)
    seen = []
    for metrics in train(state, plan, split, 0, lambda: 0.0):
        if metrics.step > 2 * steps // 3 and metrics.step % 5 == 0:
            with torch.no_grad():
                hidden_states = net.hidden_states(one.raw.long() + Tokens.OFFSET, None)
                seen.append(float(net.head("label", hidden_states, None).softmax(-1)[0, 1]))
    return float(np.mean(seen)), float(split.y.double().mean())


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_model_that_cannot_see_length_learns_the_share(clip: float | None):
    """Lengths as those of reviews: with batches that count alike, a long review would weigh as ten short ones."""
    lengths = np.exp(np.random.default_rng(2).normal(2.6, 0.7, 1_000)).astype(int).clip(1, 100)
    found, true = believed(lengths, dataclasses.replace(STEADY, clip=clip), 300)
    assert found == pytest.approx(true, abs=0.05)


@pytest.mark.parametrize("turned", [0, 500])
def test_an_unusual_gradient_is_clipped_and_a_usual_one_is_not(turned: int):
    """Usual is the root of the mean of squared norms, over steps whose gradients are set by hand. Of so many complex
    parameters, they are imaginary."""
    task = FirstSymbol()
    net = Network(MODEL, task.input, heads(Classify(), task), mask_flag=False, seed=0)
    net.register_parameter("turned", torch.nn.Parameter(torch.zeros(turned, dtype=torch.complex64)) if turned else None)
    numbers = dataclasses.replace(STEADY, clip=1e-3)
    optimizer = make_optimizer(net, numbers, {})
    size = sum(p.numel() for p in net.parameters()) ** 0.5

    def clipped(value: float, step: int) -> float:
        for p in net.parameters():
            p.grad = torch.full_like(p, value * 1j if p.is_complex() else value)
        norm = training._clipped(net, optimizer, numbers, step)
        assert float(norm) == pytest.approx(value * size, rel=1e-4)
        return float(list(net.parameters())[-1].grad.mean())  # pyright: ignore

    for step, value in enumerate([1.0, 3.0, 1.0, 3.0]):
        assert clipped(value, step) == pytest.approx(value)
        optimizer.step()
    usual = 5**0.5
    assert clipped(3.9 * usual, 4) == pytest.approx(3.9 * usual, rel=1e-2)
    assert clipped(1e4, 4) == pytest.approx(4 * usual, rel=1e-2)


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="real reviews: set LEVELFIELD_TEST_DATA")
def test_on_the_lengths_of_real_reviews_too():
    """A sixteenth of each length, for speed."""
    lengths = Text().build(Path(str(REAL)))["train"].lengths // 16 + 1
    found, true = believed(lengths, dataclasses.replace(STEADY, clip=1.0), 600)
    assert true == pytest.approx(0.5, abs=0.02) and found == pytest.approx(true, abs=0.05)


@pytest.mark.parametrize(("value", "unit"), [(2, "epochs"), (1.5, "epochs"), (512, "examples")])
def test_an_epoch_of_budget_is_an_epoch_of_what_is_seen(tmp_path: Path, value: float, unit: str):
    task = FirstSymbol(length=60)
    budget = Duration(value, unit)  # pyright: ignore[reportArgumentType]
    numbers = dataclasses.replace(recipe(), budget=budget, bucketed=True, validate_every=Duration(1, "epochs"))
    run = Run(task, MODEL, protocols.scratch(numbers), 0)
    execute(run, tmp_path / "run", tmp_path / "data", "cpu")
    seen = read_json(tmp_path / "run" / "ledger.json")["examples"]
    wanted = value if unit == "examples" else value * task.train
    assert seen == wanted or (value == 1.5 and 1.25 * task.train < seen < 1.75 * task.train)


def test_a_window_of_the_plateau_is_an_epoch():
    """The mean of its losses, each as much as its step counts for, is what is compared at its end."""
    examples = drawn()
    buckets = Buckets(0, examples, 8)
    ends, step = [], 0
    while len(ends) < 3:
        epoch = buckets.epoch(step)
        assert epoch.start == step and sorted(torch.cat([buckets.order(s) for s in epoch]).tolist()) == list(range(400))
        ends.append(epoch.stop)
        step = epoch.stop
    assert [Buckets(0, examples, 8).steps(n) for n in (0, 1, 2, 3)] == [0, *ends]
    assert ends[0] < Buckets(0, examples, 8).steps(1.5) < ends[1]
    task = FirstSymbol(length=60)
    split = SplitOnDevice(task.build(None)["train"], CPU)
    net = Network(MODEL, task.input, heads(Classify(), task), mask_flag=False, seed=0)
    numbers = dataclasses.replace(STEADY, lr=1e-12, schedule="plateau")  # so that nothing moves
    first = len(Buckets(0, split.examples, 16).epoch(0))
    state = State(net, make_optimizer(net, numbers, {}))
    plan = Plan(Classify(), numbers, task.input, first, warmup=0, validate_every=first)
    list(train(state, plan, split, 0, lambda: 0.0))
    with torch.no_grad():
        batch = split.gather(torch.arange(len(split)))
        hidden_states = net.hidden_states(batch.raw.long().add(Tokens.OFFSET).masked_fill(~batch.mask, 0), batch.mask)  # pyright: ignore
        whole = float(
            Classify().loss(net.head("label", hidden_states, batch.mask), batch, ModelInput(hidden_states), task.input)
        )
    assert state.lowest_epoch_loss == pytest.approx(whole, rel=1e-5) and state.epoch_loss == 0.0
