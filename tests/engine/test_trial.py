"""What a plan says of memory, against what passes of the planned size keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch

from levelfield import mixers
from levelfield.engine import forecast, trial
from levelfield.engine.trial import Kept, Shape
from levelfield.protocols import scratch
from levelfield.spec import Block, Duration, Model, Numerics, Run
from levelfield.tasks.listops import ListOps
from levelfield.train import part_losses

CPU = torch.device("cpu")
LENGTH, BATCH = 384, 8


def run_of(name: str, batch: int = BATCH, width: int = 64) -> Run:
    """Its sequences are three times as long, and its batch twice as large, as any that a forecast tries."""
    mixer = mixers.find(name)
    causal = "bidirectional" not in mixer.directions
    model = Model((mixer,), 2, width, causal=causal, block=Block(feedforward=2 * width))
    recipe = replace(tiny.recipe(batch=batch), budget=Duration(5, "steps"))
    return Run(ListOps(minimum=10, length=LENGTH), model, scratch(recipe), 0)


@pytest.mark.parametrize("name", ["attention", "conv", "s4", "lru", "mamba2", "gated_deltanet", "mega", "gru"])
def test_what_a_pass_keeps_is_foretold_from_smaller_ones(name: str) -> None:
    """S4 keeps its kernels once for a batch, so a forecast that took all for sequences' would be far off."""
    run = run_of(name)
    shape = Shape.of(run)
    net, part = trial.network(shape, CPU), trial.made_up(shape, CPU, LENGTH, BATCH)
    found: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for p in net.parameters()}

    def seen(value: torch.Tensor) -> torch.Tensor:
        found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda value: value):
        loss = part_losses(net, part, shape.objective, run.task.input).sum()
    kept = sum(size for at, size in found.items() if at not in own)
    foretold = trial.held(net, shape, CPU)
    assert loss.isfinite()
    assert foretold.of(run) == pytest.approx(kept, rel=0.25)


def test_a_part_of_a_batch_needs_the_same_kernels() -> None:
    kept, run = Kept(once=1e3, each=1e2), run_of("s4")
    quarter = replace(run, numerics=Numerics(accumulate=4))
    assert kept.of(run) == run.task.max_length * (1e3 + BATCH * 1e2)
    assert kept.of(quarter) == run.task.max_length * (1e3 + BATCH / 4 * 1e2)


def test_arms_whose_memory_was_not_measured_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one model is timed, and no other tried: nothing is said of another mixer, as its memory is not known."""
    monkeypatch.setattr(forecast, "TIMED", 0.0)
    runs, said = [run_of("conv"), run_of("attention")], "Most memory of the 1 of 2 arms that were measured: "
    monkeypatch.setattr(forecast, "HELD", 0.0)
    assert any(line.startswith(said) for line in forecast.lines(runs, tmp_path))
    monkeypatch.setattr(forecast, "HELD", 60.0)
    assert any(line.startswith("Most memory: ") for line in forecast.lines(runs, tmp_path))


def test_a_run_that_fits_no_gpu_is_given_flags_with_which_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("attention", batch=12)
    one = forecast.measure(Shape.of(run), CPU)
    whole, third = (
        forecast.forecast(replace(run, numerics=Numerics(accumulate=parts)), tmp_path, one).memory or 0.0
        for parts in (1, 3)
    )
    monkeypatch.setattr(forecast, "LARGE", 1.01 * third)
    assert third < whole / 2
    (said,) = (line for line in forecast.lines([run], tmp_path) if "has: with" in line)
    assert "with --accumulate 3 --filter 'listops-attention-scratch-*' it is some" in said
