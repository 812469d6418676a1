"""Needles by depth: the probe against a reader that knows the answer within its window, and its heat map."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from repository import ROOT

from levelfield.mixers.conv import Conv
from levelfield.model import Network
from levelfield.objectives import ClassifySteps
from levelfield.presets import efforts
from levelfield.probes.depths import Depths
from levelfield.protocols import scratch
from levelfield.report import heatmaps
from levelfield.report.cells import Cells
from levelfield.runs.results import Results
from levelfield.spec import Block, Examples, Head, Model, Row, Run, SplitName, Task, UserError
from levelfield.studies import _huang2024_small, huang2024_small
from levelfield.tasks.copying import Copying
from levelfield.tasks.needle import Needle

TASK = Needle(40, 2, 1, words=9, keys=30, values=8, train=4, val=4, test=60)


class Within(Network):
    """Answers right where the asked key stands within `steps` of the end, and with value 0 elsewhere."""

    def __init__(self, run: Run, steps: int) -> None:
        super().__init__(run.model, run.task.input, (Head("steps", 8, "step"),), mask_flag=False, seed=0)
        self.steps = steps

    def hidden_states(
        self, x: torch.Tensor, mask: torch.Tensor | None, masked: torch.Tensor | None = None
    ) -> torch.Tensor:
        return torch.nn.functional.one_hot(x, 64).float()

    def head(self, name: str, hidden_states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        x = hidden_states.argmax(-1)
        out = torch.zeros(*x.shape, 8)
        for row, words in enumerate(x):
            place = int((words == words[-1]).nonzero()[0])
            near = len(words) - 1 - place <= self.steps
            symbols = int(words.max())  # the question mark, the last symbol
            out[row, -1, int(words[place + 1]) - (symbols - 8) if near else 0] = 1
        return out


def a_run(task: Task = TASK) -> Run:
    model = Model((Conv(3),), 1, 8, causal=True, block=Block())
    return Run(task, model, scratch(efforts.recipe("smoke"), ClassifySteps()), seed=0)


def load(task: Task) -> Mapping[SplitName, Examples]:
    return task.build(None)


def test_every_place_has_the_score_that_the_answers_give() -> None:
    run = a_run()
    rows: dict[str, Any] = {
        r.get("at", ""): r for r in Depths((0.5, 1, 2), examples=90).measure(Within(run, 20), run, load)
    }
    for length in (20, 40, 80):
        test = TASK.at_length(length, 90).build(None)["test"]
        x = test.x.reshape(90, length).astype(int)
        place = (x == x[:, -1:]).argmax(1)
        right = (length - 1 - place <= 20) | (test.y.reshape(90, length)[:, -1] == 0)
        assert rows[f"length={length}"]["value"] == pytest.approx(right.mean())
        assert rows[f"length={length}"]["n"] == 90
        for depth in np.unique(test.slices["depth"]):
            here = test.slices["depth"] == depth
            assert rows[f"length={length},depth={depth}"]["value"] == pytest.approx(right[here].mean())
            both = here & (test.slices["format"] == "essay")
            if both.any():
                assert rows[f"length={length},depth={depth},format=essay"]["n"] == both.sum()


def test_a_length_beyond_the_bound_takes_no_shorter_one_away() -> None:
    run = a_run()
    bounded = replace(run, model=replace(run.model, positions="learned", max_positions=50))
    rows = list(Depths((2, 0.5), examples=12).measure(Within(run, 20), bounded, load))
    assert {row.get("at", "").partition(",")[0] for row in rows} == {"length=20"}


def test_only_needles_have_depths() -> None:
    task = Copying(8, 4, 6, train=4, val=4, test=4)
    run = a_run(task)
    with pytest.raises(UserError, match="no slice 'depth'"):
        list(Depths((1,), examples=4).measure(Within(run, 3), run, load))
    with pytest.raises(UserError, match="no slice 'depth'"):
        list(Depths().measure(Within(run, 3), run, load))  # whose 900 examples the task does not have


def test_a_heat_map_holds_the_median_of_seeds_and_nothing_else() -> None:
    def row(run: str, at: str, value: float, **more: Any) -> Row:
        base = Row(run=run, task="needle", model="m", protocol="scratch", seed=0, metric="accuracy", unit="fraction")
        return base | Row(split="test", at=at, value=value, status="ok", n=10) | Row(**more)

    rows = [
        row("a", "length=8,depth=0", 0.25),
        row("b", "length=8,depth=0", 0.75),
        row("a", "length=16,depth=1", 1.0),
        row("a", "length=16", 0.1),
        row("a", "length=16,depth=1,format=essay", 0.2),
        row("a", "length=16,depth=1", 0.3, protocol="none", model="chance"),
    ]
    results = Results(rows=tuple(rows), specs={}, ledgers={}, curves={})
    found = heatmaps.grids(results, "accuracy", "depth")
    assert found == {("needle", "m"): {("0", 8.0): [25.0, 75.0], ("1", 16.0): [100.0]}}
    drawing = heatmaps.heat(results, Cells("accuracy", "percent", ()), "depth")
    assert drawing is not None
    assert ">50<" in drawing.svg.replace("\n", "")
    assert ">100<" in drawing.svg.replace("\n", "")
    assert heatmaps.heat(results, Cells("accuracy", "percent", ()), "root") is None


def test_arms_of_the_small_study_are_of_equal_size() -> None:
    for effort in ("minutes", "hours"):
        sizes = _huang2024_small.parameters(effort, "needle")
        assert len(sizes) == 9
        assert max(sizes.values()) / min(sizes.values()) < 1.02, sizes


def test_rates_at_overnight_are_the_best_of_the_trials_that_are_kept() -> None:
    with (ROOT / "results" / "huang2024_small-tuned-minutes" / "trials.csv").open() as file:
        best = {row["model"]: float(row["lr"]) for row in csv.DictReader(file) if row["chosen"] == "True"}
    best["random-positions"] = best["rotary"]  # which came later, and takes the rates of what it is otherwise
    tried = {run.model.label: run.protocol.phases[0].recipe.lr for run in huang2024_small.runs("minutes")}
    used = {run.model.label: run.protocol.phases[0].recipe.lr for run in huang2024_small.runs("overnight")}
    assert used == pytest.approx({arm: rate * best[arm] for arm, rate in tried.items()})


def asked(model: str, at: str, value: float, seed: int = 0) -> Row:
    base = Row(run=f"{model}-{seed}", task="needle", model=model, protocol="scratch", metric="accuracy", split="test")
    return base | Row(at=at, value=value, seed=seed)


CURVES = {"falls": (0.9, 0.95, 0.2, 0.1), "holds": (1.0, 1.0, 0.95, 0.9), "never": (0.1, 0.1, 0.1, 0.1)}


def curves(seeds: int) -> list[Row]:
    return [
        asked(model, f"length={32 * 2**place}", value - 0.001 * seed, seed)
        for model, values in CURVES.items()
        for place, value in enumerate(values)
        for seed in range(seeds)
    ]


def test_the_verdict_names_who_falls() -> None:
    text = huang2024_small.verdict(curves(3))
    assert text.startswith(
        "At 2 times the training length 1 of 2 models are shown to lose more than half in some haystack and 1 to keep "
        "half in each; at 4 times"
    )
    assert "More than half lost at 2 times the length? Yes on falls; no on holds; nothing can be said on never." in text
    facts = [finding.facts for finding in huang2024_small.findings(curves(3))]
    assert facts[0].startswith("falls: 94.9 % (94.8 to 95.0 over 3 seeds) at 64 steps, 19.9 %")
    assert facts[2].endswith("It has not learnt the task.")
    assert text.endswith("As it stands, more than half is lost from 128 steps on by falls.")
    assert huang2024_small.verdict([]).startswith("Nothing can be said")


def test_the_verdict_on_one_seed_decides_nothing() -> None:
    text = huang2024_small.verdict(curves(1))
    assert (
        "More than half lost at 2 times the length? Not decided on falls, holds; nothing can be said on never." in text
    )
    assert "The numbers say yes on falls and no on holds, but noise alone could do the same" in text
    assert text.endswith("As it stands, more than half is lost from 128 steps on by falls.")


def test_the_verdict_leaves_out_a_haystack_that_was_asked_at_one_length() -> None:
    once = asked("holds", "length=64,format=essay", 1.0)
    text = huang2024_small.verdict([*curves(1), once])
    assert "More than half lost at 2 times the length? Nothing can be said on falls, holds, never." in text
    both = [asked("falls", f"length={length},format=noise", value) for length, value in ((64, 1.0), (128, 0.1))]
    assert "among noise from 128 steps on by falls." in huang2024_small.verdict([*curves(1), once, *both])
