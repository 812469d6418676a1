"""What a run costs besides its FLOPs (`flops.py`), counted by one function for every model: parameters, carried state,
memory, kernels, and the sums over phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from levelfield.ops.vendor import dispatch
from levelfield.spec import Model

if TYPE_CHECKING:
    from levelfield.model import Net


def parameters(net: Net) -> dict[str, int]:
    """Trainable real numbers, two for a complex one: all, those of the heads, and those of the trunk, which is all but
    heads and the hidden flag."""
    sizes = {name: p.numel() * (2 if p.is_complex() else 1) for name, p in net.named_parameters() if p.requires_grad}
    heads = sum(n for name, n in sizes.items() if name.startswith("heads."))
    flag = sizes.get("encoder.hidden", 0)
    total = sum(sizes.values())
    return {"parameters": total, "parameters_trunk": total - heads - flag, "parameters_heads": heads}


def state_size(model: Model, length: int) -> int | None:
    """Numbers carried past step `length` by all layers of the causal model; None where a mixer does not declare it."""
    configs = [model.mixers[layer % len(model.mixers)] for layer in range(model.depth)]
    sizes = [config.state_size(model.width, length) for config in configs]
    return None if any(s is None for s in sizes) else sum(s for s in sizes if s is not None)


def match_width(model: Model, parameters_of: Any, target: int, multiple: int = 8) -> Model:
    """The model at the width whose parameter count is nearest to `target`.

    parameters_of: Model -> int. Widths are multiples of `multiple`, so that heads and groups divide them.
    """
    low, high = multiple, 2 * multiple
    while parameters_of(replace(model, width=high)) < target:
        low, high = high, high * 2
    while high - low > multiple:
        middle = (low + high) // 2 // multiple * multiple
        low, high = (middle, high) if parameters_of(replace(model, width=middle)) < target else (low, middle)
    sized = [replace(model, width=w) for w in (low, high)]
    return min(sized, key=lambda m: abs(parameters_of(m) - target))


def peak_memory(device: torch.device) -> dict[str, float]:
    """The most memory this run held on a GPU, in MiB; absent on a CPU, where a process keeps no count of one run."""
    if device.type != "cuda":
        return {}
    return {"peak_memory_mb": round(torch.cuda.max_memory_allocated(device) / 2**20, 1)}


def new_kernels() -> list[str]:
    """Which kernels ran, or were refused and why, since this was last asked; nothing where all was plain."""
    notes = dispatch.kernel_log()
    dispatch.clear_log()
    return notes


def all_kernels(phases: Sequence[dict[str, Any]]) -> str:
    """In the phases and since: "plain", or the notes of `new_kernels`."""
    notes = {note for phase in phases for note in phase.get("kernels", [])}
    return "; ".join(sorted(notes.union(new_kernels()))) or "plain"


def total(phases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The phases' costs added up; tuning trials are those of the phase that had most."""
    keys = ("examples", "tokens", "padding", "steps", "flops", "flops_useful", "wall_s")
    known = [key for key in keys if all(key in phase for phase in phases)]  # older phases do not tell useful FLOPs
    summed = {key: sum(phase[key] for phase in phases) for key in known}
    return summed | {"tuning_trials": max((phase["tuning_trials"] for phase in phases), default=0)}
