"""Executes units on Slurm, by plain `sbatch`, `squeue` and `scancel`.

    levelfield run demo --engine slurm --partition gpu --gpus 1 --time 4:00:00 --jobs 16

Workers are the tasks of one array, under a name that is the same for the same study, so that a driver that is started
again finds those of the one before. A minute before its time limit Slurm sends each SIGUSR1: it saves a checkpoint and
requeues itself. Where Slurm preempts it, it sends SIGTERM and requeues it. Where a node dies, Slurm requeues its tasks
or not, as it is configured; if not, the driver starts others when none is left, or when it is started again.
"""

from __future__ import annotations

import getpass
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from levelfield.engine.environment import environment
from levelfield.engine.jobs import Job
from levelfield.engine.placement import Placement
from levelfield.engine.pool import Pool, Workplace
from levelfield.runs.claims import JOB
from levelfield.spec import UserError

MOST = 32  # workers, unless --jobs says how many
NOTICE_S = 60  # between the signal and the time limit
PATIENCE_S = 60.0  # for one command of Slurm
ELSEWHERE = "start this on a login node of the cluster, or leave --engine out"
CANCELLED = "CANCELLED"  # by somebody: a job whose node dies is requeued, or has NODE_FAIL
TOO_LONG = "PartitionTimeLimit"  # why a job waits whose time limit is longer than that of its partition
TOO_LARGE = {"PartitionConfig", "BadConstraints", "MaxMemPerLimit"}  # and one that no node of the partition can hold
UNAVAILABLE = "Requested node configuration is not available"  # what sbatch says of some of these
ENDED = (CANCELLED, "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
ENDED += ("PREEMPTED", "BOOT_FAIL", "DEADLINE", "REVOKED")


def engine(placement: Placement, job: Job, units: Sequence[Any]) -> Pool:
    """Returns the engine for these units. Raises UserError where the commands of Slurm are not here or reach none."""
    if shutil.which("sbatch") is None:
        raise UserError(f"There is no sbatch here: {ELSEWHERE}.")
    if placement.gpus != int(placement.gpus):
        raise UserError(f"Slurm gives out whole GPUs, not {placement.gpus}: give --gpus a whole number.")
    _reach("--me")  # before anything is prepared or recorded
    return Pool(Slurm(placement), most=min(len(units), placement.jobs or MOST))


@dataclass
class Slurm:
    """The jobs of one order in Slurm's queue: a `pool.Cluster`. submitted: ids of those that are this one's own.

    seen: the tasks that waited or ran when there were some last. cancelled: whether all of them have been since.
    """

    placement: Placement
    submitted: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    cancelled: bool = False

    def open(self, place: Workplace) -> None:
        self.place = place
        _reach("--name", place.name)

    def start(self, count: int) -> None:
        if self.cancelled:
            raise UserError(f"The jobs of {self.place.name} were cancelled: give the same command again to go on.")
        code, printed, said = _command(*self.words(count), script=self.script())
        if code:
            raise UserError(f"Slurm refuses the jobs: {self._too_large() if UNAVAILABLE in said else said}")
        self.submitted.append(printed.strip().partition(";")[0])  # the name of a cluster may follow

    def words(self, count: int) -> list[str]:
        """Returns the command line that submits an array of so many workers."""
        given, log = self.placement, self.place.path.with_name(f"{self.place.name}-%A_%a.log")
        asked = {"partition": given.partition, "account": given.account, "time": given.time}
        asked |= {"gres": f"gpu:{int(given.gpus)}"} if given.gpus else {}
        fixed = {"job-name": self.place.name, "array": f"0-{count - 1}", "cpus-per-task": str(self.place.cpus)}
        fixed |= {"signal": f"B:USR1@{NOTICE_S}", "open-mode": "append", "output": str(log)}
        named = [f"--{name}={value}" for name, value in (fixed | asked).items() if value]
        return ["sbatch", "--parsable", "--requeue", *named]

    def script(self) -> str:
        """Returns what each worker executes. Its shell becomes the worker, so that signals to a job reach that."""
        task = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
        exports = [f"export {name}={shlex.quote(value)}" for name, value in environment(self.place.threads).items()]
        worker = shlex.join([sys.executable, "-P", "-m", "levelfield.engine.pool", str(self.place.path)])
        lines = ["#!/bin/sh", *exports, f'export {JOB}="slurm {task}"', f'exec {worker} scontrol requeue "{task}"']
        return "\n".join(lines) + "\n"

    def alive(self) -> int:
        """Counts tasks that wait, run or are about to end. Where Slurm does not answer for a moment, it counts one.

        Raises UserError where all of them wait for ever, as they ask for more than their partition allows or has.
        """
        words = ("--user", getpass.getuser(), "--name", self.place.name, "--states", "all", "--format", "%i %T %r")
        code, listed, _ = _command("squeue", "--noheader", "--array", *words)
        if code:
            return 1
        known = {task: told.split() for task, _, told in (line.partition(" ") for line in listed.splitlines())}
        states = {task: told[0] for task, told in known.items() if told}
        alive = {task for task, state in states.items() if state not in ENDED}
        reasons = {known[task][-1] for task in alive}
        if reasons and reasons <= {TOO_LONG, *TOO_LARGE}:
            longer = "their --time is longer than the partition allows. Give less."
            why = longer if TOO_LONG in reasons else self._too_large()
            left = "Cancel what an earlier command has left of them."
            raise UserError(f"Slurm never starts the jobs of {self.place.name}: {why} {left}")
        gone = [states.get(task) for task in self.seen if not alive]
        self.cancelled = bool(gone) and all(state == CANCELLED for state in gone)
        self.seen = alive or self.seen
        return len(alive)

    def _too_large(self) -> str:
        """Says that no node of the partition has what a worker asks for, be it CPUs or the memory for them."""
        cpus, gpus = self.place.cpus, int(self.placement.gpus)
        asked = f"{cpus} CPU{'s' * (cpus > 1)}" + (f" and {gpus} GPU{'s' * (gpus > 1)}" if gpus else "")
        lower = "Lower --threads, --gpus or the processes of a run, or give another --partition."
        return f"no node of the partition has {asked}, with their memory, for a worker. {lower}"

    def last_words(self) -> str:
        logs = sorted(self.place.path.parent.glob(f"{self.place.name}-*.log"), key=lambda path: path.stat().st_mtime)
        lines = logs[-1].read_text(errors="replace").strip().splitlines() if logs else []
        return f"{lines[-1]} (see {logs[-1]})" if lines else ""

    def cancel(self) -> None:
        """Cancels the jobs that were submitted here, and none that an earlier driver left."""
        if self.submitted:
            _command("scancel", *self.submitted)

    def close(self) -> None:
        """Leaves the jobs in the queue: they need no driver."""


def _reach(*which: str) -> None:
    """Raises UserError where Slurm does not say which jobs are queued."""
    code, _, said = _command("squeue", "--noheader", *which)
    if code:
        raise UserError(f"Slurm cannot be reached: {ELSEWHERE} ({said.rstrip('.')}).")


def _command(*words: str, script: str = "") -> tuple[int, str, str]:
    """Returns the exit code of a command of Slurm, what it printed, and its last complaint in one line."""
    try:
        done = subprocess.run(
            words, input=script, capture_output=True, text=True, timeout=PATIENCE_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, "", str(error)
    complaint = done.stderr.strip().splitlines()
    return done.returncode, done.stdout, complaint[-1] if complaint else f"{words[0]} ended with {done.returncode}"
