"""Runs of several processes, started by a test without torchrun."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch
from paced import slow_down, wait_for

from levelfield.run import execute
from levelfield.runs import claims, store
from levelfield.runs.claims import Stopped
from levelfield.runs.processes import Group, joined
from levelfield.spec import Numerics, Run

CPU = torch.device("cpu")
FILES = ("weights.safetensors", "rows.jsonl", "log.jsonl", "scores.npy")
SERVER = multiprocessing.get_context("forkserver")  # its processes are forks of one that has imported and done nothing
SERVER.set_forkserver_preload(
    ["levelfield.run", "levelfield.runs.sharded", "torch._dynamo", "pytest"]
)  # torch.distributed imports the second last when it is used


def contents(where: Path) -> dict[str, bytes]:
    return {name: (where / name).read_bytes() for name in FILES}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(run: Run, out: Path, pace: float = 0.0) -> list[ForkServerProcess]:
    """The processes of a run: `pace` seconds a step, a checkpoint after every third."""
    port = free_port()
    count = run.numerics.nproc
    started = [SERVER.Process(target=perform, args=(run, out, pace, rank, port)) for rank in range(count)]
    for process in started:
        process.start()
    return started


def told(rank: int, size: int, port: int) -> None:
    """Puts into the environment what torchrun tells a process."""
    variables = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in variables.items()}


def perform(run: Run, out: Path, pace: float, rank: int, port: int) -> None:
    slow_down(pace)
    signal.signal(signal.SIGTERM, lambda number, frame: claims.stop())
    told(rank, run.numerics.nproc, port)
    with joined(run.numerics, CPU) as group, suppress(Stopped):
        execute(run, store.directory(out, run), out / "data", "cpu", group=group)


def finish(run: Run, out: Path) -> Path:
    for process in start(run, out):
        process.join()
        assert process.exitcode == 0
    return store.directory(out, run)


def kill_last(run: Run, out: Path) -> list[ForkServerProcess]:
    """Starts a run, kills its last process in the second phase, and returns all of them, which have ended by then."""
    started, where = start(run, out, pace=0.05), store.directory(out, run)
    wait_for(lambda: len(list(where.glob("checkpoint-1-*"))) > 0)
    started[-1].kill()
    for process in started:
        process.join()
    assert not store.complete(where)
    return started


def ask_to_stop(run: Run, out: Path) -> Path:
    """Starts a run, asks its second process to stop, which is not the one that writes, and returns the run's folder.
    All processes have ended well by then, with the run saved."""
    started, where = start(run, out, pace=0.05), store.directory(out, run)
    wait_for(lambda: (where / store.LOG).exists())
    started[1].terminate()
    for process in started:
        process.join()
        assert process.exitcode == 0
    assert list(where.glob("checkpoint-*")) and not store.complete(where)
    return where


def both(function: Callable[[Group], Any], numerics: Numerics) -> list[Any]:
    """What a function returns in each of two processes. Raises what it raises in one of them, and ends both."""
    answers, port = SERVER.Queue(), free_port()
    started = [SERVER.Process(target=_answer, args=(function, numerics, rank, port, answers)) for rank in range(2)]
    for process in started:
        process.start()
    found = {}
    for _ in started:
        rank, found[rank] = answers.get(timeout=100)
        if isinstance(found[rank], Exception):
            for process in started:
                process.kill()
            raise found[rank]
    for process in started:
        process.join()
    return [found[rank] for rank in range(2)]


def _answer(function: Callable[[Group], Any], numerics: Numerics, rank: int, port: int, answers: Any) -> None:
    torch.set_num_threads(1)
    told(rank, 2, port)
    with joined(numerics, CPU) as group:
        try:
            answers.put((rank, function(group)))
        except Exception as error:
            answers.put((rank, error))
            raise
