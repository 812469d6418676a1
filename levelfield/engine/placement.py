"""Says where runs execute and with what, and makes the engine that does it.

engine(Placement("slurm", jobs=16, partition="gpu", gpus=1, time="4:00:00"), job, runs)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from levelfield.spec import UserError, closest

if TYPE_CHECKING:  # the command line reads placements before it loads anything else
    from levelfield.engine.driver import Engine
    from levelfield.engine.jobs import Job

ENGINES = ("local", "ray", "slurm")  # each a module beside this one, whose `engine` takes what `engine` here takes


@dataclass(frozen=True)
class Placement:
    """The place where units execute. What only some engines know is empty where it was not given.

    jobs: workers at once, None for as many as suit the engine. gpus: of each worker, a fraction where the engine shares
    them. partition, account, time: as the scheduler's users write them.
    """

    engine: str = "local"
    jobs: int | None = None
    gpus: float = 0.0
    partition: str = ""
    account: str = ""
    time: str = ""

    @property
    def elsewhere(self) -> bool:
        """Whether an engine has its own machines, which need not be like this one."""
        return self.engine != HERE.engine

    def refuse(self, *names: str) -> None:
        """Raises UserError for fields of these names that are given, though the engine does not know them."""
        for name in names:
            if getattr(self, name):
                raise UserError(f"--{name} is not for --engine {self.engine}: leave it out.")


HERE = Placement()


def engine(placement: Placement, job: Job, units: Sequence[Any]) -> Engine:
    """Returns the engine for these units of a job.

    Raises UserError for an unknown one or one that is not here, for fewer GPUs of a worker than work on a unit, and for
    a device beyond those that a worker is given.
    """
    if placement.engine not in ENGINES:
        raise UserError(f"There is no engine '{placement.engine}': {closest(placement.engine, ENGINES)}")
    if placement.jobs is not None and placement.jobs < 1:
        raise UserError(f"--jobs must be at least 1, not {placement.jobs}.")
    together = job.processes(units)
    if placement.elsewhere and 0 < placement.gpus < together > 1 and job.device != "cpu":
        flag = f"{job.processes_flag} {together}"
        raise UserError(f"{flag} takes a GPU for each, and a worker has {placement.gpus:g}: give --gpus {together}.")
    if placement.elsewhere and placement.gpus:
        _check_number(job.device, together, placement.gpus)
    found: Mapping[str, Callable[[Placement, Job, Sequence[Any]], Engine]] = vars(
        import_module(f"levelfield.engine.{placement.engine}")
    )
    return found["engine"](placement, job, units)


def _check_number(device: str, together: int, gpus: float) -> None:
    """Raises UserError where the GPUs of a unit, the first of which is the device, go beyond those of a worker.

    An engine that gives out GPUs shows a worker its own alone, and each worker counts these from 0.
    """
    kind, _, first = device.partition(":")
    if kind == "cuda" and first.isdigit() and int(first) + together > max(gpus, 1):
        raise UserError(f"A worker counts its own GPUs from 0 and has {gpus:g}, so not {device}: give --device cuda.")
