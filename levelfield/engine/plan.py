"""Plans a study: says what it will do and cost before it does anything (`levelfield plan`).

    demo at effort minutes: 6 runs, 2 done
    listops            parameters   per example   run, at most   phases                 seeds
      attention · scratch    42,890   31.2 MFLOP    998.4 GFLOP    label 1000 steps       3: 0 1 2
    What differs between the arms of listops (all else is one object)
      model.mixers       Attention(heads=4)    attention (all protocols)

The cost per example is counted without data, so nothing is trained or prepared: on batches as training would form them
where the task is prepared, else on sequences of its full length. Layers on sequences of more than 512 steps are
extrapolated where that can be done, to within some percent; the ledger of a run counts them. What shipped studies need
is counted already (`counts.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from levelfield.data import prepared
from levelfield.engine import counts, differing
from levelfield.engine.counts import Counted, Question
from levelfield.engine.differing import Arms, by_task, described, told_apart
from levelfield.objectives import Trainable, default_objective
from levelfield.report.arms import Arm, differences, shared
from levelfield.report.cells import unequal_counts
from levelfield.report.tables import si
from levelfield.run import build_net, check
from levelfield.runs.flops import Costs, Meter
from levelfield.runs.ledger import parameters
from levelfield.runs.phases import in_steps
from levelfield.spec import (
    Examples,
    LabelSet,
    Model,
    Numerics,
    Objective,
    Phase,
    Protocol,
    Run,
    StepLabels,
    Task,
    Tokens,
    UserError,
    Values,
)
from levelfield.spec.errors import format_error
from levelfield.spec.memory import SHORTER, fitting
from levelfield.spec.numerics import PLAIN

COUNTED = 512  # steps of a sequence up to which layers are counted; beyond, a plan extrapolates and a ledger does not


def to_json(name: str, effort: str, runs: Mapping[Run, bool]) -> str:
    """Returns a plan for other programs. runs: whether each is complete.

    For each task, `arms` has the ids of the runs of every arm, and `differences` every field in which arms differ, with
    whole values and all the arms that have them. Raises UserError for a run that cannot work.
    """
    for run in runs:
        check(run)
    listed = [
        {"id": run.id, "task": run.task.name, "model": run.model.label, "protocol": run.protocol.name}
        | {"seed": run.seed, "done": done}
        for run, done in runs.items()
    ]
    found = {task: told_apart(arms) for task, arms in by_task(list(runs)).items()}
    told = {
        "arms": {task: {str(arm): [run.id for run in same] for arm, same in of.items()} for task, of in found.items()},
        "differences": {task: _all_differences(arms) for task, arms in found.items()},
    }
    return json.dumps({"study": name, "effort": effort, "runs": listed, **told}, indent=1)


def _all_differences(arms: Arms) -> dict[str, list[dict[str, Any]]]:
    return {
        found.field: [{"value": text, "arms": list(map(str, having))} for text, having in found.values.items()]
        for found in differences(described(arms))
    }


@dataclass(frozen=True)
class ArmCost:
    """The cost of one arm.

    flops: forward and backward of one example in its last phase, its share of a batch's fixed work and of padding
    included; of one at full length where the data is not there. useful: the part of it without padding.

    total: of a whole run; None where the number of steps depends on data that is not there.
    """

    parameters: int
    flops: float
    useful: float
    total: float | None


def example(task: Task, length: int | None = None) -> Examples:
    """Makes one example of zeros, of the task's greatest length where none is given."""
    count, length = task.documents, length or task.max_length
    shape = (count * length,) if isinstance(task.input, Tokens) else (count * length, task.input.channels)
    x = np.zeros(shape, dtype=np.uint8 if isinstance(task.input, Tokens) else np.float32)
    offsets = np.arange(count + 1, dtype=np.int64) * length
    stepwise = isinstance(task.output, StepLabels)
    y = np.zeros(count * length if stepwise else 1, np.int64)
    y = np.zeros((1, task.output.dims), np.float32) if isinstance(task.output, Values) else y
    y = np.zeros((1, task.output.classes), np.uint8) if isinstance(task.output, LabelSet) else y
    return Examples(x, offsets, y, documents=count, stepwise=stepwise)


def cost(run: Run, root: Path | None = None) -> ArmCost:
    """Counts a run's network, or looks its counts up. root: the folder of prepared data, whose lengths are used where
    they are there. Raises UserError for a run that cannot work."""
    try:
        what, steps = f"{run.model.label} at width {run.model.width:,}", run.task.max_length
        with fitting(f"{what}, called on up to {steps:,} steps,", SHORTER):
            return _cost(run, root)
    except UserError:
        raise
    except Exception as error:  # whatever a user's own layer raises
        raise UserError(f"{run.id} cannot take one example: {format_error(error)}") from error


def _cost(run: Run, root: Path | None) -> ArmCost:
    check(run)
    phases = run.protocol.phases
    objectives = [phase.objective for phase in phases] or [default_objective(run.task)]
    tasks = run.trained_on or (run.task,)
    shares = [phase.fraction for phase in phases] or [1.0]
    trains = [None if root is None else prepared_train(*each, root) for each in zip(tasks, shares, strict=True)]
    counted = [
        _count(task, run.model, objective, root if train else None, again=run.numerics.recompute)
        for task, objective, train in zip(tasks, objectives, trains, strict=True)
    ]
    size, costs = counted[-1]
    if not phases:
        return ArmCost(size, (alone := costs.costs[-1].of(run.task.documents)), alone, None)
    meters = [
        Meter(costs, example(task), replace(phase.recipe, bucketed=False), 0, run.numerics)
        if train is None
        else Meter(costs, train, phase.recipe, 0, run.numerics)
        for (_, costs), task, phase, train in zip(counted, tasks, phases, trains, strict=True)
    ]
    last = meters[-1].per_step
    total = _total(phases, meters, prepared=all(train is not None for train in trains))
    return ArmCost(size, last.dispatched / last.examples, last.useful / last.examples, total)


@cache
def prepared_train(task: Task, share: float, root: Path) -> Examples | None:
    """Returns a share of the training split, where it is prepared."""
    at = prepared.folder(task, root)
    return prepared.read(at)["train"].subset(share) if (at / prepared.MANIFEST).exists() else None


@cache
def _count(task: Task, model: Model, objective: Objective, root: Path | None, *, again: bool) -> Counted:
    """Counts parameters, and FLOPs by length, once for all protocols that share an objective.

    again: whether blocks are recomputed, of which nothing is counted already.
    """
    assert isinstance(objective, Trainable)
    train = None if root is None else prepared_train(task, 1.0, root)
    lengths = (train or example(task)).lengths
    known = None if again else counts.shipped().find(Question.of(task, model, objective, lengths, COUNTED))
    return known or count(task, model, objective, lengths, Numerics(recompute=again))


def count(task: Task, model: Model, objective: Trainable, lengths: np.ndarray, numerics: Numerics = PLAIN) -> Counted:
    """Builds the network and counts its layers. lengths: (N,), those of the sequences that occur."""
    net = build_net(Run(task, model, Protocol("", ()), seed=0, numerics=numerics), objective)
    return Counted(parameters(net)["parameters"], Costs.of(net, lengths, objective, task, COUNTED))


def _total(phases: Sequence[Phase], meters: Sequence[Meter], *, prepared: bool) -> float | None:
    if not prepared and any(phase.recipe.budget.unit in ("epochs", "tokens") for phase in phases):
        return None
    total = 0.0
    for phase, meter in zip(phases, meters, strict=True):
        each, mean = meter.per_step.dispatched, float(meter.examples.sizes.mean())
        total += each * in_steps(phase.recipe.budget, meter.recipe, meter.batches, mean, each)
    return total


def flops(value: float) -> str:
    """Writes a number of operations: flops(31_200_000) is "31.2 MFLOP"."""
    return f"{si(value)}FLOP" if value >= 1000 else f"{value:.0f} FLOP"


def phases(run: Run) -> str:
    """Writes the phases of a run, such as "masked 20 epochs, then label 1000 steps"."""
    parts = []
    for phase in run.protocol.phases:
        objective = phase.objective
        summed = objective.parts if isinstance(objective, Trainable) else ()
        key = " + ".join(part.key for part in summed) or type(objective).__name__.lower()
        part = f" on {phase.fraction:.0%} of the data" if phase.fraction < 1 else ""
        part += f" on sequences of {phase.length:,} steps" if phase.length else ""
        parts.append(f"{key} {phase.recipe.budget}{' augmented' if phase.augment else ''}{part}")
    return ", then ".join(parts) or "as given"


def lines(runs: Sequence[Run], done: int, title: str, root: Path | None = None) -> Iterator[str]:
    """Yields the whole plan as text, task by task as it is counted, which takes a while for long sequences.

    done: how many of the runs are complete. root: the folder of prepared data. Where the models of a task differ in
    size by a tenth or more, the last line says so, as a report does. Raises UserError, before any text, for a run that
    cannot work.
    """
    for run in runs:
        check(run)
    yield f"{title}: {len(runs)} runs, {done} done"
    counted: list[tuple[float, Arm]] = []
    for task, arms in by_task(runs).items():
        found = told_apart(arms)
        costs = {arm: cost(same[0], root) for arm, same in found.items()}
        counted += [(spent.parameters, replace(arm, task=task)) for arm, spent in costs.items()]
        yield from ("", task)
        yield from _table(found, costs)
        yield from ("", *_shared(task, found), "", *_differences(task, found))
    if told := unequal_counts(counted):
        yield from ("", told)


def _table(found: Arms, costs: Mapping[Arm, ArmCost]) -> list[str]:
    rows = [("arm", "parameters", "per example", "of it useful", "run, at most", "phases", "seeds")]
    for arm, runs in found.items():
        spent = costs[arm]
        seeds = _seeds([run.seed for run in runs])
        whole = "" if spent.total is None else flops(spent.total)
        useful = f"{spent.useful / spent.flops:.0%}" if spent.useful < spent.flops else ""
        rows.append((str(arm), f"{spent.parameters:,}", flops(spent.flops), useful, whole, phases(runs[0]), seeds))
    for column in (4, 3):
        if not any(row[column] for row in rows[1:]):
            rows = [(*row[:column], *row[column + 1 :]) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "   ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]


def _seeds(seeds: Sequence[int]) -> str:
    """Says how many seeds there are, and which: one by one, or the first and the last of many in a row."""
    if len(seeds) > 9 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{len(seeds)}: {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)}: {' '.join(map(str, seeds))}"


def _shared(task: str, found: Arms) -> list[str]:
    parts = shared(list(described(found).values()))
    return [f"What all arms of {task} share:", *(f"  {part:<12} {text}" for part, text in parts.items())]


def _differences(task: str, found: Arms) -> list[str]:
    if len(found) < 2:
        return []
    text = [
        f"What differs between the arms of {task} (all else is one object; defaults are left out, --json has them):"
    ]
    return [*text, *differing.lines(described(found), differing.defaults_of(runs[0] for runs in found.values()))]
