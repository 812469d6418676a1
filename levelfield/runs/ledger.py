"""Counts what a run costs besides its FLOPs, by the same functions for every model.

Parameters, recurrent state, memory, kernels and the sums over phases are here; the FLOPs are counted in `flops.py`.

    parameters(net)                 # {"parameters": 804874, "parameters_trunk": 802304, "parameters_heads": 2570}
    sizes(model, task.input)        # the same of a network without heads that is built for it, in less time
    trained(model, task)            # 804874
    step_flops(model, task, 32)     # 1.3e9
    state_size(model, 2000)         # 8192, numbers for each sequence
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from levelfield.model import Network
from levelfield.objectives import default_objective, heads
from levelfield.ops.layers.undrawn import Undrawn
from levelfield.ops.vendor import dispatch
from levelfield.runs.flops import LONG, cost
from levelfield.spec import Head, Input, Model, Task, UserError
from levelfield.spec.memory import fitting

NEAR = 0.04  # of a parameter count: two that are as near to a third are less than a tenth apart


def parameters(net: Network) -> dict[str, int]:
    """Counts trainable real numbers, two for a complex one: all, those of the heads, and those of the trunk.

    The trunk is everything but the heads and the flag of hidden steps.
    """
    sizes = {name: p.numel() * (2 if p.is_complex() else 1) for name, p in net.named_parameters() if p.requires_grad}
    of_heads = sum(n for name, n in sizes.items() if name.startswith("heads."))
    flag = sizes.get("encoder.hidden", 0)
    total = sum(sizes.values())
    return {"parameters": total, "parameters_trunk": total - of_heads - flag, "parameters_heads": of_heads}


def sizes(model: Model, spec: Input, given: tuple[Head, ...] = ()) -> dict[str, int]:
    """Counts what `parameters` does, of a network that is built for this alone.

    No random numbers are drawn for it, which take most of the time, unless there is unknown code that may look at them.
    """
    with undrawn(model):
        return parameters(Network(model, spec, given, mask_flag=False, seed=0))


def undrawn(model: Model) -> AbstractContextManager[object]:
    """Returns a scope in which no random numbers are drawn for networks of a model, so that their weights mean nothing;
    of a model with unknown code they are."""
    return nullcontext() if any(mixer.opaque for mixer in model.mixers) else Undrawn()


def trained(model: Model, task: Task) -> int:
    """Counts the trainable numbers of a model on a task, by building it. Raises TooLarge where it does not fit."""
    with fitting(f"{model.label} at width {model.width:,}"):
        return sizes(model, task.input, heads(default_objective(task), task))["parameters"]


def step_flops(model: Model, task: Task, batch: int) -> float:
    """Counts the FLOPs of a training step on the objective by which a task is scored, at its greatest length.

    batch: examples of a step. Beyond LONG steps of a sequence it is an estimate, as a plan's is. Raises TooLarge where
    the model does not fit.
    """
    objective = default_objective(task)
    with fitting(f"{model.label} at width {model.width:,}"):
        net = Network(model, task.input, heads(objective, task), mask_flag=False, seed=0)
        each = cost(net, task.max_length, objective, task, most=LONG)
    return each.fixed + batch * task.documents * each.each


def state_size(model: Model, length: int) -> int | None:
    """Returns how many numbers all layers of a causal model carry from step `length` to the next, for each sequence.

    None where a mixer does not declare its own.
    """
    configs = [model.mixers[layer % len(model.mixers)] for layer in range(model.depth)]
    sizes = [config.state_size(model.width, length) for config in configs]
    return None if any(s is None for s in sizes) else sum(s for s in sizes if s is not None)


def match_width(
    model: Model, parameters_of: Callable[[Model], int], target: int, multiple: int = 8, *, finer: bool = False
) -> Model:
    """Returns the model at the width whose parameter count is nearest to `target`; wider models have more.

    parameters_of: gives a model's parameter count, or raises UserError for a width that the model does not take.
    multiple: what widths are multiples of, so that heads and groups divide them. finer: where none of them comes as
    near as NEAR, half of it is tried, half of that, and so on, as long as the model takes such widths.
    """

    @cache
    def count(width: int) -> int:
        return parameters_of(replace(model, width=width))

    low, high, width = multiple, None, max(2 * multiple, model.width // multiple * multiple)
    while high is None or high - low > multiple:
        low, high = (width, high) if (found := count(width)) < target else (low, width)
        guess = round(width * math.sqrt(target / max(1, found)) / multiple) * multiple  # they grow as a square, nearly
        width = max(guess, low + multiple)
        width = width if high is None else min(width, high - multiple)

    def apart(width: int) -> int:
        return abs(count(width) - target)

    best = min(low, high, key=apart)
    if not finer:
        return replace(model, width=best)
    low, high = (0, low) if count(low) > target else (low, high)
    with suppress(UserError):
        while (step := (high - low) // 2) and apart(best) > NEAR * target:
            middle = low + step
            low, high = (middle, high) if count(middle) < target else (low, middle)
            best = min(best, middle, key=apart)
    return replace(model, width=best)


def new_peak_memory(device: torch.device) -> None:
    """Lets `peak_memory` count anew, so that an earlier run of this process is no part of it."""
    if device.type == "cuda" and torch.cuda.is_initialized():  # before, there is no count, and no way to reset it
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> dict[str, float]:
    """Returns the most memory on a GPU since `new_peak_memory`, in MiB: of a resumed run, since it was resumed.

    Returns nothing on a CPU, where no count of one run is kept.
    """
    if device.type != "cuda":
        return {}
    return {"peak_memory_mb": round(torch.cuda.max_memory_allocated(device) / 2**20, 1)}


def new_kernels() -> list[str]:
    """Returns which kernels ran, or were refused and why, since the last call; [] where all operators were plain."""
    notes = dispatch.kernel_log()
    dispatch.clear_log()
    return notes


def all_kernels(phases: Sequence[dict[str, Any]]) -> str:
    """Returns the notes of `new_kernels` in all phases and since then, as text; "plain" where there are none."""
    notes = {note for phase in phases for note in phase.get("kernels", [])}
    return "; ".join(sorted(notes.union(new_kernels()))) or "plain"


def total(phases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Adds up the costs of the phases. Tuning trials are those of the phase that had most."""
    keys = ("examples", "tokens", "padding", "steps", "flops", "flops_useful", "wall_s")
    known = [key for key in keys if all(key in phase for phase in phases)]  # older phases do not tell useful FLOPs
    summed = {key: sum(phase[key] for phase in phases) for key in known}
    return summed | {"tuning_trials": max((phase["tuning_trials"] for phase in phases), default=0)}
