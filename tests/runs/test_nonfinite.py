"""Numbers that are no numbers: outputs, gradients, weights and scores that overflowed earn nothing and are said so."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import MODEL, FirstSymbol, recipe
from torch import Generator, Tensor, nn

from levelfield import protocols
from levelfield.data.batches import Batch, ModelInput, SplitOnDevice
from levelfield.engine import tuning
from levelfield.evaluate import evaluate
from levelfield.files import read_json, read_rows, to_line, write_json
from levelfield.model import Network
from levelfield.objectives import Causal, Classify, ClassifySteps, Masked, Regress, heads
from levelfield.probes.slices import Slices
from levelfield.report.verdicts import Key, Table
from levelfield.run import execute
from levelfield.runs import rows as scored
from levelfield.runs import store
from levelfield.spec import (
    Block,
    Duration,
    Examples,
    MixerConfig,
    Output,
    Progress,
    Recipe,
    Row,
    Run,
    Signal,
    SplitName,
    Tokens,
    Values,
    no_progress,
)
from levelfield.train import Plan, Rank, State, copied, kept, make_optimizer, train

TASK = FirstSymbol()
CPU = torch.device("cpu")
NAN, INF = math.nan, math.inf
BLOCK = Block()


@dataclasses.dataclass(frozen=True)
class Failing(MixerConfig):
    """A linear map that fails at its `at`-th pass in training mode, in one of three ways."""

    label: ClassVar[str] = "failing"
    paper: ClassVar[str] = "made here"
    how: str = "gradient"
    at: int = 7

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return _Failing(width, self.how, self.at, generator)

    def state_size(self, width: int, length: int) -> int:
        return 0


class _Failing(nn.Module):
    def __init__(self, width: int, how: str, at: int, generator: Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, generator=generator) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(width))
        self.how, self.left = how, at

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        self.left -= self.training
        y = x @ self.weight + self.bias
        if self.left or not self.training:
            return y
        if self.how == "weights":  # as an in-place update of a user's layer may do; the loss of this step is finite
            self.bias.data[0] = NAN
        if self.how == "loss":
            return y * INF
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient * (INF if self.how == "gradient" else 1.0))
        return y


def failing(how: str, block: Block = BLOCK) -> Network:
    model = dataclasses.replace(MODEL, mixers=(Failing(how),), depth=1, block=block)
    return Network(model, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0)


def trained(net: Network, clip: float | None = 1.0, every: int = 20) -> tuple[State, list[dict[str, Tensor]]]:
    """The state after at most 20 steps, and the weights after each of them."""
    numbers = dataclasses.replace(recipe(20), clip=clip)
    plan = Plan(Classify(), numbers, TASK.input, 20, warmup=0, validate_every=every)
    state = State(net, make_optimizer(net, numbers, net.rules()), best=copied(net))
    split = SplitOnDevice(TASK.build(None)["train"], CPU)
    return state, [copied(net) for _ in train(state, plan, split, 0, lambda: 0.5)]


def same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("how", ["gradient", "loss"])
def test_a_step_that_overflows_changes_no_weight(how: str, clip: float | None):
    """The loss of the seventh step is finite, its gradients are not: six steps count, and their weights are kept."""
    state, after = trained(failing(how), clip)
    assert (state.stopped, state.step, len(after)) == ("diverged", 7, 7)
    assert same(after[6], after[5]) and not same(after[5], after[4])
    assert same(kept(state, Rank()), after[5]) and state.best_step == -1


def test_a_validation_before_the_overflow_is_what_is_kept():
    state, after = trained(failing("gradient"), every=3)
    assert (state.stopped, state.best_step) == ("diverged", 3)
    assert same(kept(state, Rank()), after[2])


def test_weights_that_are_no_numbers_are_never_selected():
    """The gradients of the step are finite, its weights are not: whatever validation would say, they do not win."""
    state, after = trained(failing("weights"), every=7)
    assert state.stopped == "diverged" and after[6]["blocks.0.mixer.bias"].isnan().any()
    assert state.best_step == -1 and all(value.isfinite().all() for value in kept(state, Rank()).values())


def test_running_statistics_that_a_step_spoilt_are_not_kept():
    """No weight changed, but the batch norm has seen the infinity: what is left is the beginning."""
    net = failing("loss", Block(norm="batch", prenorm=False))
    start = copied(net)
    state, after = trained(net)
    assert any(value.isnan().any() for value in after[-1].values())
    assert same(kept(state, Rank()), start)


def rows_of(where: Path) -> list[Row]:
    return [row for row in read_rows(where / "rows.jsonl") if row["protocol"] != "none"]


@pytest.mark.parametrize("tested", [True, False])
def test_an_overflow_at_the_last_step_is_reported_as_divergence(tmp_path: Path, tested: bool):
    model = dataclasses.replace(MODEL, mixers=(Failing("gradient", at=20),), depth=1)
    run = Run(TASK, model, protocols.scratch(recipe(20)), 0)
    execute(run, store.directory(tmp_path, run), tmp_path / "data", "cpu", tested=tested)
    assert {row.get("status") for row in rows_of(store.directory(tmp_path, run))} == {"diverged"}
    if tested:
        weights = load_file(store.directory(tmp_path, run) / "weights.safetensors")
        assert all(value.isfinite().all() for value in weights.values())


def test_outputs_that_are_no_numbers_are_right_nowhere():
    """Sixteen of 64 labels are 0, which the largest of four NaN would point at."""
    net = Network(MODEL, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0)
    with torch.no_grad():
        net.heads["label"].bias[0] = NAN  # pyright: ignore
    split = SplitOnDevice(TASK.build(None)["val"], CPU)
    scores = evaluate(net, split, Classify(), TASK.input, batch=16, seed=0)
    assert (split.y == 0).any() and not scores.values.any() and scores.fault == "diverged"
    assert math.isnan(scores.mean) and math.isnan(scores.stderr), "a model without outputs has no score, not that of 0"
    some = dataclasses.replace(scores, sound=np.arange(64) > 0)
    assert some.mean == 0.0 and some.fault == "diverged"
    half = scores.part(np.arange(64) < 32)
    assert len(half.values) == 32 and half.fault == "diverged"


@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_every_score_counts_broken_outputs_as_wrong(broken: float):
    """Against a loop over examples and steps; class 0 is right everywhere."""
    x = torch.zeros(3, 4, dtype=torch.uint8)
    batch = Batch(x, torch.tensor([4, 4, 4]), None, torch.zeros(3, dtype=torch.int64))
    label = torch.tensor([[2.0, 1.0]] * 3)
    label[1, 1] = broken
    scores = Classify().score(label, batch, ModelInput(x), Tokens(2))
    assert scores.values.tolist() == [1.0, 0.0, 1.0] and scores.sound.tolist() == [True, False, True]
    steps = torch.tensor([[[2.0, 1.0]] * 4] * 3)
    steps[1, 2, 1] = broken
    asked = dataclasses.replace(batch, y=torch.tensor([[0, -1, 0, 0], [0, 0, 0, -1], [0, 0, -1, 0]]))
    scores = ClassifySteps().score(steps, asked, ModelInput(x), Tokens(2))
    assert scores.values.tolist() == [1.0, pytest.approx(2 / 3), 1.0] and scores.sound.tolist() == [True, False, True]
    aside = dataclasses.replace(asked, y=torch.tensor([[0, 0, 0, 0], [0, 0, -1, 0], [0, 0, 0, 0]]))
    assert ClassifySteps().score(steps, aside, ModelInput(x), Tokens(2)).sound.all()  # nothing is asked at that step
    hidden = ModelInput(x, torch.ones(3, 4, dtype=torch.bool))
    for objective, view in ((Masked(), hidden), (Causal(), ModelInput(x))):
        scores = objective.score(steps, batch, view, Tokens(2))
        count = int(scores.weights[1])
        assert scores.values.tolist() == [1.0, pytest.approx((count - 1) / count), 1.0]
        assert scores.sound.tolist() == [True, False, True]
    values = torch.tensor([[1.0], [broken], [1.0]])
    real = dataclasses.replace(batch, y=torch.ones(3, 1))
    scores = Regress().score(values, real, ModelInput(x), Tokens(2))
    assert scores.sound.tolist() == [True, False, True] and not scores.values[1].isfinite()


@dataclasses.dataclass(frozen=True)
class Level(FirstSymbol):
    """The mean of a signal; where `level`, the targets of test are all equal."""

    level: bool = False

    @property
    def output(self) -> Output:
        return Values(1)

    @property
    def chance(self) -> float:
        return 0.0

    @property
    def input(self) -> Signal:
        return Signal(1, (4.0,), (4.0,))

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        splits = super().build(sources, progress)
        made: dict[SplitName, Examples] = {}
        for name, examples in splits.items():
            means = [examples.sequence(i).mean() for i in range(len(examples))]
            y = np.array(means, np.float32)[:, None]
            y = np.ones_like(y) if self.level and name == "test" else y
            made[name] = dataclasses.replace(examples, x=examples.x.astype(np.float32), y=y)
        return made


def finished(task: FirstSymbol, numbers: Recipe, tmp_path: Path, model: MixerConfig | None = None) -> list[Row]:
    objective = Regress() if isinstance(task.output, Values) else Classify()
    chosen = dataclasses.replace(MODEL, mixers=(model,)) if model else MODEL
    run = Run(task, chosen, protocols.scratch(numbers, objective), 0)
    execute(run, store.directory(tmp_path, run), tmp_path / "data", "cpu", [Slices()])
    return rows_of(store.directory(tmp_path, run))


def test_a_split_of_one_example_has_a_score_and_no_error_bar(tmp_path: Path):
    rows = finished(FirstSymbol(held_out=1), recipe(4), tmp_path)
    assert len(rows) == 2 and all("value" in row and "stderr" not in row for row in rows)


def test_a_regression_that_overflows_has_no_score_and_is_not_ok(tmp_path: Path):
    wild = dataclasses.replace(recipe(4, lr=1e30), clip=None, warmup=Duration(0, "steps"))
    rows = finished(Level(continuous=True), wild, tmp_path)
    assert {row.get("status") for row in rows} == {"diverged"}
    log = read_rows(next(tmp_path.glob("first_symbol*")) / "log.jsonl")
    assert log and all(math.isfinite(record.get("loss", 0.0)) for record in log)


def test_the_share_of_no_variance_is_undefined_and_the_error_is_not(tmp_path: Path):
    task = Level(continuous=True, level=True)
    rows = {(row.get("metric"), row.get("split")): row for row in finished(task, recipe(4), tmp_path)}
    assert "value" not in rows["r2", "test"] and rows["r2", "test"].get("status") == "undefined"
    assert "value" in rows["negative_mse", "test"]


@pytest.mark.parametrize("value", [NAN, INF, None])
@pytest.mark.parametrize("status", ["ok", "chance", "diverged"])
def test_no_row_without_a_value_is_ok(status: str, value: float | None):
    run = Run(TASK, MODEL, protocols.scratch(recipe()), 0)
    row = Row(metric="accuracy", status=status, stderr=0.1) | (Row() if value is None else Row(value=value))
    named = scored.named(run, row)
    assert "value" not in named and "stderr" not in named
    assert named.get("status") == ("diverged" if status == "diverged" else "undefined")


def test_each_field_that_is_no_number_is_left_out_by_itself(tmp_path: Path):
    row = {"loss": INF, "lr": 0.1, "score": NAN, "parts": [1.0, -INF], "more": {"a": NAN, "b": None, "c": 2}}
    expected = {"lr": 0.1, "parts": [1.0, None], "more": {"b": None, "c": 2}}
    assert json.loads(to_line(row)) == expected
    write_json(tmp_path / "a.json", row)
    assert read_json(tmp_path / "a.json") == expected


def test_a_trial_with_broken_outputs_is_never_the_best(tmp_path: Path):
    run = Run(TASK, dataclasses.replace(MODEL, mixers=(Broken(),)), protocols.scratch(recipe(4)), 0)
    where = store.directory(tmp_path / tuning.FOLDER, run)
    execute(run, where, tmp_path / "data", "cpu", tested=False)
    assert tuning.score(run, tmp_path) == -INF


@dataclasses.dataclass(frozen=True)
class Broken(MixerConfig):
    """Sound in training, and no numbers when it is asked."""

    label: ClassVar[str] = "broken"
    paper: ClassVar[str] = "made here"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return _Broken()

    def state_size(self, width: int, length: int) -> int:
        return 0


class _Broken(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return x if self.training else x * NAN


def test_a_run_with_broken_outputs_is_not_ranked(tmp_path: Path):
    rows = finished(TASK, recipe(4), tmp_path, Broken())
    assert {row.get("status") for row in rows} == {"diverged"} and not any("value" in row for row in rows)
    guess = Row(task=TASK.name, protocol="none", model="chance", metric="accuracy", split="test", value=0.25)
    sound = [row | Row(run="sound", seed=1, status="ok", value=0.9) for row in rows if row.get("split") == "test"]
    arm = Table.of([guess, *sound, *rows]).cells[Key(TASK.name, "broken", "scratch")]
    assert (arm.values, arm.diverged) == ((25.0, 90.0), 1), "it counts as guessing, which is more than 0 %"
    (probe,) = next(tmp_path.glob("first_symbol*")).glob("probe-slices-*.jsonl")
    of_rules = [row.get("protocol") == "none" for row in read_rows(probe)]
    expected = ["ok" if rule else "diverged" for rule in of_rules]  # rules that need no model are sound as ever
    assert [row["status"] for row in read_rows(probe)] == expected and not all(of_rules)


def test_weights_may_be_read_by_whoever_may_read_the_scores(tmp_path: Path):
    before = os.umask(0o022)
    try:
        finished(TASK, recipe(4), tmp_path)
    finally:
        os.umask(before)
    where = next(tmp_path.glob("first_symbol*"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in where.iterdir() if path.suffix in (".json", ".jsonl")}
    assert (where / "weights.safetensors").stat().st_mode & 0o777 == modes["rows.jsonl"] == modes["done.json"]
