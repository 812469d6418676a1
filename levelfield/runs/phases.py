"""Resolves a phase of a protocol to what is trained: its objective, and its durations in optimizer steps.

    plan = resolve(phase, task, batches, mean_length=512.0)     # Plan(objective=..., steps=2000, warmup=100, ...)

A recipe gives durations in whatever unit its paper does. How many steps an epoch or a budget of FLOPs is depends on the
data and on the network, so it is known only where both are there.
"""

from __future__ import annotations

from functools import partial

from levelfield.data.batches import Batches
from levelfield.objectives import Trainable, default_objective
from levelfield.spec import Duration, Phase, Recipe, Run, Task, UserError
from levelfield.train import Plan


def resolve(phase: Phase, task: Task, batches: Batches, mean_length: float, flops_per_step: float = 0.0) -> Plan:
    """Returns a phase on a task with its durations in optimizer steps. The other arguments are as of `in_steps`."""
    recipe = phase.recipe
    steps = partial(in_steps, recipe=recipe, batches=batches, mean_length=mean_length, flops_per_step=flops_per_step)
    return Plan(
        objective=trainable(phase),
        recipe=recipe,
        input=task.input,
        steps=steps(recipe.budget),
        warmup=steps(recipe.warmup),
        validate_every=max(1, steps(recipe.validate_every)),
        augment=task.augment if phase.augment else None,
        patience_after=steps(recipe.patience_after) if recipe.patience_after else 0,
    )


def in_steps(value: Duration, recipe: Recipe, batches: Batches, mean_length: float, flops_per_step: float = 0.0) -> int:
    """Returns how many optimizer steps a duration of a recipe is.

    batches: those of the phase. mean_length: steps of the sequence in a mean example. flops_per_step: those of a mean
    optimizer step, forward and backward, padding included.
    """
    in_epoch = {"epochs": 1.0, "examples": batches.count, "tokens": batches.count * mean_length}
    if recipe.bucketed and value.unit in in_epoch:  # batches vary in size
        return batches.steps(value.value / in_epoch[value.unit])
    return value.resolve(
        batch=recipe.batch,
        examples=batches.count,
        tokens_per_example=mean_length,
        flops_per_step=flops_per_step,
    )


def last_objective(run: Run) -> Trainable:
    """Returns what a run is scored by: the objective of its last phase, or its task's own where nothing is trained."""
    phases = run.protocol.phases
    return trainable(phases[-1]) if phases else default_objective(run.task)


def trainable(phase: Phase) -> Trainable:
    """Returns the objective of a phase. Raises UserError for one that cannot be trained."""
    if not isinstance(phase.objective, Trainable):
        raise UserError(
            f"{type(phase.objective).__name__} cannot be trained: use an objective of levelfield.objectives."
        )
    return phase.objective
