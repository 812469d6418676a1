"""Executes runs on this machine, in worker processes that share nothing but the run directories.

    Local(Job(Source("demo"), "minutes", Path("runs"), Path("data")), ["cpu"] * 4).execute(runs, screen)

The parent hands out run ids; a worker loads the study for itself, claims the run's directory (`claims.claim`) and does
what is left of it. The claim ends with the process, so a killed worker leaves nothing behind that needs clearing up,
and two commands on one study share its runs. A worker that dies costs its run one retry, never the other runs.

    parent --- id ---> worker        {"outcome": "done"}, "busy" (another command has it) or "failed" with why
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
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

from levelfield.engine.worker import Job
from levelfield.files import write_text
from levelfield.runs import store
from levelfield.spec import Probe, Run, UserError

ATTEMPTS = 2  # of a run whose worker dies
ASK_AGAIN_S = 1.0  # for a run that another command has


@dataclass(frozen=True)
class Outcome:
    """Ids that are complete now, and why the others are not."""

    done: tuple[str, ...]
    failed: Mapping[str, str]


class Screen(Protocol):
    """The display that the engine reports to."""

    def say(self, sentence: str) -> None: ...

    def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None: ...


def cores() -> int:
    """Counts the processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def devices(name: str, jobs: int | None) -> list[str]:
    """Returns a device for each worker: every core of the CPU, or every GPU. Raises UserError for one not here."""
    if name != "cpu":
        import torch

        from levelfield.run import pick_device

        chosen = pick_device(name)
        if chosen.type == "cuda" and chosen.index is None:
            return [f"cuda:{i % torch.cuda.device_count()}" for i in range(jobs or torch.cuda.device_count())]
        if chosen.type != "cpu":
            return [str(chosen)] * (jobs or 1)
    return ["cpu"] * (jobs or cores())


def finished(where: Path, probes: Sequence[Probe]) -> bool:
    """Tells whether the run and all its probes have been measured."""
    return store.complete(where) and all(store.probe_file(where, p).exists() for p in probes)


@dataclass
class _Worker:
    """One child process. It lives in a session of its own, so that Ctrl-C reaches the parent alone."""

    process: subprocess.Popen[str]
    device: str
    complaints: IO[bytes]  # whatever it prints
    current: str = ""  # the run it has
    ready: bool = False

    def give(self, run_id: str) -> None:
        self.current = run_id
        assert self.process.stdin
        with suppress(BrokenPipeError):  # if it died, the end of its output says so
            self.process.stdin.write(run_id + "\n")
            self.process.stdin.flush()

    def last_words(self) -> str:
        self.complaints.seek(0)
        return self.complaints.read().decode(errors="replace")[-4000:].strip()

    def stop(self) -> None:
        for kind, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
            if self.process.poll() is None:
                try:
                    os.killpg(self.process.pid, kind)
                    self.process.wait(patience)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        for pipe in (self.process.stdin, self.process.stdout, self.complaints):
            if pipe:
                _close(pipe)


def _close(pipe: IO[Any]) -> None:
    with suppress(BrokenPipeError):
        pipe.close()


def cause(code: int) -> str:
    """Says why a process ended: cause(-9) is "was killed (SIGKILL; out of memory is the usual reason)"."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"was killed ({name}{'; out of memory is the usual reason' if -code == signal.SIGKILL else ''})"


@dataclass
class Local:
    """The local engine: executes a job in as many workers as there are devices in the list."""

    job: Job
    devices: Sequence[str]
    workers: list[_Worker] = field(default_factory=list)
    waiting: deque[str] = field(default_factory=deque)
    busy: dict[str, float] = field(default_factory=dict)  # run -> when to ask again
    died: Counter[str] = field(default_factory=Counter)
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    heard: queue.Queue[tuple[_Worker, str]] = field(default_factory=queue.Queue)  # "" is the end of its output

    def execute(self, runs: Sequence[Run], screen: Screen) -> Outcome:
        """Executes the runs until each is complete or failed. Raises UserError where no worker can start."""
        study, _ = self.job.load()
        self.fingerprint = self.job.source.fingerprint(runs)
        self.where = {run.id: store.directory(self.job.out, run) for run in runs}
        self.probes = {run.id: study.probes(run) for run in runs}
        for run_id in self.where:
            (self.done if self._finished(run_id) else self.waiting).append(run_id)
        try:
            while self.waiting or self.busy or self._running():
                self._feed()
                self._listen(screen)
                paths = [self.where[w.current] for w in self._running()]
                screen.show(paths, len(self.done), len(self.failed), len(self.where))
        finally:
            for worker in self.workers:
                worker.stop()
        return Outcome(tuple(self.done), dict(self.failed))

    def _finished(self, run_id: str) -> bool:
        return finished(self.where[run_id], self.probes[run_id])

    def _running(self) -> list[_Worker]:
        return [w for w in self.workers if w.current]

    def _feed(self) -> None:
        """Gives every idle worker a run, and starts workers while there are devices and work for them."""
        for run_id in [r for r, when in self.busy.items() if when <= time.monotonic()]:
            del self.busy[run_id]
            (self.done if self._finished(run_id) else self.waiting).append(run_id)
        while self.waiting:
            idle = next((w for w in self.workers if not w.current), None)
            if idle is None and len(self.workers) < len(self.devices):
                idle = self._start()
            if idle is None:
                return
            idle.give(self.waiting.popleft())

    def _start(self) -> _Worker:
        taken = Counter(w.device for w in self.workers)
        device = min(self.devices, key=lambda each: taken[each] / self.devices.count(each))
        job = replace(self.job, device=device).to_json()
        folder = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(p for p in (folder, os.environ.get("PYTHONPATH", "")) if p)
        threads = {"OMP_NUM_THREADS": str(self.job.threads), "PYTHONPATH": path}
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  # stop() closes it
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "levelfield.engine.worker", job, self.fingerprint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=os.environ | threads,
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
                self.heard.put((worker, line))
        except ValueError:
            return  # closed by stop
        self.heard.put((worker, ""))

    def _listen(self, screen: Screen) -> None:
        """Takes in what workers said within a moment."""
        try:
            worker, line = self.heard.get(timeout=0.2)
        except queue.Empty:
            return
        if line:
            self._reply(worker, json.loads(line), screen)
        else:
            self._ended(worker, screen)

    def _reply(self, worker: _Worker, reply: Mapping[str, str], screen: Screen) -> None:
        outcome, run_id, why = reply["outcome"], worker.current, reply.get("why", "")
        if outcome == "stop":
            raise UserError(why)
        if outcome == "ready":
            worker.ready = True
            return
        worker.current = ""
        if outcome == "done":
            self.done.append(run_id)
        elif outcome == "busy":
            self.busy[run_id] = time.monotonic() + ASK_AGAIN_S
        else:
            self.failed[run_id] = why
            screen.say(f"{run_id} failed: {why}")

    def _ended(self, worker: _Worker, screen: Screen) -> None:
        self.workers.remove(worker)
        run_id, how = worker.current, cause(worker.process.wait())
        words = worker.last_words()
        worker.stop()
        if not worker.ready and worker.process.returncode > 0:
            last = words.splitlines()[-1] if words else "it said nothing"
            raise UserError(f"A worker could not start, it {how}: {last}")
        if not run_id:
            return
        self.died[run_id] += 1
        if self.died[run_id] < ATTEMPTS:
            screen.say(f"The worker of {run_id} {how}; trying the run once more.")
            self.waiting.appendleft(run_id)
            return
        why = f"its worker {how}, twice"
        write_text(self.where[run_id] / store.ERROR, f"The run failed: {why}.\n\n{words}\n")
        self.failed[run_id] = why
        screen.say(f"{run_id} failed: {why}.")
