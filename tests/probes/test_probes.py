"""Probes against models whose behaviour is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from tiny import MODEL, FirstSymbol, RunningMean, recipe
from torch import Generator, Tensor, nn

from levelfield import probes, protocols
from levelfield.evaluate import SplitScores, label_scores, score_row
from levelfield.mixers.conv import Conv
from levelfield.mixers.dlr import DLR
from levelfield.mixers.gmlp import GMLP
from levelfield.mixers.s4 import S4
from levelfield.model import Network
from levelfield.objectives import Classify, heads
from levelfield.probes._lags import doublings
from levelfield.probes.effective_context import feature_gradients
from levelfield.probes.extrapolation import Extrapolation
from levelfield.report.cells import shown
from levelfield.spec import (
    Block,
    Examples,
    MixerConfig,
    Model,
    Progress,
    Row,
    Run,
    SplitName,
    Task,
    UserError,
    no_progress,
)
from levelfield.tasks.corpus import Corpus
from levelfield.tasks.listops import ListOps

TASK = FirstSymbol(length=40, classes=8)


@dataclass(frozen=True)
class Shift(MixerConfig):
    """Step t gets what step t - lag had: it sees exactly that far."""

    label: ClassVar[str] = "shift"
    paper: ClassVar[str] = ""
    lag: int = 3

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return _Shift(self.lag)

    def state_size(self, width: int, length: int) -> int:
        return self.lag * width

    @property
    def receptive_field(self) -> int:
        return self.lag + 1

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor:
        kernel = torch.zeros(2, length)
        kernel[0, 0] = 3.0
        kernel[1, self.lag] = -1.0
        return kernel


class _Shift(nn.Module):
    def __init__(self, lag: int) -> None:
        super().__init__()
        self.lag = lag

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return torch.cat([torch.zeros_like(x[:, : self.lag]), x], 1)[:, : x.shape[1]]


class Oracle(Network):
    """Answers with the first symbol, right whenever the label is below `knows`."""

    knows = 8

    def hidden_states(self, x: Tensor, mask: Tensor | None, masked: Tensor | None = None) -> Tensor:
        answer = x[:, :1] - 2
        guess = torch.where(answer < self.knows, answer, (answer + 1) % 8)
        return nn.functional.one_hot(guess, 8).float().expand(-1, x.shape[1], -1)

    def head(self, name: str, hidden_states: Tensor, mask: Tensor | None) -> Tensor:
        return hidden_states[:, 0]


def measure(name: str, model: Model, net: Network | None = None, task: Task = TASK) -> list[Row]:
    run = Run(task, model, protocols.scratch(recipe()), 0)
    net = net or Network(model, task.input, heads(Classify(), task), mask_flag=False, seed=0)

    def load(wanted: Task) -> Mapping[SplitName, Examples]:
        return wanted.build(None)

    return list(probes.find(name).measure(net.eval(), run, load))


def oracle(knows: int = 8, model: Model = MODEL) -> Oracle:
    net = Oracle(model, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0)
    net.knows = knows
    return net


def test_slices_are_the_scores_of_their_examples():
    every = measure("slices", MODEL, oracle(knows=4))
    measured = [row for row in every if row.get("protocol") != "none"]
    rows = {r.get("at"): r for r in measured}
    test = TASK.build(None)["test"]
    for value in np.unique(test.slices["length"]):
        here = test.slices["length"] == value
        row = rows[f"length={value}"]
        assert row.get("value") == pytest.approx(np.mean(test.y[here] < 4))
        assert row.get("n") == here.sum()
        for label in np.unique(test.y[here]):
            assert rows[f"length={value},label={label}"].get("value") == float(label < 4)
    assert len(rows) == len(measured)


def test_rules_are_scored_in_the_same_slices_as_the_model():
    """By counting: the greedy rule of ListOps has one answer for each root, so in a slice by root it is right as often
    as that answer is the label."""
    task = ListOps(minimum=10, length=40, max_depth=3, train=400, val=10, test=300)
    splits = task.build(None)
    model = Model((RunningMean(),), 1, 8)
    net = Network(model, task.input, heads(Classify(), task), mask_flag=False, seed=0)
    found = list(probes.find("slices").measure(net, Run(task, model, protocols.scratch(recipe()), 0), lambda t: splits))
    rules = {(r.get("model"), r.get("at")): r for r in found if r.get("protocol") == "none"}
    first = lambda part: [int(part.sequence(i)[0]) for i in range(len(part))]  # noqa: E731  its operator
    roots, names = first(splits["test"]), splits["test"].slices["root"]
    for root in set(roots):
        known = [int(y) for y, r in zip(splits["train"].y, first(splits["train"]), strict=True) if r == root]
        commonest = min(set(known), key=lambda label: (-known.count(label), label))
        asked = [int(y) for y, r in zip(splits["test"].y, roots, strict=True) if r == root]
        (name,) = {str(n) for n, r in zip(names, roots, strict=True) if r == root}
        row = rules["greedy_root", f"root={name}"]
        assert row.get("value") == pytest.approx(sum(y == commonest for y in asked) / len(asked))
        assert row.get("n") == len(asked)
    assert {model for model, _ in rules} == {"greedy_root", "label_prior", "one_level"}
    assert not [r for r in rules.values() if "label=" in r.get("at", "")]


@dataclass(frozen=True)
class Grouped(FirstSymbol):
    """Five examples in a row are of one group, of one label and of one half; a third of them have no place."""

    @property
    def test_groups(self) -> np.ndarray:
        return np.arange(self.held_out) // 5

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        made, count = dict(super().build(sources)), np.arange(self.held_out)
        place = np.where(count % 3 == 0, np.nan, 1.0)
        y, slices = made["test"].y[count // 5 * 5], {"half": count // 5 % 2, "place": place}
        made["test"] = dataclasses.replace(made["test"], y=y, slices=slices)
        return made


def test_a_rule_is_as_uncertain_in_a_slice_as_its_groups_make_it():
    """Against the sandwich estimator over groups, written out."""
    task = Grouped(length=40, classes=8, held_out=60)
    found = measure("slices", MODEL, oracle(), task)
    rows = {row.get("at"): row for row in found if row.get("model") == "label_prior"}
    splits = task.build(None)
    right = (splits["test"].y == np.bincount(splits["train"].y).argmax()).astype(float)
    for half in (0, 1):
        groups = right.reshape(12, 5)[half::2]
        apart = (groups - groups.mean()).sum(1)
        expected = np.sqrt(len(groups) / (len(groups) - 1) * np.sum(apart**2)) / groups.size
        row = rows[f"half={half}"]
        assert row.get("value") == pytest.approx(groups.mean()) and row.get("n") == groups.size
        assert row.get("stderr") == pytest.approx(expected)


def test_examples_without_a_value_are_in_no_slice():
    rows = measure("slices", MODEL, oracle(), Grouped(length=40, classes=8, held_out=60))
    places = [row.get("n") for row in rows if row.get("at") == "place=1.0"]
    assert places == [40, 40]
    assert not [row for row in rows if "nan" in row.get("at", "") or row.get("status") != "ok"]


def test_extrapolation_keeps_the_score_of_a_rule_that_does_not_care():
    rows = [r for r in measure("extrapolation", MODEL, oracle()) if r.get("model") != "label_prior"]
    assert [r.get("at") for r in rows] == ["length=40", "length=80", "length=160"]
    assert [r.get("value") for r in rows] == [1.0, 1.0, 1.0]


def test_extrapolation_stops_at_the_bound():
    bounded = dataclasses.replace(MODEL, positions="learned", max_positions=100)
    rows = measure("extrapolation", bounded, oracle(model=bounded))
    assert {r.get("at") for r in rows} == {"length=40", "length=80"}


def test_a_length_beyond_the_bound_takes_no_shorter_one_away():
    bounded = dataclasses.replace(MODEL, positions="learned", max_positions=100)
    net = Network(bounded, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0)
    run = Run(TASK, bounded, protocols.scratch(recipe()), 0)
    found = Extrapolation((4, 1, 2), examples=8).measure(net.eval(), run, lambda task: task.build(None))
    assert {row.get("at") for row in found} == {"length=40", "length=80"}


@dataclass(frozen=True)
class Squares(FirstSymbol):
    """Sequences as long as a square picture has pixels."""

    def at_length(self, length: int, examples: int | None = None) -> Task:
        if length != int(length**0.5) ** 2:
            raise UserError(f"No square picture has {length} pixels.")
        return dataclasses.replace(self, length=length)


def test_extrapolation_leaves_out_lengths_that_the_task_cannot_have() -> None:
    rows = measure("extrapolation", MODEL, task=Squares(length=36, classes=8))
    assert {row.get("at") for row in rows} == {"length=36", "length=144"}


def test_a_task_without_any_longer_sequences_is_refused() -> None:
    net = Network(MODEL, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0)
    run = Run(Squares(length=36, classes=8), MODEL, protocols.scratch(recipe()), 0)
    with pytest.raises(UserError, match="No square picture has 72 pixels"):
        list(Extrapolation((1, 2)).measure(net.eval(), run, lambda task: task.build(None)))


def test_every_share_is_a_fraction_and_so_shown_in_percent():
    scores = SplitScores(np.full(4, 0.45), np.ones(4), np.ones(4, bool))
    for task, metric in ((TASK, "accuracy"), (Corpus(), "step_accuracy")):
        row = score_row(task, scores, "length=8")
        assert row.get("metric") == metric and shown(row.get("value"), row.get("unit", ""), metric) == 45


def test_locality_places_the_score_at_the_kernel():
    bounded = Model((Shift(3),), 4, 16, block=Block())
    score, field = measure("locality", bounded, oracle(knows=4, model=bounded))
    assert (score.get("at"), field.get("at"), field.get("value")) == ("kernel=4", "kernel=4", 13.0)
    assert score.get("value") == pytest.approx(np.mean(TASK.build(None)["test"].y < 4))
    assert MODEL.receptive_field is None
    (row,) = measure("locality", MODEL, oracle())
    assert row.get("at") == "kernel=all"


def test_effective_context_is_the_distance_a_model_really_looks():
    local = Model((Shift(3),), 2, 16)
    shares = {r.get("at"): r.get("value", 0.0) for r in measure("effective_context", local)}
    assert 0 < shares["distance<=0"] < 1
    assert shares["distance<=2"] == pytest.approx(shares["distance<=0"])  # lags 0, 3 and 6 only
    assert shares["distance<=4"] > shares["distance<=2"]
    assert shares["distance<=8"] == pytest.approx(1.0)
    everywhere = {r.get("at"): r.get("value", 0.0) for r in measure("effective_context", MODEL)}
    assert everywhere["distance<=8"] < 0.999
    assert list(everywhere.values()) == sorted(everywhere.values())


def test_long_sequences_are_scored_in_smaller_batches_to_the_same_scores(monkeypatch: pytest.MonkeyPatch):
    net = Network(MODEL, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0)
    examples, sizes = TASK.build(None)["test"], list[int]()
    usual, forward = label_scores(net, TASK, examples, batch=8), net.hidden_states
    monkeypatch.setattr(net, "hidden_states", lambda x, *rest: sizes.append(len(x)) or forward(x, *rest))
    longest = int(examples.lengths.max())
    for room, most in ((8, 8), (3, 3), (0.5, 1)):
        monkeypatch.setattr("levelfield.evaluate.NUMBERS", int(room * longest * MODEL.width))
        sizes.clear()
        scores = label_scores(net, TASK, examples, batch=8)
        assert max(sizes) == most and sum(sizes) == len(examples)
        np.testing.assert_array_equal(scores.values, usual.values)


def test_effective_context_takes_one_forward_pass_for_all_steps_of_a_sequence(monkeypatch: pytest.MonkeyPatch):
    net = Network(MODEL, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0).eval()
    x, places, passes = torch.tensor([[1, 4, 2, 3, 1]]), [2, 0, 2], list[Tensor]()
    alone = [next(feature_gradients(net, x, [at])) for at in places]
    forward = net.hidden_states
    monkeypatch.setattr(net, "hidden_states", lambda x, mask: passes.append(x) or forward(x, mask))
    together = list(feature_gradients(net, x, places))
    assert len(passes) == 1 and all(torch.equal(*each) for each in zip(together, alone, strict=True))


def diverged() -> Network:
    net = Network(MODEL, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(float("nan"))
    return net


def test_effective_context_of_a_network_that_diverged_is_absent():
    assert measure("effective_context", MODEL, diverged()) == []


def test_a_rule_has_not_diverged_where_the_network_has():
    rows = measure("extrapolation", MODEL, diverged())
    assert [row.get("status") for row in rows] == ["diverged", "ok"] * 3


def test_kernel_energy_by_lag():
    rows = measure("kernels", Model((Shift(5), RunningMean()), 3, 16))
    values = {r.get("at"): r.get("value") for r in rows}
    assert {r.get("at", "").split(",")[0] for r in rows} == {"layer=0", "layer=2"}
    assert values["layer=0,lag<=0"] == values["layer=0,lag<=4"] == 0.5
    assert values["layer=2,lag<=8"] == values["layer=2,lag<=39"] == 1.0


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 9, 100])
def test_doublings_end_at_the_last_lag(length: int):
    lags = doublings(length)
    assert lags[0] == 0
    assert lags[-1] == length - 1
    assert lags == sorted(set(lags))


def test_unknown_probe(tmp_path: Path):
    with pytest.raises(UserError, match="did you mean 'locality'"):
        probes.find("localty")


@pytest.mark.parametrize("config", [S4(state=4), DLR(state=4), GMLP(hidden=8, channels=2, bound=40), Conv(5, hidden=8)])
@pytest.mark.parametrize("causal", [True, False])
def test_learned_kernels_are_what_the_layer_does(config: MixerConfig, causal: bool):
    """Silencing every lag of the kernel but those within L leaves a layer that sees no further back than L."""
    layer = config.build(8, causal=causal, layer=0, generator=torch.Generator().manual_seed(0)).double()
    kernel = config.learned_kernel(layer, 20)
    assert kernel is not None
    assert kernel.shape[1] == 20
    x = torch.randn(1, 20, 8, dtype=torch.double, generator=torch.Generator().manual_seed(1)).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, None)[0, 19].sum(), x)
    seen = gradient[0].abs().sum(-1).flip(0) > 1e-12  # by lag
    felt = kernel.abs().sum(0) > 0
    assert torch.equal(seen[1:], felt[1:])
