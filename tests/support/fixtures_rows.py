"""Invented results of small studies, for tests and for looking at reports without training anything.

gap()         three mixers, two protocols, two tasks, three seeds; one run diverged, one is missing, one is at chance
locality()    a convolution at six kernel sizes beside two unbounded models, on two tasks
extrapolation()  scores beyond the training length, and slices by root operator
hostile()     the same as gap() with names that try to break out of HTML, SVG and mathematics

The numbers come from formulas and a seeded generator: no score here was ever measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from levelfield.report.arms import Arm
from levelfield.report.cells import arms_of
from levelfield.runs.results import Results
from levelfield.spec import (
    Block,
    Duration,
    Examples,
    Input,
    Label,
    MixerConfig,
    Model,
    Objective,
    Output,
    Phase,
    Progress,
    Protocol,
    Published,
    Recipe,
    ReportView,
    Row,
    Run,
    SplitName,
    Study,
    Task,
    Tokens,
    describe,
    no_progress,
)


class Unbuildable(MixerConfig):
    """A mixer that has a configuration but no layer."""

    label: ClassVar[str] = "fixture"
    paper: ClassVar[str] = "none"

    def build(self, width: int, *, causal: bool, layer: int, generator: Any) -> Any:
        raise NotImplementedError

    def state_size(self, width: int, length: int) -> int | None:
        return None


@dataclass(frozen=True)
class Attention(Unbuildable):
    label: ClassVar[str] = "attention"
    heads: int = 4
    rotary: str = "per_head"
    rotary_width: int | None = None


@dataclass(frozen=True)
class S4(Unbuildable):
    label: ClassVar[str] = "s4"
    state: int = 64
    form: str = "dplr"


@dataclass(frozen=True)
class Conv(Unbuildable):
    label: ClassVar[str] = "conv"
    kernel: int = 5
    hidden: int = 256


@dataclass(frozen=True)
class Classify(Objective):
    pass


@dataclass(frozen=True)
class Masked(Objective):
    ratio: float = 0.5


@dataclass(frozen=True)
class Toy(Task):
    """A task that has a name but no data."""

    name: str = "listops"  # type: ignore[misc]
    length: int = 200
    version: ClassVar[int] = 1
    source: ClassVar[str] = "invented"
    split_rule: ClassVar[str] = "none"

    @property
    def input(self) -> Input:
        return Tokens(15)

    @property
    def output(self) -> Output:
        return Label(10)

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 0.1

    def build(self, sources: Path | None, progress: Progress = no_progress) -> dict[SplitName, Examples]:
        raise NotImplementedError


RECIPE = Recipe(
    lr=1e-3, weight_decay=0.05, batch=64, budget=Duration(2000, "steps"), warmup=Duration(100, "steps"),
    schedule="cosine", clip=1.0, validate_every=Duration(200, "steps"), source="invented",
)  # fmt: skip
SCRATCH = Protocol("scratch", (Phase(Classify(), RECIPE),))
SPT = Protocol(
    "spt_masked",
    (
        Phase(Masked(ratio=0.1), replace(RECIPE, budget=Duration(4000, "steps"))),
        Phase(Classify(), RECIPE, start="previous"),
    ),
)
ENRICHED = Protocol("enriched", (Phase(Classify(), RECIPE, augment=True),))
TASKS = (Toy("listops", 200), Toy("image", 1024))
EXAMPLES = 2000


def model(mixer: MixerConfig, name: str | None = None) -> Model:
    return Model((mixer,), depth=4, width=64, block=Block(feedforward=128), name=name)


def baseline_rows(task: str, study: str) -> list[Row]:
    rules = {"chance": 0.1, "label_prior": 0.17 if task == "listops" else 0.1}
    rules |= {"greedy_root": 0.405} if task == "listops" else {}
    shared = {"source": "levelfield", "study": study, "effort": "minutes", "task": task, "protocol": "none"}
    shared |= {"split": "test", "metric": "accuracy", "unit": "fraction", "n": EXAMPLES, "status": "ok"}
    return [Row(**shared, model=name, value=value) for name, value in rules.items()]  # type: ignore[typeddict-item]


def row(run: Run, study: str, value: float, **more: Any) -> Row:
    shared: dict[str, Any] = {"source": "levelfield", "study": study, "effort": "minutes", "run": run.id}
    shared |= {"task": run.task.name, "model": run.model.label, "protocol": run.protocol.name, "seed": run.seed}
    shared |= {"split": "test", "metric": "accuracy", "unit": "fraction", "n": EXAMPLES, "status": "ok"}
    return Row(**(shared | {"value": value} | more))  # type: ignore[typeddict-item]


def ledger(run: Run) -> dict[str, Any]:
    size = {"attention": 137_034, "s4": 122_890, "conv": 409_162}.get(run.model.label, 100_000)
    phases = []
    for phase in run.protocol.phases:
        steps = int(phase.recipe.budget.value)
        tokens = steps * phase.recipe.batch * run.task.max_length
        cost = {"examples": steps * 64, "tokens": tokens, "padding": tokens // 20, "steps": steps}
        phases.append(
            cost
            | {
                "flops": 6.6 * size * tokens,
                "flops_useful": 6.0 * size * tokens,
                "wall_s": steps * 0.021 * (1 + run.seed / 20),
            }
        )
    totals = {
        k: sum(p[k] for p in phases)
        for k in ("examples", "tokens", "padding", "steps", "flops", "flops_useful", "wall_s")
    }
    fixed = {"parameters": size, "parameters_trunk": size - 650, "device": "cpu", "threads": 2, "tuning_trials": 1}
    state = {"s4": 16_384, "conv": 1_024, "attention": 2 * 64 * 4 * run.task.max_length}.get(run.model.label)
    return fixed | totals | {"state": state, "peak_memory_mb": 512.0, "torch": "2.13.0", "phases": phases}


def curve(run: Run, final: float, rng: np.random.Generator) -> list[dict[str, Any]]:
    log: list[dict[str, Any]] = []
    for index, phase in enumerate(run.protocol.phases):
        steps = int(phase.recipe.budget.value)
        for step in range(50, steps + 1, 50):
            progress = 1 - np.exp(-4 * step / steps)
            record = {"phase": index, "step": step, "lr": 1e-3, "wall_s": step * 0.021}
            record["loss"] = float(2.3 - 1.8 * final * progress + rng.normal(0, 0.03))
            if step % 200 == 0:
                record["score"] = float(0.1 + (final - 0.1) * progress + rng.normal(0, 0.01))
            log.append(record)
    return log


def assemble(runs: Sequence[Run], name: str, score: Callable[[Run], float], extra: Callable[[Run, float], list[Row]]):
    """Results in which every run scores `score(run)` plus noise by seed."""
    rng = np.random.default_rng(7)
    rows: list[Row] = [r for task in dict.fromkeys(r.task.name for r in runs) for r in baseline_rows(task, name)]
    curves = {}
    for run in runs:
        value = round(float(np.clip(score(run) + rng.normal(0, 0.012), 0, 1)) * EXAMPLES) / EXAMPLES
        rows += [row(run, name, value), row(run, name, value + 0.01, split="val"), *extra(run, value)]
        curves[run.id] = curve(run, value, rng)
    return Results(rows, {r.id: ledger(r) for r in runs}, curves, {r.id: describe(r) for r in runs})


def gap_runs(mixers: Sequence[Model] | None = None) -> list[Run]:
    models = mixers or (model(Attention()), model(S4()), model(Conv()))
    return [Run(t, m, p, seed) for t in TASKS for m in models for p in (SCRATCH, SPT) for seed in (0, 1, 2)]


GAP = {
    ("attention", "scratch"): (0.395, 0.41), ("attention", "spt_masked"): (0.575, 0.66),
    ("s4", "scratch"): (0.56, 0.78), ("s4", "spt_masked"): (0.59, 0.81),
    ("conv", "scratch"): (0.44, 0.47), ("conv", "spt_masked"): (0.455, 0.50),
}  # fmt: skip


def gap() -> tuple[Study, Results]:
    runs = gap_runs()

    def score(run: Run) -> float:
        listops, image = GAP.get((run.model.label, run.protocol.name), (0.3, 0.3))
        return listops if run.task.name == "listops" else image

    full = assemble(runs, "protocol_gap", score, lambda run, value: [])
    names = {(r.task.name, r.model.label, r.protocol.name, r.seed): r.id for r in runs}
    diverged, missing = names["image", "s4", "scratch", 1], names["image", "attention", "spt_masked", 2]
    floored = names["listops", "attention", "scratch", 2]
    rows: list[Row] = []
    for r in full.rows:
        if r.get("run") == missing:
            continue
        if r.get("run") == diverged:
            r = Row(**{k: v for k, v in r.items() if k != "value"} | {"status": "diverged"})  # type: ignore[typeddict-item]
        if r.get("run") == floored and r.get("split") == "test":
            r = Row(**{**r, "value": 0.1725})
        rows.append(r)
    ledgers = {k: v for k, v in full.ledgers.items() if k != missing}
    curves = {k: v for k, v in full.curves.items() if k != missing}
    failures = {missing: "Stopped by the system: not enough memory for a batch of 64."}
    study = Study(
        name="protocol_gap",
        claim="Training from scratch underestimates attention; self-pretraining on the training split closes the gap.",
        runs=lambda effort: runs,
        published=(Published("amos2025", "2"), Published("miralles2025", "4")),
        views=(
            ReportView("compare", "Ours beside the printed numbers"),
            ReportView("gap", "From scratch to self-pretrained"),
            ReportView("training", "Training curves"),
        ),
        verdict=lambda rows: "Self-pretraining lifts attention by 18 points on ListOps and S4 by 3.",
        deviations=("Sequences of 200 steps instead of 2,000.", "Width 64 instead of 512."),
    )
    return study, Results(rows, ledgers, curves, full.specs, failures)


def locality() -> tuple[Study, Results]:
    kernels = (5, 7, 11, 21, 31, 61)
    runs = [Run(t, model(Conv(k)), ENRICHED, s) for t in TASKS for k in kernels for s in (0, 1)]
    runs += [Run(t, model(m), ENRICHED, s) for t in TASKS for m in (Attention(), S4()) for s in (0, 1)]

    def score(run: Run) -> float:
        image = run.task.name == "image"
        mixer = run.model.mixers[0]
        if isinstance(mixer, Conv):
            reach = np.log2(mixer.kernel)
            return 0.12 + 0.115 * reach if image else 0.56 - 0.6 / reach**2
        return 0.62 if not image else 0.88

    results = assemble(runs, "locality", score, lambda run, value: [])
    study = Study(
        name="locality",
        claim="Most of the score on these tasks is within reach of a short kernel.",
        runs=lambda effort: runs,
        published=(Published("miralles2025", "1"),),
        views=(ReportView("curve", "How far must a model see?", axis="kernel"),),
    )
    return study, results


def extrapolation() -> tuple[Study, Results]:
    runs = [Run(TASKS[0], model(m), SCRATCH, s) for m in (Attention(), S4(), Conv()) for s in (0, 1)]
    fall = {"attention": 1.0, "s4": 0.25, "conv": 0.1}

    def score(run: Run) -> float:
        return GAP[run.model.label, "scratch"][0]

    def extra(run: Run, value: float) -> list[Row]:
        lengths = [
            row(run, "extrapolation", max(0.13, value - fall[run.model.label] * 0.12 * i), at=f"length={200 * 2**i}")
            for i in range(-1, 5)
        ]
        roots = {"MIN": 0.12, "MAX": 0.1, "MED": -0.08, "SM": -0.2}
        shared = {"n": EXAMPLES // 4}
        return lengths + [row(run, "extrapolation", value + d, at=f"root={k}", **shared) for k, d in roots.items()]

    study = Study(
        name="extrapolation",
        claim="A model that is trained at one length does not work at another.",
        runs=lambda effort: runs,
        views=(
            ReportView("curve", "Beyond the training length", axis="length"),
            ReportView("slices", "By root operator", axis="root"),
        ),
    )
    return study, assemble(runs, "extrapolation", score, extra)


def hostile() -> tuple[Study, Results]:
    study, results = gap()
    bad = "<script>alert('x')</script> & \"quoted\" $\\frac{1}{0}$"
    rows = [Row(**{**r, "task": f"{bad} {r.get('task')}", "model": f"{bad} {r.get('model')}"}) for r in results.rows]
    claims = replace(study, claim=bad, name="hostile", verdict=lambda rows: bad, deviations=(bad,), published=())
    return claims, Results(rows, results.ledgers, results.curves, {}, {"run": bad})


def references(results: Results) -> list[tuple[Arm, Any]]:
    """The runs that stand for the printed ones, as if both had exactly the same settings."""
    return [(arm, results.specs[run]) for run, arm in arms_of(results).items() if run in results.specs]


def scores_of(results: Results, **names: Any) -> list[float]:
    """The simplest reading of the rows: finite test scores without a location, in percent."""
    rows = [dict(r) for r in results.rows if r.get("split") == "test" and not r.get("at")]
    return [100 * r["value"] for r in rows if "value" in r and all(r.get(k) == v for k, v in names.items())]
