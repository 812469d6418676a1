"""What a plan says of runs that split batches or recompute blocks: as much as their ledgers, and less memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tiny

from levelfield.engine import forecast, plan
from levelfield.engine.trial import Kept
from levelfield.files import read_json
from levelfield.mixers.lru import LRU
from levelfield.mixers.s4 import S4
from levelfield.protocols import scratch
from levelfield.run import execute
from levelfield.runs import store
from levelfield.spec import Duration, Model, Numerics, Run
from levelfield.tasks.recall import Recall

TASK = Recall(pairs=4, train=64, val=16, test=16)
SPLIT, AGAIN = Numerics(accumulate=4), Numerics(recompute=True)


def run_of(mixer: LRU | S4, budget: Duration, numerics: Numerics) -> Run:
    """All sequences of its task have one length, so that its plan is exact."""
    recipe = dataclasses.replace(tiny.recipe(batch=8), budget=budget)
    return Run(TASK, Model((mixer,), 2, 16), scratch(recipe), 0, numerics)


def ledger_of(run: Run, folder: Path) -> dict[str, float]:
    where = store.directory(folder / "runs", run)
    execute(run, where, folder / "data", "cpu")
    return read_json(where / store.LEDGER)


@pytest.mark.parametrize("numerics", [SPLIT, AGAIN, Numerics(accumulate=2, recompute=True)], ids=str)
def test_a_plan_counts_what_the_ledger_does(numerics: Numerics, tmp_path: Path) -> None:
    plain, run = (run_of(S4(), Duration(3, "steps"), each) for each in (Numerics(), numerics))
    ledger = ledger_of(run, tmp_path)
    spent = plan.cost(run)
    assert spent.total == pytest.approx(ledger["flops"])
    assert spent.useful == pytest.approx(ledger["flops_useful"] / 24)
    assert (spent.useful < spent.flops) == numerics.recompute
    assert plan.cost(plain).flops < spent.flops


@pytest.mark.parametrize("numerics", [SPLIT, AGAIN], ids=str)
def test_a_budget_of_flops_is_as_large_for_every_arm(numerics: Numerics, tmp_path: Path) -> None:
    """The kernels of S4 are made in each part of a batch, which a recurrence has nothing like."""
    budget = 2e8
    for mixer in (LRU(), S4()):
        run = run_of(mixer, Duration(budget, "flops"), numerics)
        a_step = 8 * plan.cost(run).flops
        assert a_step < budget / 3
        assert abs(ledger_of(run, tmp_path)["flops"] - budget) <= a_step


def test_two_processes_split_a_batch_as_two_parts_do() -> None:
    two = (run_of(S4(), Duration(3, "steps"), each) for each in (Numerics(nproc=2), Numerics(accumulate=2)))
    assert len({plan.cost(run) for run in two}) == 1


def test_splitting_and_recomputing_leave_less_to_be_kept(tmp_path: Path) -> None:
    budget, one = Duration(3, "steps"), forecast.Pass(1e-6, Kept(0.0, 10_000.0))
    every = (Numerics(), SPLIT, Numerics(nproc=4), AGAIN)
    plain, *others = (forecast.forecast(run_of(S4(), budget, each), tmp_path, one).memory for each in every)
    weights = 16 * plan.cost(run_of(S4(), budget, Numerics())).parameters
    assert plain is not None and others[0] == others[1] == pytest.approx(weights + (plain - weights) / 4)
    assert weights + (plain - weights) / 2 < (others[2] or 0.0) < plain


def test_a_batch_of_more_than_all_examples_is_named(tmp_path: Path) -> None:
    run = run_of(S4(), Duration(3, "steps"), Numerics())
    assert not list(forecast.oversized([run], tmp_path))
    recipe = dataclasses.replace(run.protocol.phases[0].recipe, batch=160)
    large = [dataclasses.replace(run, protocol=scratch(recipe), seed=seed) for seed in (0, 1)]
    said = (
        "A batch of 160 is larger than the 64 training examples of recall, each of which is in it 2.5 times: a batch "
        "(--batch) of 64 has them all."
    )
    assert list(forecast.oversized(large, tmp_path)) == [said]
    assert said in forecast.lines(large, tmp_path)
