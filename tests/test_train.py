"""The training loop against torch's own schedulers and a loop written out."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from tiny import MODEL, FirstSymbol, RunningMean, recipe, training_loss

from levelfield import train as training
from levelfield.data.batches import SplitOnDevice, order
from levelfield.evaluate import evaluate
from levelfield.model import Network
from levelfield.objectives import Classify, heads
from levelfield.rng import generator, seeded
from levelfield.spec import Examples, ParamRule, Recipe, UserError
from levelfield.train import Plan, Rank, State, copied, kept, make_optimizer, train

TASK = FirstSymbol()
SPLITS = TASK.build(None)
CPU = torch.device("cpu")


def setup(numbers: Recipe, steps: int, **changes: Any) -> tuple[State, Plan, SplitOnDevice]:
    model = dataclasses.replace(MODEL, mixers=(RunningMean(dropout=0.2),))
    net = Network(model, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0)
    plan = Plan(Classify(), numbers, TASK.input, steps, warmup=0, validate_every=steps)
    state = State(net, make_optimizer(net, numbers, net.rules()))
    return state, dataclasses.replace(plan, **changes), SplitOnDevice(SPLITS["train"], CPU)


def rates(schedule: str, steps: int, warmup: int) -> list[float]:
    state, plan, split = setup(dataclasses.replace(recipe(lr=0.5), schedule=schedule), steps, warmup=warmup)
    return [m.lr for m in train(state, plan, split, 0, lambda: 0.0)]


def test_schedules_are_those_of_torch():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.25, 1.0, total_iters=3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
    both = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [4])
    expected = []
    for _ in range(20):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        both.step()
    assert rates("cosine", 20, 4) == pytest.approx(expected)
    assert rates("constant", 5, 2) == [0.25, 0.5, 0.5, 0.5, 0.5]
    assert rates("linear", 5, 1) == pytest.approx([0.5, 0.5, 0.375, 0.25, 0.125])


def test_plateau_cuts_when_torch_would_and_in_the_last_tenth():
    losses = [1.0, 0.9, 0.9, 0.9, 0.95, *[0.8] * 50]
    epoch, patience = 3, 2
    numbers = dataclasses.replace(recipe(lr=1.0), schedule="plateau", plateau_patience=patience)
    state, plan, _ = setup(numbers, len(losses) * epoch)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.2, patience=patience, threshold=1e-4, min_lr=1e-7, eps=0.0
    )
    for loss in losses:
        ours = training._rate(1.0, plan, state)
        last_tenth = state.step >= 0.9 * plan.steps
        assert ours == pytest.approx(optimizer.param_groups[0]["lr"] * (0.1 if last_tenth else 1.0), abs=0)
        for _ in range(epoch):
            steps = range(state.step // epoch * epoch, (state.step // epoch + 1) * epoch)
            state.step += 1
            training._plateau(plan, state, loss, step=state.step, epoch=steps)
        reference.step(loss)
    assert optimizer.param_groups[0]["lr"] == 1e-7 and state.cut < 1e-8


CREEPING = [0.1, 0.2, 0.22, 0.24, 0.26, 0.28, 0.3, 0.4, 0.43, 0.46]


@pytest.mark.parametrize(
    ("scores", "least"), [([0.1, 0.2, 0.2, 0.15, 0.3, 0.3, 0.3, 0.4], 0.0), (CREEPING, 0.0), (CREEPING, 0.05)]
)
def test_patience_cuts_the_rate_as_torch_would_and_then_ends(scores: list[float], least: float):
    """torch counts one more: it cuts at the first bad epoch beyond the patience, ours at the last one of it."""
    best, scores = max(scores), [*scores, *[scores[-1]] * 20]
    numbers = dataclasses.replace(recipe(lr=1.0), schedule="constant", patience=2, cuts=2, least_gain=least)
    state, plan, split = setup(numbers, len(scores), validate_every=1)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.2, patience=1, threshold=least, threshold_mode="abs", eps=0.0
    )
    given = iter(scores)
    for metrics in train(state, plan, split, 0, lambda: next(given)):
        assert metrics.score is not None
        assert metrics.lr == pytest.approx(optimizer.param_groups[0]["lr"])
        reference.step(metrics.score)
    assert (state.stopped, state.cuts, state.best_score) == ("patience", 2, best)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.2**3)  # the cut that ends it


def test_patience_counts_from_where_the_recipe_says():
    numbers = dataclasses.replace(recipe(lr=0.1), schedule="constant", patience=2)
    ends = []
    for least in (0, 7):
        state, plan, split = setup(numbers, 20, validate_every=1, patience_after=least)
        list(train(state, plan, split, 0, lambda: 0.5))
        ends.append((state.step, state.stopped, state.best_step))
    assert ends == [(3, "patience", 1), (9, "patience", 1)]


def test_a_score_that_is_enough_ends_a_phase_with_its_weights():
    state, plan, split = setup(dataclasses.replace(recipe(), enough=0.9, patience=2), 20, validate_every=2)
    scores = iter([0.5, 0.4, 0.9, 0.95])
    weights = [copied(state.net) for _ in train(state, plan, split, 0, lambda: next(scores))]
    assert (state.step, state.stopped, state.best_step) == (6, "enough", 6)
    assert all(torch.equal(kept(state, Rank())[name], value) for name, value in weights[-1].items())
    with pytest.raises(UserError, match="enough=nan has it never or always"):
        dataclasses.replace(recipe(), enough=float("nan"))


@pytest.mark.parametrize("changes", [{"least_gain": 0.1}, {"least_gain": -0.1, "patience": 2}])
def test_a_least_gain_is_one_of_the_patience(changes: dict[str, Any]):
    with pytest.raises(UserError, match="needs a patience, and a finite gain"):
        dataclasses.replace(recipe(), **changes)


@pytest.mark.parametrize("changes", [{"cuts": 1}, {"cuts": 1, "patience": 2, "schedule": "cosine"}, {"cuts": -1}])
def test_cuts_need_patience_and_a_constant_rate(changes: dict[str, Any]):
    with pytest.raises(UserError, match="needs a patience and schedule='constant'"):
        dataclasses.replace(recipe(), **changes)


def test_the_loop_is_adamw_written_out():
    numbers = dataclasses.replace(recipe(batch=8, lr=0.01), schedule="constant", clip=0.5)
    state, plan, split = setup(numbers, 6)
    losses = [m.loss for m in train(state, plan, split, 3, lambda: 0.0)]
    other, _, _ = setup(numbers, 6)
    plain = torch.optim.AdamW(
        [
            {"params": [p for n, p in other.net.named_parameters() if p.ndim < 2 or "embed" in n], "weight_decay": 0.0},
            {"params": [p for n, p in other.net.named_parameters() if p.ndim >= 2 and "embed" not in n]},
        ],
        lr=0.01,
        weight_decay=0.01,
    )
    other.net.train()
    for step in range(6):
        batch = split.gather(order(3, step, batch=8, count=len(split)))
        with seeded(3, "dropout", step):
            loss = training_loss(other.net, batch, Classify(), TASK.input, generator(3, "mask", step))
        assert loss.item() == pytest.approx(losses[step], rel=1e-5)
        plain.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(other.net.parameters(), 0.5)
        plain.step()


def test_the_best_validation_score_is_kept():
    scores = iter([0.1, 0.7, 0.3, 0.6])
    state, plan, split = setup(recipe(), 8, validate_every=2)
    seen = {}
    for metrics in train(state, plan, split, 0, lambda: next(scores)):
        if metrics.step == 4:
            seen = {k: v.clone() for k, v in state.net.state_dict().items()}
    assert (state.best_step, state.best_score) == (4, 0.7)
    assert all(torch.equal(state.best[k], v) for k, v in seen.items())
    assert not all(torch.equal(state.net.state_dict()[k], v) for k, v in seen.items())


def test_patience_ends_a_phase():
    scores = iter([0.5, 0.4, 0.6, 0.6, 0.1, 0.9])
    state, plan, split = setup(dataclasses.replace(recipe(), patience=2), 6, validate_every=1)
    steps = [m.step for m in train(state, plan, split, 0, lambda: next(scores))]
    assert steps == [1, 2, 3, 4, 5]
    assert (state.stopped, state.best_step) == ("patience", 3)


def test_a_loss_that_is_not_finite_ends_the_phase_before_it_spoils_the_weights():
    state, plan, split = setup(recipe(), 6)
    with torch.no_grad():
        state.net.heads["label"].bias[0] = math.nan  # pyright: ignore
    before = {k: v.clone() for k, v in state.net.state_dict().items()}
    metrics = list(train(state, plan, split, 0, lambda: 1.0))
    assert len(metrics) == 1
    assert state.stopped == "diverged"
    assert metrics[0].score is None
    assert state.best == {}
    after = state.net.state_dict()
    assert all(
        torch.equal(
            before[k],
            v,
        )
        or k == "heads.label.bias"
        for k, v in after.items()
    )


def test_augmentation_is_switched_on_by_the_plan():
    seen = []

    def watched(x: torch.Tensor, lengths: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        seen.append(x.shape)
        return TASK.augment(x, lengths, generator)

    for augment in (None, watched):
        state, plan, split = setup(recipe(), 2, augment=augment)
        list(train(state, plan, split, 0, lambda: 0.0))
        assert len(seen) == (2 if augment else 0)


def test_rules_and_decay_groups():
    state, _, _ = setup(recipe(), 1)
    rules = {"blocks.0.mixer.weight": ParamRule(lr=1e-4, weight_decay=0.0)}
    optimizer = make_optimizer(state.net, dataclasses.replace(recipe(lr=0.1), weight_decay=0.3), rules)
    found = {id(p): (g["base"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]}
    named = {name: found[id(p)] for name, p in state.net.named_parameters()}
    assert named["blocks.0.mixer.weight"] == (1e-4, 0.0)
    assert named["blocks.1.mixer.weight"] == (0.1, 0.3)
    assert named["heads.label.weight"] == (0.1, 0.3)
    assert named["heads.label.bias"] == named["norm.norm.weight"] == named["encoder.embed.weight"] == (0.1, 0.0)
    everything = make_optimizer(state.net, dataclasses.replace(recipe(), weight_decay=0.3, decay_all=True), {})
    assert {g["weight_decay"] for g in everything.param_groups} == {0.3}


def test_training_draws_nothing_from_the_global_generator():
    torch.manual_seed(11)
    expected = torch.rand(2)
    torch.manual_seed(11)
    state, plan, split = setup(recipe(), 3)
    list(train(state, plan, split, 0, lambda: 0.0))
    assert torch.equal(torch.rand(2), expected)


def test_it_learns():
    """The label is the first symbol; a causal mean sees it whole at step 0 and in part everywhere after."""
    state, plan, split = setup(recipe(lr=2e-2), 250)
    causal = Network(
        dataclasses.replace(MODEL, causal=True), TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0
    )
    state = State(causal, make_optimizer(causal, plan.recipe, {}))
    losses = [m.loss for m in train(state, plan, split, 0, lambda: 0.0)]
    assert sum(losses[-10:]) < 0.2 * sum(losses[:10])


@pytest.mark.parametrize("training", [True, False])
def test_a_network_is_in_its_mode_again_after_an_evaluation_that_fails(training: bool):
    state, _, split = setup(recipe(), 1)
    state.net.train(training)
    with pytest.raises(ZeroDivisionError):
        evaluate(state.net, split, Failing(), TASK.input, batch=8, seed=0)
    assert state.net.training == training
    evaluate(state.net, split, Classify(), TASK.input, batch=8, seed=0)
    assert state.net.training == training


class Failing(Classify):
    def score(self, outputs: Any, batch: Any, shown: Any, spec: Any) -> Any:
        raise ZeroDivisionError


def test_no_step_reads_the_lengths_of_the_whole_split(monkeypatch: pytest.MonkeyPatch):
    """Else each step takes time in proportion to the split: 28 ms at a million examples."""
    read: list[int] = []
    lengths = Examples.lengths.fget
    assert lengths is not None
    monkeypatch.setattr(Examples, "lengths", property(lambda split: read.append(1) or lengths(split)))
    state, plan, split = setup(recipe(), 9)
    metrics = train(state, plan, split, 0, lambda: 0.0)
    next(metrics)
    before = len(read)
    assert before and len(list(metrics)) == 8 and len(read) == before
