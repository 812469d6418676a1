"""What a study will do and cost, before it does anything: `levelfield plan`.

    demo at effort minutes: 6 runs, 2 done
    listops            parameters   per example   run, at most   phases                 seeds
      attention · scratch    42,890   31.2 MFLOP    998.4 GFLOP    label 1000 steps       0 1 2
    What differs between the arms of listops (all else is one object)
      model.mixers       Attention(heads=4)    attention (all protocols)

The cost per example is counted on one made-up sequence of the task's full length, so nothing is trained or prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from levelfield.batches import Loaded
from levelfield.ledger import flops_per_example, parameters
from levelfield.objectives import Trainable, default_objective
from levelfield.report.arms import Arm, differences, group
from levelfield.report.cells import arms_of
from levelfield.results import Results
from levelfield.run import build_net, check
from levelfield.spec import (
    Examples,
    Model,
    Objective,
    Protocol,
    Run,
    StepLabels,
    Task,
    Tokens,
    UserError,
    Values,
    describe,
)


@dataclass(frozen=True)
class Cost:
    """Of one arm. flops: forward and backward of one example at full length, in its last phase.

    total: of a whole run with no shorter examples; None where the number of steps depends on the data.
    """

    parameters: int
    flops: float
    total: float | None


def example(task: Task) -> Examples:
    """One made-up example of the task's greatest length, of zeros."""
    count, length = task.documents, task.max_length
    shape = (count * length,) if isinstance(task.input, Tokens) else (count * length, task.input.channels)
    x = np.zeros(shape, dtype=np.uint8 if isinstance(task.input, Tokens) else np.float32)
    offsets = np.arange(count + 1, dtype=np.int64) * length
    stepwise = isinstance(task.output, StepLabels)
    y = np.zeros(count * length if stepwise else 1, np.int64)
    y = np.zeros((1, task.output.dims), np.float32) if isinstance(task.output, Values) else y
    return Examples(x, offsets, y, documents=count, stepwise=stepwise)


def cost(run: Run) -> Cost:
    """Builds the network and passes one example through it. Raises UserError for a run that cannot work."""
    try:
        return _cost(run)
    except UserError:
        raise
    except Exception as error:  # whatever a user's own layer raises
        raise UserError(f"{run.id} cannot take one example: {type(error).__name__}: {error}") from error


def _cost(run: Run) -> Cost:
    check(run)
    objectives = [phase.objective for phase in run.protocol.phases] or [default_objective(run.task)]
    counts = [_count(run.task, run.model, objective) for objective in objectives]
    size, flops = counts[-1]
    return Cost(size, flops, _total(run, [each for _, each in counts]))


@cache
def _count(task: Task, model: Model, objective: Objective) -> tuple[int, float]:
    """Parameters, and FLOPs of an example, once for all protocols that share an objective."""
    assert isinstance(objective, Trainable)
    net = build_net(Run(task, model, Protocol("", ()), seed=0), objective)
    one = Loaded(example(task), torch.device("cpu")).gather(torch.tensor([0]))
    return parameters(net)["parameters"], flops_per_example(net, one, objective, task)


def _total(run: Run, each: Sequence[float]) -> float | None:
    """each: FLOPs of an example, by phase."""
    recipes = [phase.recipe for phase in run.protocol.phases]
    if not recipes or any(r.budget.unit not in ("steps", "examples") for r in recipes):
        return None
    steps = [r.budget.resolve(batch=r.batch, examples=1, tokens_per_example=1) for r in recipes]
    return sum(flops * n * r.batch for flops, n, r in zip(each, steps, recipes, strict=True))


def si(value: float) -> str:
    """si(31_200_000) is "31.2 M"."""
    for scale, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.1f} {letter}"
    return f"{value:.0f} "


def phases(run: Run) -> str:
    """ "masked 20 epochs, then label 1000 steps"."""
    parts = []
    for phase in run.protocol.phases:
        key = getattr(phase.objective, "key", type(phase.objective).__name__.lower())
        part = f" on {phase.fraction:.0%} of the data" if phase.fraction < 1 else ""
        parts.append(f"{key} {phase.recipe.budget}{' augmented' if phase.augment else ''}{part}")
    return ", then ".join(parts) or "as given"


def lines(runs: Sequence[Run], done: int, title: str) -> Iterator[str]:
    """The whole plan as text, task by task as it is counted, which takes a while for long sequences."""
    specs = {run.id: describe(run) for run in runs}
    arms = arms_of(Results(specs=specs))
    by_task: dict[str, dict[Arm, list[Run]]] = {}
    for run in runs:
        by_task.setdefault(run.task.name, {}).setdefault(arms[run.id], []).append(run)
    yield f"{title}: {len(runs)} runs, {done} done"
    for task, found in by_task.items():
        yield from ("", task)
        yield from _table(found)
        yield from ("", *_differences(task, found))


def _table(found: Mapping[Arm, Sequence[Run]]) -> list[str]:
    rows = [("arm", "parameters", "per example", "run, at most", "phases", "seeds")]
    for arm, runs in found.items():
        spent = cost(runs[0])
        seeds = " ".join(str(run.seed) for run in runs)
        whole = "" if spent.total is None else f"{si(spent.total)}FLOP"
        rows.append((str(arm), f"{spent.parameters:,}", f"{si(spent.flops)}FLOP", whole, phases(runs[0]), seeds))
    if not any(row[3] for row in rows[1:]):
        rows = [(*row[:3], *row[4:]) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "   ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]


def _differences(task: str, found: Mapping[Arm, Sequence[Run]]) -> list[str]:
    if len(found) < 2:
        return []
    text = [f"What differs between the arms of {task} (all else is one object):"]
    for difference in differences({arm: describe(runs[0]) for arm, runs in found.items()}):
        text.append(f"  {difference.field}")
        text += [f"    {value}   [{group(arms, found)}]" for value, arms in difference.values.items()]
    return text
