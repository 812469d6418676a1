"""Executes units on a Ray cluster: the one that RAY_ADDRESS names, or one that is started on this machine.

    RAY_ADDRESS=10.0.0.1:6379 levelfield run demo --engine ray --jobs 16 --gpus 0.5

Each worker is one task of Ray, which asks for the threads of a run as CPUs and for the given share of a GPU. Tasks end
with their driver; a driver that is started again goes on from the folder of runs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from levelfield.engine.environment import environment
from levelfield.engine.jobs import Job
from levelfield.engine.placement import Placement
from levelfield.engine.pool import Pool, Workplace, work
from levelfield.runs.claims import JOB
from levelfield.spec import UserError

MOST = 32  # workers, unless --jobs says how many


def engine(placement: Placement, job: Job, units: Sequence[Any]) -> Pool:
    """Returns the engine for these units. Raises UserError where Ray is not installed, or for what it does not know."""
    placement.refuse("partition", "account", "time")
    _ray()
    return Pool(Ray(placement), most=min(len(units), placement.jobs or MOST))


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UserError("--engine ray needs the package ray: pip install 'levelfield[ray]'.") from error
    return ray


@dataclass
class Ray:
    """The workers of one order as tasks of Ray: a `pool.Cluster`."""

    placement: Placement
    tasks: list[Any] = field(default_factory=list)
    words: str = ""

    def open(self, place: Workplace) -> None:
        self.place, self.ray = place, _ray()
        address = os.environ.get("RAY_ADDRESS", "")
        _knock(address)
        variables = environment(place.threads)
        try:
            self.ray.init(
                address=address or None, runtime_env={"env_vars": variables}, log_to_driver=False, logging_level="ERROR"
            )
        except Exception as error:  # Ray raises many kinds, by what is wrong with the address
            where = f"at {address}" if address else "on this machine"
            raise UserError(f"Ray cannot be reached {where}: {' '.join(str(error).split())[:200]}") from error
        have = self.ray.cluster_resources()
        for name, asked in (("CPU", float(place.cpus)), ("GPU", self.placement.gpus)):
            if (
                max((node["Resources"].get(name, 0.0) for node in self.ray.nodes() if node["Alive"]), default=0.0)
                < asked
            ):
                raise UserError(
                    f"No node of Ray has {asked:g} {name}, which a worker asks for; all have {have.get(name, 0):g}."
                )

    def start(self, count: int) -> None:
        task = self.ray.remote(num_cpus=self.place.cpus, num_gpus=self.placement.gpus, max_retries=0)(_task)
        self.tasks += [task.remote(str(self.place.path)) for _ in range(count)]

    def alive(self) -> int:
        """Counts the tasks that have not ended. Those that have are forgotten, but for what went wrong in one."""
        if not self.tasks:
            return 0
        ended, self.tasks = self.ray.wait(self.tasks, num_returns=len(self.tasks), timeout=0)
        for one in ended:
            try:
                self.words = self.ray.get(one)
            except self.ray.exceptions.RayError as error:  # the worker, or its machine, is lost
                self.words = str(error).strip().splitlines()[-1]
        return len(self.tasks)

    def last_words(self) -> str:
        return self.words

    def cancel(self) -> None:
        for one in self.tasks:
            self.ray.cancel(one, force=True)

    def close(self) -> None:
        self.ray.shutdown()


def _knock(address: str) -> None:
    """Raises UserError where nothing listens at an address, for which Ray itself would wait for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10.0).close()
        except OSError as error:
            raise UserError(f"Ray cannot be reached at {address}: {error.strerror or error}.") from error


def _task(path: str) -> str:
    """Works on an order inside a process of Ray, and returns what went wrong, "" where nothing did."""
    os.environ[JOB] = f"ray {_ray().get_runtime_context().get_node_id()[:8]}"
    try:
        return work(Path(path))
    except UserError as error:
        return str(error)
