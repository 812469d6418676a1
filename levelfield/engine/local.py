"""Executes units on this machine, in worker processes that share nothing but the run directories.

    Driver(job, Local(["cpu"] * 4), screen).execute(runs)

A worker loads the study for itself, claims the run's directory (`claims.claim`) and does what is left of it. The claim
of a killed worker is free at once, so nothing needs clearing up. A worker that dies costs its run one retry, never the
other runs.

    parent --- id ---> worker        {"outcome": "done"}, "busy" (another process has it) or "failed" with why
           <-- line --               end of file: it died
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from levelfield.engine.driver import Event
from levelfield.engine.environment import environment
from levelfield.engine.jobs import Job, Order
from levelfield.engine.placement import Placement
from levelfield.spec import UserError

KILLED = "SIGKILL"  # a name, as Windows has no such signal
LAST = 4000  # bytes of what a worker printed that are read when it has died


def cores() -> int:
    """Counts the processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def devices(name: str, jobs: int | None, nproc: int = 1, flag: str = "--nproc", threads: int = 1) -> list[str]:
    """Returns a device for each worker: as many as the cores of the CPU suffice for, or every GPU.

    nproc: processes of a run, each of which has a core for each thread or a GPU of its own; a worker is given the first
    GPU of its run. flag: the option that said so. threads: of each process.
    Raises UserError for a device that is not here, and for more processes than GPUs.
    """
    if name != "cpu":
        import torch

        from levelfield.run import pick_device

        chosen = pick_device(name)
        if chosen.type == "cuda":
            here, first = torch.cuda.device_count(), chosen.index or 0
            together = (here if chosen.index is None else here - first) // nproc
            if not together:
                free = f"{here - first} from {chosen} on"
                raise UserError(f"{flag} {nproc} takes as many GPUs, and here are {free}: lower it.")
            if chosen.index is None:
                return [f"cuda:{i % together * nproc}" for i in range(jobs or together)]
        if chosen.type != "cpu":
            return [str(chosen)] * (jobs or 1)
    return ["cpu"] * (jobs or max(1, cores() // (nproc * threads)))


@dataclass
class _Worker:
    """One child process. It lives in a session of its own, so that Ctrl-C reaches the parent alone."""

    process: subprocess.Popen[str]
    device: str
    complaints: IO[bytes]  # whatever it prints
    current: str = ""  # the unit it has
    ready: bool = False

    def give(self, unit: str) -> None:
        self.current = unit
        assert self.process.stdin
        with suppress(BrokenPipeError):  # if it died, the end of its output says so
            self.process.stdin.write(unit + "\n")
            self.process.stdin.flush()

    def last_words(self) -> str:
        self.complaints.seek(max(0, self.complaints.seek(0, os.SEEK_END) - LAST))  # a worker may have printed gigabytes
        return self.complaints.read().decode(errors="replace").strip()

    def stop(self) -> None:
        for end, patience in (("SIGTERM", 2.0), (KILLED, 5.0)):
            if self.process.poll() is None:
                try:
                    self._send(end)
                    self.process.wait(patience)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        for pipe in (self.process.stdin, self.process.stdout, self.complaints):
            if pipe:
                _close(pipe)

    def _send(self, end: str) -> None:
        """Sends a signal to the process and to what it has started. Windows cannot, and ends the process itself."""
        if (to_group := getattr(os, "killpg", None)) is not None:
            to_group(self.process.pid, getattr(signal, end))
        else:
            self.process.terminate()


def _close(pipe: IO[Any]) -> None:
    with suppress(BrokenPipeError):
        pipe.close()


def cause(code: int) -> str:
    """Says why a process ended: cause(-9) is "was killed (SIGKILL; out of memory is the usual reason)"."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = f"signal {-code}"  # real-time ones have no name
    with suppress(ValueError):
        name = signal.Signals(-code).name
    return f"was killed ({name}{'; out of memory is the usual reason' if name == KILLED else ''})"


@dataclass
class Local:
    """The local engine: as many workers as there are devices in the list."""

    devices: Sequence[str]
    workers: list[_Worker] = field(default_factory=list)
    said: queue.Queue[tuple[_Worker, str]] = field(default_factory=queue.Queue)  # "" is the end of its output

    def open(self, order: Order) -> Sequence[str]:
        self.order = order
        return ()

    def room(self) -> int:
        return len(self.devices) - len(self.running())

    def submit(self, units: Sequence[str]) -> None:
        """Gives each unit to an idle worker, or to a new one."""
        for unit in units:
            idle = next((worker for worker in self.workers if not worker.current), None)
            (idle or self._start()).give(unit)

    def heard(self, seconds: float) -> Sequence[Event]:
        """Returns the end of one unit, or nothing where none ended in time. Raises UserError as `Engine.heard`."""
        try:
            worker, line = self.said.get(timeout=seconds)
        except queue.Empty:
            return ()
        event = self._reply(worker, json.loads(line)) if line else self._ended(worker)
        return (event,) if event is not None else ()

    def running(self) -> Sequence[str]:
        return [worker.current for worker in self.workers if worker.current]

    def cancel(self) -> None:
        self.close()

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()

    def _start(self) -> _Worker:
        taken = Counter(w.device for w in self.workers)
        device = min(self.devices, key=lambda each: taken[each] / self.devices.count(each))
        job = self.order.job.on(device, self.devices.count(device))
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  # stop() closes it
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "levelfield.engine.worker", job.to_json(), self.order.fingerprint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=os.environ | environment(job.threads),
            text=True,
            start_new_session=True,
        )
        worker = _Worker(process, device, complaints)
        threading.Thread(target=self._hear, args=(worker,), daemon=True).start()
        self.workers.append(worker)
        return worker

    def _hear(self, worker: _Worker) -> None:
        assert worker.process.stdout
        try:
            for line in worker.process.stdout:
                self.said.put((worker, line))
        except ValueError:
            return  # closed by stop
        self.said.put((worker, ""))

    def _reply(self, worker: _Worker, reply: Any) -> Event | None:
        if reply["outcome"] == "stop":
            raise UserError(reply["why"])
        if reply["outcome"] == "ready":
            worker.ready = True
            return None
        unit, worker.current = worker.current, ""
        return Event(unit, reply["outcome"], reply["why"])

    def _ended(self, worker: _Worker) -> Event | None:
        self.workers.remove(worker)
        how, words = cause(worker.process.wait()), worker.last_words()
        worker.stop()
        if not worker.ready and worker.process.returncode > 0:
            last = words.splitlines()[-1] if words else "it said nothing"
            raise UserError(f"A worker could not start, it {how}: {last}")
        return Event(worker.current, "died", how, words) if worker.current else None


def engine(placement: Placement, job: Job, units: Sequence[Any]) -> Local:
    """Returns the engine for these units. Raises UserError for a device that is not here."""
    placement.refuse("gpus", "partition", "account", "time")
    together, flag = job.processes(units), job.processes_flag
    return Local(devices(job.device, placement.jobs, together, flag, job.threads)[: len(units)])
