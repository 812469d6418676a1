"""MQAR, copying and induction through the whole path, and whether models do on them as published: attention solves
them, and a bounded convolution stays below what its window allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from levelfield.files import read_rows
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.presets import comparison, efforts
from levelfield.presets.options import Options
from levelfield.probes.extrapolation import Extrapolation
from levelfield.run import execute
from levelfield.runs import store
from levelfield.spec import MixerConfig, Probe, Run, UserError
from levelfield.tasks.copying import Copying
from levelfield.tasks.induction import Induction
from levelfield.tasks.mqar import MQAR
from levelfield.user.mixer import user_mixer

NAMES = ("mqar", "copying", "selective_copying", "induction")
KERNEL = 5


class Peeking(nn.Module):
    """The mean of a whole sequence, at every step."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        weights = torch.ones(x.shape[:2]) if mask is None else mask.float()
        mean = (weights[..., None] * self.map(x)).sum(1, keepdim=True) / weights.sum(1)[:, None, None].clamp(min=1)
        return mean.expand_as(x)


def done(run: Run, out: Path, probes: Sequence[Probe]) -> list[Any]:
    """The rows of the run and of its probes."""
    where = store.directory(out / "runs", run)
    execute(run, where, out / "data", device="cpu", probes=probes)
    return [row for path in where.glob("*.jsonl") if path.name != "log.jsonl" for row in read_rows(path)]


@pytest.mark.parametrize("name", ["mqar", "induction"])
def test_a_comparison_runs_under_both_protocols(name: str, tmp_path: Path) -> None:
    study = comparison.compare(Conv(3, 16), Options((name,), ("scratch", "spt_masked")))
    lengths = {f"length={factor * efforts.generated(name, 'smoke').max_length}" for factor in (1, 2, 4)}
    for run, protocol in zip(study.runs("smoke")[:2], ("scratch", "spt_masked_matched"), strict=True):
        assert run.model.causal and (run.task.name, run.protocol.name) == (name, protocol)
        rows = [r for r in done(run, tmp_path, comparison.probes(run)) if r["metric"] == "accuracy"]
        assert lengths <= {r.get("at") for r in rows}
        assert all(0 <= r["value"] <= 1 and r["n"] > 0 for r in rows)


def test_a_mixer_that_reads_ahead_is_refused_before_any_run() -> None:
    assert comparison.compare(user_mixer(Peeking, {}), Options(("recall",))).runs("smoke")
    study = comparison.compare(user_mixer(Peeking, {}), Options(("mqar",)))
    with pytest.raises(UserError, match="causal"):
        study.runs("smoke")


def learnt(name: str, mixer: MixerConfig, tmp_path: Path) -> tuple[float, float]:
    """Test accuracy after the recipe of effort `minutes`, and at twice the length."""
    (protocol,) = efforts.protocols(name, "minutes", ("scratch",))
    run = Run(efforts.generated(name, "minutes"), efforts.model(name, mixer, "minutes"), protocol, 0)
    rows = done(run, tmp_path / mixer.label, (Extrapolation((1, 2), examples=500),))
    at = {r["at"]: r["value"] for r in rows if "length=" in r.get("at", "") and r.get("model") == run.model.label}
    length = run.task.max_length
    return at[f"length={length}"], at[f"length={2 * length}"]


def bound(name: str, model_field: int) -> float:
    """What a reader of so many steps can know at best."""
    task = efforts.generated(name, "minutes")
    if isinstance(task, MQAR):
        return task.bounded(model_field // 2)
    assert isinstance(task, (Copying, Induction))
    return task.bounded(model_field)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", NAMES)
def test_attention_solves_it_and_a_bounded_convolution_cannot(name: str, tmp_path: Path) -> None:
    attention, _ = learnt(name, Attention(heads=4, rotary="per_head"), tmp_path)
    conv, _ = learnt(name, Conv(KERNEL, 64), tmp_path)
    field = efforts.model(name, Conv(KERNEL, 64), "minutes").receptive_field
    assert field == 1 + 2 * (KERNEL - 1)
    asked = {"mqar": 4, "copying": 8, "selective_copying": 4, "induction": 1}[name] * 2_000
    assert attention > 0.95
    assert conv < bound(name, field) + 4 * np.sqrt(0.25 / asked) < 0.5
