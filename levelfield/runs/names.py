"""Takes the id of a run apart: `task-model-protocol-seed-hash`, where each of the names may hold hyphens itself.

without_hash("listops-s4-scratch-0-5f0c9a1e2b")            # "listops-s4-scratch-0"
arm_of("listops-s4-scratch-0-5f0c9a1e2b")                  # "listops-s4-scratch"
names_in("listops-s4-scratch-0-5f0c9a1e2b", spec, tasks)  # Names(task="listops", model="s4", protocol="scratch")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Names(NamedTuple):
    """The names that the id of a run begins with."""

    task: str
    model: str
    protocol: str


def without_hash(run_id: str) -> str:
    """Returns what an id keeps where the settings of its run change."""
    return run_id.rpartition("-")[0]


def arm_of(run_id: str) -> str:
    """Returns what the ids of all seeds of an arm begin with."""
    return without_hash(run_id).rpartition("-")[0]


def names_in(run_id: str, spec: Mapping[str, Any], tasks: Iterable[str] = ()) -> Names:
    """Returns the names in an id. spec: the run as `spec.describe` has it.

    It knows the protocol, and the model where that has a name of its own. Where it has none, the task is the longest of
    `tasks` that the id begins with, or what stands before the first hyphen.
    """
    protocol = spec["protocol"]["name"]
    left = without_hash(run_id).removesuffix(f"-{protocol}-{spec['seed']}")
    model = spec.get("model", {}).get("name")
    if model and left.endswith(f"-{model}"):
        return Names(left.removesuffix(f"-{model}"), model, protocol)
    task = max((each for each in tasks if left.startswith(f"{each}-")), key=len, default=left.partition("-")[0])
    return Names(task, left.removeprefix(f"{task}-"), protocol)
