"""Steps of two processes that share the parameters of a network: what each holds, gradients, checkpoints, NaN."""

from __future__ import annotations

import dataclasses
import gc
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from groups import CPU, both
from tiny import MODEL, FirstSymbol, recipe, training_loss
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from levelfield.data.batches import SplitOnDevice
from levelfield.mixers import classes
from levelfield.model import Network
from levelfield.objectives import Classify, Masked, Sum, Trainable, heads
from levelfield.rng import generator
from levelfield.runs import checkpoint
from levelfield.runs.processes import Group
from levelfield.runs.sharded import Sharded
from levelfield.spec import Block, MixerConfig, Model, Numerics, UserError
from levelfield.train import Plan, State, make_optimizer, parts_of, train

TASK = FirstSymbol()
TWO = Numerics(nproc=2, shard=True)
SPLIT = SplitOnDevice(TASK.build(None)["train"], CPU)
EPS = torch.finfo(torch.float32).eps

Arrays = dict[str, np.ndarray]


def arrays(group: Group, tensors: Mapping[str, Tensor]) -> Arrays:
    """Whole tensors, as they may be sent from process to process."""
    return {name: tensor.numpy() for name, tensor in group.gathered(tensors, everywhere=True).items()}


def begun(group: Group, model: Model, objective: Trainable, **changes: int) -> tuple[State, Plan]:
    """A phase of a process that has joined the others."""
    net = network(model, objective)
    plan = Plan(objective, recipe(), TASK.input, steps=6, warmup=0, validate_every=100)
    plan = dataclasses.replace(plan, rank=group.rank(net, objective, TASK.input), **changes)
    return State(net, make_optimizer(net, plan.recipe, net.rules())), plan


def network(model: Model, objective: Trainable, numerics: Numerics = TWO) -> Network:
    return Network(model, TASK.input, heads(objective, TASK), mask_flag=False, seed=0, numerics=numerics)


WIDE = dataclasses.replace(MODEL, width=255, block=Block(feedforward=512))  # which two processes cannot halve evenly


def held(group: Group) -> tuple[int, int, int, int]:
    """After some steps: numbers in the parameters, gradients and moments of this process; bytes of all its tensors."""
    state, plan = begun(group, WIDE, Classify())
    for _ in train(state, plan, SPLIT, 0, lambda: 0.0):
        pass
    parameters = list(state.net.parameters())
    gradients = [p.grad for p in parameters if p.grad is not None]
    moments = [value for slot in state.optimizer.state.values() for value in slot.values() if value.ndim]
    gc.collect()
    storages = {t.data_ptr(): t.nbytes() for o in gc.get_objects() if type(o) in TENSORS for t in [o.untyped_storage()]}
    return numbers(parameters), numbers(gradients), numbers(moments), sum(storages.values())


TENSORS = (Tensor, nn.Parameter)


def own(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def numbers(tensors: Sequence[Tensor]) -> int:
    return sum(own(tensor).numel() for tensor in tensors)


def test_each_of_two_processes_holds_half_of_parameters_gradients_and_moments() -> None:
    """Their tensors are half as large in all: those gathered for a step are freed, and the data are a few kilobytes."""
    whole, net = both(held, Numerics(nproc=2)), network(WIDE, Classify())
    count, rows = sum(p.numel() for p in net.parameters()), sum(p[0].numel() for p in net.parameters())
    assert [each[:3] for each in whole] == 2 * [(count, count, 2 * count)]
    shares = both(held, TWO)
    for mine in zip(*shares, strict=True):
        assert sum(mine[:3])
    parameters, gradients, moments, taken = zip(*shares, strict=True)
    assert sum(parameters) == sum(gradients) == count and sum(moments) == 2 * count
    assert max(parameters) - min(parameters) <= rows
    assert max(taken) < 0.55 * min(each[3] for each in whole)


def spoilt(group: Group, every: int) -> tuple[str, int, list[float], Arrays, list[bool]]:
    """Trains where the second process's head answers NaN in the fifth step, and then spoils its share of a weight.

    The last value says whether the weights are sound, before and after that.
    """
    state, plan = begun(group, MODEL, Classify(), fetch_every=every)

    def answer(module: nn.Module, given: object, out: Tensor) -> Tensor:
        return out * math.nan if state.step == 4 and not group.leads else out

    state.net.heads["label"].register_forward_hook(answer)
    losses = [metrics.loss for metrics in train(state, plan, SPLIT, 0, lambda: 0.0)]
    weights, sound = arrays(group, state.net.state_dict()), [plan.rank.sound(state.net)]
    if not group.leads:
        own(next(state.net.parameters()).detach()).fill_(math.nan)
    return state.stopped, state.step, losses[:-1], weights, [*sound, plan.rank.sound(state.net)]


def test_what_is_not_finite_in_one_process_ends_training_in_all_with_the_weights_before_it() -> None:
    """Also where the optimizer decides it, as on a GPU, whose losses are fetched at intervals."""
    ends = [end for every in (1, 4) for end in both(partial(spoilt, every=every), TWO)]
    assert [end[:2] for end in ends] == 4 * [("diverged", 5)]
    assert [end[4] for end in ends] == 4 * [[True, False]]
    for end in ends[1:]:
        assert end[2] == ends[0][2] and len(end[2]) == 4
        assert all(np.array_equal(weight, ends[0][3][name]) for name, weight in end[3].items())
    assert all(np.isfinite(weight).all() for weight in ends[0][3].values())


def restored(group: Group, where: Path) -> list[bool]:
    """Whether weights, best weights and moments of this process are the same after a checkpoint; all differ before."""
    (state, plan), (other, _) = begun(group, MODEL, Classify()), begun(group, MODEL, Classify())
    state.best = {name: tensor + 1 for name, tensor in state.net.state_dict().items()}
    for _ in train(state, plan, SPLIT, 0, lambda: -math.inf):
        pass
    checkpoint.write(where, 0, state, {}, group)
    group.agreed(None)  # it is written
    saved, _ = checkpoint.latest(where)
    assert saved is not None
    same = []
    for restore in (lambda: None, lambda: saved.restore(other, group)):
        restore()
        pairs = zip(held_by(state), held_by(other), strict=True)
        same += [len(a) == len(b) > 0 and all(map(torch.equal, a, b)) for a, b in pairs]
    return same


def held_by(state: State) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    slots = [state.optimizer.state[p] for each in state.optimizer.param_groups for p in each["params"]]
    moments = {f"{i} {key}": value for i, slot in enumerate(slots) for key, value in slot.items()}
    lists = state.net.state_dict(), state.best, moments
    return tuple([own(tensors[name]) for name in sorted(tensors)] for tensors in lists)


def test_a_checkpoint_gives_every_process_its_shares_back(tmp_path: Path) -> None:
    assert both(partial(restored, where=tmp_path), TWO) == 2 * [[False, False, False, True, True, True]]


def gradients_of(group: Group, models: Sequence[Model]) -> list[Arrays]:
    """The gradients of one batch in each model, which two processes have split into two parts each, and their norm."""
    found = []
    for model in models:
        state, plan = begun(group, model, BOTH, accumulate=2)
        batch = SPLIT.gather(torch.arange(8))
        parts = parts_of(batch, plan, generator(0, "mask"), [1.0, 1.0])
        losses = [plan.rank.add_gradients(state.net, plan, part, last=part is parts[-1]) for part in parts]
        grads = {name: p.grad for name, p in state.net.named_parameters() if p.grad is not None}
        total = plan.rank.total(torch.stack(losses).sum(0), nn.utils.get_total_norm(list(grads.values())))
        found.append(arrays(group, grads | {"total": total}))
    return found


BOTH = Sum((Classify(), Masked(ratio=0.3)))


def of_mixer(config: type[MixerConfig]) -> Model:
    causal = "causal" in config.directions
    return Model(mixers=(config(),), depth=2, width=64, causal=causal, block=Block(feedforward=32))


def agree(models: Sequence[Model]) -> None:
    """Loss, norm and gradients of sharded models are those of one process, within some tens of roundings."""
    for own, model in zip(both(partial(gradients_of, models=models), TWO)[0], models, strict=True):
        net, batch = network(model, BOTH, Numerics()), SPLIT.gather(torch.arange(8))
        loss = training_loss(net, batch, BOTH, TASK.input, generator(0, "mask"))
        loss.backward()
        wanted = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
        norm = nn.utils.get_total_norm(list(wanted.values()))
        *losses, total = own["total"]
        assert [sum(losses), total] == pytest.approx([loss.item(), norm.item()], rel=50 * EPS)
        for name, gradient in wanted.items():
            scale = max(float(gradient.abs().max()), 1e-3 * float(norm))  # some gradients are zero but for rounding
            worst = float(abs(own[name] - gradient.numpy()).max())
            assert worst <= 100 * EPS * scale, (model.label, name)


def test_gradients_and_their_norm_are_those_of_one_process() -> None:
    """Attention, a convolution, and a mixer whose compiled loops read parameters where they lie in memory."""
    names = ("attention", "conv", "rglru")
    agree([of_mixer(config) for config in classes() if config.label in names])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_gradients_of_every_mixer_are_those_of_one_process() -> None:
    agree([of_mixer(config) for config in classes()])


class Tied(nn.Module):
    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return x * self.weight


def test_parameters_that_cannot_be_sharded_are_named() -> None:
    weight = nn.Parameter(torch.ones(MODEL.width))
    for made, why in (
        (lambda: Tied(weight), "weight of mean belongs to several blocks"),
        (lambda: Tied(nn.Parameter(torch.tensor(1.0))), "weight of mean is a single number"),
        (lambda: Tied(nn.Parameter(torch.ones(16, dtype=torch.complex64))), "weight of mean is torch.complex64"),
    ):
        net = network(MODEL, Classify())
        for block in net.blocks:
            block.mixer = made()
        with pytest.raises(UserError, match=rf"Parameter blocks\.[01]\.mixer\.{why} and cannot be sharded"):
            Sharded.of(net, Classify(), TASK.input)
