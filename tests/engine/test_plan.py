"""What a study will take before it runs, and what it says when it has run."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
import toys

from levelfield.cli.app import main
from levelfield.data import prepared
from levelfield.engine import find, forecast, plan
from levelfield.engine.trial import Kept
from levelfield.files import read_json
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.linformer import Linformer
from levelfield.objectives import Classify
from levelfield.protocols import DENOISE, enriched, scarce, scratch
from levelfield.report.arms import shared
from levelfield.report.cells import gather, unequal
from levelfield.run import execute
from levelfield.runs import store
from levelfield.runs.results import Results
from levelfield.spec import Duration, Model, Numerics, Recipe, Row, Run, UserError, describe
from levelfield.tasks.listops import ListOps
from levelfield.tasks.reach import Reach
from levelfield.tasks.text import Text
from levelfield.train import part_losses

pytestmark = pytest.mark.usefixtures("undrawn")


def recipe(budget: Duration | None = None, batch: int = 8) -> Recipe:
    made = tiny.recipe(batch=batch)
    return made if budget is None else replace(made, budget=budget)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_ends_by_naming_the_command_of_its_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And that command, word for word, writes the report."""
    toys.write(here / "toys.py", runs=1)
    main(["run", "toys.py", "--runs-dir", "my runs", "--device", "cpu", "--jobs", "1"])
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last == "Write its report with: levelfield report toys.py --effort minutes --runs-dir 'my runs'"
    main(shlex.split(last.partition("levelfield ")[2]))
    assert "report.html" in capsys.readouterr().out


def test_a_plan_says_totals_time_gpu_hours_and_memory(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toys.write(here / "toys.py", runs=2)
    main(["plan", "toys.py"])
    said = capsys.readouterr().out
    study = find.load_study("toys.py")
    whole = sum(plan.cost(run).total or 0.0 for run in study.runs("minutes"))
    assert f"All 2 runs: {plan.flops(whole)}; one after another some " in said and "GPU-hours" in said
    assert "Most memory: " in said and "What all arms of " in said and "lr " in said.partition("share:")[2]


def test_a_plan_says_which_runs_may_end_before_their_last_step(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "reach", "--effort", "smoke"])
    said = capsys.readouterr().out
    count = len(find.load_study("reach").runs("smoke"))
    assert f"All {count} runs: at most " in said and f" {count} runs end a phase once that its validation " in said
    toys.write(here / "toys.py", runs=1)
    main(["plan", "toys.py"])
    assert "at most" not in (said := capsys.readouterr().out).partition("All 1 runs")[2] and "end a phase" not in said


@pytest.mark.parametrize(("seeds", "shown"), [(1, "1: 0"), (3, "3: 0 1 2"), (12, "12: 0 to 11")])
def test_many_seeds_are_told_by_the_first_and_the_last(
    here: Path, capsys: pytest.CaptureFixture[str], seeds: int, shown: str
) -> None:
    toys.write(here / "toys.py", runs=seeds)
    main(["plan", "toys.py", "--effort", "smoke"])
    assert f"label 3 steps   {shown}\n" in capsys.readouterr().out


def one_pass(run: Run) -> forecast.Pass:
    return forecast.measure(forecast.Shape.of(run), torch.device("cpu"))


def test_arms_that_share_a_model_share_a_pass(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[float] = []

    def measure(shape: forecast.Shape, device: torch.device, work: float) -> forecast.Pass:
        measured.append(work)
        return forecast.Pass(1e-6, Kept(0.0, 100.0))

    monkeypatch.setattr(forecast, "measure", measure)
    task, model = ListOps(minimum=10, length=40), Model((Conv(3, hidden=8),), 1, 8)
    short, long = (scratch(recipe(budget=Duration(steps, "steps"), batch=4)) for steps in (5, 10))
    runs = [Run(task, model, protocol, seed) for protocol in (short, long) for seed in range(3)]
    list(forecast.lines([*runs, Run(task, replace(model, width=16), short, 0)], here))
    assert measured == [forecast.WORK / 2] * 2


def test_after_a_while_other_models_are_taken_to_be_like_those_timed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each mixer the costliest comes first; twice the operations take twice the time, twice the width keeps twice
    as much. However long the first model takes, which may import what it needs, others are timed after it."""
    narrow, wide = (Model((Conv(3, hidden=8),), 1, width) for width in (8, 16))
    other = Model((Attention(2),), 1, 8)
    task = ListOps(minimum=10, length=40)
    small, large, last = (forecast.Shape(task, model, Classify(), 4) for model in (narrow, wide, other))
    loads = {small: forecast.Load(10.0, 2.0), large: forecast.Load(20.0, 3.0), last: forecast.Load(10.0, 1.0)}
    ones = Kept(10.0, 100.0)
    clock = iter([0.0, 9.0, 9.0, 9.6, 9.6])  # before and after each model
    monkeypatch.setattr(forecast.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(forecast, "measure", lambda shape, *_: forecast.Pass(1e-6 * shape.model.width, ones))
    measured = forecast.timed(loads, torch.device("cpu"))
    assert list(measured) == [large, last]
    kept = {large: ones, last: ones}
    assert forecast.taken(small, measured, kept, loads) == forecast.Pass(8e-6, Kept(5.0, 50.0))
    assert forecast.taken(last, measured, kept, loads) == measured[last] == forecast.Pass(8e-6, ones)
    assert forecast.taken(small, {last: measured[last]}, {last: ones}, loads) == forecast.Pass(8e-6, None)


def test_what_a_first_pass_loads_is_not_taken_for_the_cost_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still but for the passes: the first takes as long as it says here, any other a second."""
    run = Run(ListOps(minimum=10, length=40), Model((Conv(3, hidden=8),), 1, 8), scratch(recipe()), 0)

    def measured(first: float) -> float:
        passes: list[float] = []
        monkeypatch.setattr(forecast.time, "perf_counter", lambda: sum(passes))
        monkeypatch.setattr(
            forecast, "part_losses", lambda *given: passes.append(1.0 if passes else first) or part_losses(*given)
        )
        return one_pass(run).seconds

    assert measured(first=9.0) == measured(first=1.0) > 0


def test_memory_counts_weights_four_times_and_what_the_backward_pass_needs(here: Path) -> None:
    """Twice the batch keeps twice the activations, and the weights once."""
    run = Run(
        ListOps(minimum=10, length=40),
        Model((Conv(3, hidden=8),), 2, 16),
        scratch(recipe(budget=Duration(5, "steps"), batch=8)),
        0,
    )
    wide = replace(run, protocol=scratch(recipe(budget=Duration(5, "steps"), batch=16)))
    small, large = (forecast.forecast(r, here, one_pass(r)) for r in (run, wide))
    weights = 16 * plan.cost(run).parameters
    assert small.memory is not None and large.memory is not None and small.seconds is not None
    assert small.memory > weights and small.seconds > 0
    assert large.memory - weights == pytest.approx(2 * (small.memory - weights), rel=0.02)
    sharded = forecast.forecast(replace(run, numerics=Numerics(nproc=2, shard=True)), here, one_pass(run))
    assert sharded.memory == pytest.approx(small.memory / 2, rel=1e-3), "half of the weights, and half of every batch"


def test_epochs_are_those_of_the_training_split_that_the_task_declares(here: Path) -> None:
    epochs = recipe(budget=Duration(2, "epochs"), batch=10)
    run = Run(ListOps(minimum=10, length=40, train=95), Model((Conv(3, hidden=8),), 1, 8), scratch(epochs), 0)
    assert forecast.sequences(run, here, each=1e6) == 190
    flops = replace(run, protocol=scratch(recipe(budget=Duration(95e6, "flops"), batch=10)))
    assert forecast.sequences(flops, here, each=1e6) == 100, "of 95, in whole steps"
    assert plan.cost(run).total is None and (forecast.forecast(run, here, one_pass(run)).flops or 0) > 0


@pytest.mark.parametrize("bucketed", [False, True])
def test_the_epochs_of_a_share_of_the_data_are_planned_in_the_whole_steps_that_are_run(
    tmp_path: Path, *, bucketed: bool
) -> None:
    """13 of 256 examples fill a batch of 16 but for three, and one epoch of them is one step, not 0.8 steps."""
    epoch = replace(recipe(Duration(1, "epochs"), batch=16), bucketed=bucketed)
    run = Run(tiny.FirstSymbol(), tiny.MODEL, scarce(scratch(epoch), 0.05), 0)
    execute(run, store.directory(tmp_path, run), tmp_path, "cpu")
    (spent,) = read_json(store.directory(tmp_path, run) / store.LEDGER)["phases"]
    assert spent["steps"] == (2 if bucketed else 1)
    assert plan.cost(run, tmp_path).total == pytest.approx(spent["flops"], rel=0.05)


def test_without_padding_the_lengths_of_prepared_data_are_forecast(here: Path) -> None:
    task = Reach(16, easiest=4, train=400, val=20, test=20)
    budget = recipe(budget=Duration(5, "steps"), batch=8)
    padded = Run(task, Model((Conv(3, hidden=8),), 1, 8), scratch(budget), 0)
    unpadded, one = replace(padded, numerics=Numerics(by_length=True)), forecast.Pass(1.0, Kept(0.0, 1.0))
    lengths = prepared.load(task, here)["train"].lengths
    whole, parts = (forecast.forecast(run, here, one) for run in (padded, unpadded))
    assert whole.seconds == 5 * 8 * task.max_length and parts.seconds == pytest.approx(5 * 8 * lengths.mean())
    assert 0 < (parts.flops or 0) < (whole.flops or 0)
    absent = replace(unpadded, task=replace(task, seed=1))
    assert forecast.forecast(absent, here, one).seconds == whole.seconds


def test_every_part_of_a_summed_objective_is_in_the_plan() -> None:
    protocol = enriched(recipe(budget=Duration(80, "epochs")), denoise=DENOISE)
    run = Run(ListOps(minimum=10, length=40), Model((Conv(3, hidden=8),), 1, 8), protocol, 0)
    assert plan.phases(run) == "label + denoise 80 epochs"


def test_data_that_is_not_there_is_named(here: Path) -> None:
    run = Run(Text(length=128), Model((Conv(3, hidden=8),), 1, 8), scratch(recipe()), 0)
    assert any(line.startswith("Data that is not there: text.") for line in forecast.lines([run], here))


def test_what_arms_share_is_every_field_they_have_in_common() -> None:
    first = describe(Run(ListOps(minimum=10, length=40), Model((Conv(3),), 2, 16), scratch(recipe(batch=4)), 0))
    other = describe(Run(ListOps(minimum=10, length=40), Model((Conv(5),), 2, 16), scratch(recipe(batch=8)), 1))
    text = shared([first, other])
    assert "depth 2, width 16" in text["model"] and "batch" not in text["phase"] and "lr " in text["phase"]
    assert "kernel" not in str(text) and "hidden" in text["model mixers phase"]


def test_a_plan_says_what_its_report_will_of_models_of_unequal_size() -> None:
    """Those of one task alone are compared; less than a tenth is not told."""
    wide, narrow = (replace(tiny.MODEL, width=width, name=f"w{width}") for width in (32, 16))
    runs = [Run(tiny.FirstSymbol(), model, scratch(recipe()), 0) for model in (wide, narrow)]
    most, least = (plan.cost(run).parameters for run in runs)
    *_, said = plan.lines(runs, 0, "tiny")
    ledgers = {run.id: {"parameters": plan.cost(run).parameters} for run in runs}
    rows = [
        Row(run=run.id, task=run.task.name, model=run.model.label, protocol="scratch", metric="accuracy", value=0.5)
        for run in runs
    ]
    results = Results(rows, ledgers, specs={run.id: describe(run) for run in runs})
    assert said == unequal([gather(results)])
    assert f"w32 has {most:,}, {most / least:.3g} times as many as w16 with {least:,}." in said
    assert "not equal" not in "".join(plan.lines(runs[:1], 0, "tiny"))


def test_what_cannot_run_is_refused_before_a_word_of_the_plan() -> None:
    model = replace(tiny.MODEL, mixers=(Linformer(bound=4),), name="short")
    runs = [Run(tiny.FirstSymbol(), each, scratch(recipe()), 0) for each in (tiny.MODEL, model)]
    with pytest.raises(UserError, match="short takes 4 steps"):
        next(plan.lines(runs, 0, "tiny"))
