"""Measures forward and backward passes, each case in a process with one thread and a limit of memory and time.

    rows = collect("layer_cases:LAYERS", wanted, options, rows, save)

A number is the least CPU time (user and system) of a forward and backward, after a warm-up, over all rounds; rounds go
through all cases in turn, because other work on the machine can only add time and would otherwise affect one side
alone. A first pass that takes longer than `SLOW` seconds is itself the measurement. Peaks are resident memory above
what the process held before its first forward pass. Rows are saved as they come, so that an interrupted run continues
where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import io
import json
import math
import multiprocessing
import os
import platform
import resource
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WIDTH, TOKENS = 256, 8192
LEAST, ENOUGH, SLOW = 1.0, 5.0, 12.0  # seconds: see `measure`
BUILD = "compiling takes too long"
Work = Callable[[], object]
Make = Callable[[Path, int], tuple[Work, int]]
Forward = Callable[[Tensor], Any]
Row = dict[str, Any]
COLUMNS = ("group", "length", "side", "status", "us_per_token", "peak_mib", "rounds", "machine")


@dataclass(frozen=True)
class Case:
    """One side of one comparison. `make` builds the work of one measurement: (peers, length) -> (work, tokens)."""

    group: str
    side: str  # "ours", "limit", or the peer
    make: Make
    lengths: tuple[int, ...] = (1024, 4096, 16384)


def batch_tokens(length: int) -> int:
    """The number of whole sequences that have at least TOKENS steps together."""
    return max(length, TOKENS // length * length)


def passes(build: Callable[[Path, int], Forward], tokens: Callable[[int], int]) -> Make:
    """Forward and backward, to the input too, of a layer (B, T, D) -> (B, T, D), or -> a tuple that begins with it.

    `build`: (peers, length) -> the layer; `tokens(length)` is B * T.
    """

    def make(peers: Path, length: int) -> tuple[Work, int]:
        net, number = build(peers, length), tokens(length)
        x = torch.randn(number // length, length, WIDTH, requires_grad=True)
        grad = torch.randn_like(x)

        def work() -> None:
            y = net(x)
            (y[0] if isinstance(y, tuple) else y).backward(grad)

        return work, number

    return make


# In the process of one case


def measure(case: Case, peers: Path, length: int, options: argparse.Namespace) -> Row:
    """Least CPU time in microseconds per token, and peak memory in MiB.

    After a warm-up as many passes as `options.repeats` says, but no fewer than fill LEAST and no more than fill ENOUGH.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    resource.setrlimit(resource.RLIMIT_AS, (options.memory << 30, options.memory << 30))
    try:
        work, tokens = _built(case, peers, length, options.build)
    except _Late:
        return {"status": "build"}
    _prime()
    before = _from_here()
    start = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(start + options.seconds) + 1, resource.RLIM_INFINITY))
    work()
    first = time.process_time() - start
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    times = [first] if first > SLOW else []
    while sum(times) < ENOUGH and (len(times) < options.repeats or sum(times) < LEAST):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return {"status": "ok", "us_per_token": min(times) / tokens * 1e6, "peak_mib": (_memory("VmHWM") - before) / 1024}


class _Late(Exception):
    """Building a case, which includes compiling it, has taken as long as it may."""


def _built(case: Case, peers: Path, length: int, seconds: float) -> tuple[Work, int]:
    """Builds the work of a case. Raises _Late after this much CPU time, which is that of this process alone."""
    late: list[int] = []

    def stop(signum: int, frame: object) -> None:
        late.append(signum)
        raise _Late

    before = signal.signal(signal.SIGXCPU, stop)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), resource.RLIM_INFINITY))
    try:
        return case.make(peers, length)
    except Exception as error:
        if late:  # a compiler may wrap whatever is raised within it
            raise _Late from error
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXCPU, before)


def _prime() -> None:
    """Runs a product, a transform and a backward pass, so that the code they load does not count as a case's memory."""
    x = torch.randn(512, 512, requires_grad=True)
    torch.fft.irfft(torch.fft.rfft(x @ x.T)).sum().backward()


def _from_here() -> int:
    """Forget the peak of building the case, where the system can (Linux); the memory it starts from, in KiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmHWM")


def _memory(what: str) -> int:
    """The peak of resident memory, VmHWM, in KiB."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1])


def _child(report: Connection, table: str, index: int, peers: Path, length: int, options: argparse.Namespace) -> None:
    module, name = table.split(":")
    case: Case | None = None
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            case = getattr(importlib.import_module(module), name)[index]
            assert case is not None
            row = measure(case, peers, length, options)
    except (ImportError, FileNotFoundError) as error:
        row = {"status": "error" if case is None or case.side == "ours" else "absent", "why": str(error)}
    except (MemoryError, RuntimeError) as error:
        fits = not isinstance(error, MemoryError) and "alloc" not in str(error)
        row = {"status": "error" if fits else "memory", "why": f"{type(error).__name__}: {error}"}
    except Exception as error:  # whatever a peer may raise: the case is lost, the run goes on
        row = {"status": "error", "why": f"{type(error).__name__}: {error}"}
    report.send(json.dumps(row))


# In the process that asks


def spawn(table: str, index: int, length: int, options: argparse.Namespace) -> Row:
    """`measure` in a process forked from one that has only imported torch.

    `status` is ok, memory (does not fit), time (a pass above the limit), build (making it takes too long), absent (peer
    not found) or error.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "levelfield.mixers"])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(there, table, index, options.peers, length, options))
    process.start()
    there.close()
    try:
        got = json.loads(here.recv())
    except EOFError:
        got = None
    process.join()
    if got is not None:
        return got
    ends = {-signal.SIGXCPU: "time", -signal.SIGKILL: "memory"}
    return {"status": ends.get(process.exitcode or 0, "error"), "why": f"ended with {process.exitcode}"}


def collect(
    table: str,
    wanted: list[tuple[int, Case, int]],
    options: argparse.Namespace,
    rows: list[Row],
    save: Callable[[list[Row]], object],
) -> list[Row]:
    """Measure (index in the table, case, length) until each has its rounds; `save` after every one. Returns all rows.

    Lengths that would take more than `options.seconds` a pass, going by the shorter ones, are marked, not measured.
    """
    found = {_key(row): row for row in rows}
    for turn in range(options.rounds):
        for index, case, length in wanted:
            key = (case.group, case.side, length)
            old = found.get(key)
            if old and (int(old["rounds"]) > turn or (turn and old["status"] != "ok")):
                continue
            status = foreseen(found.values(), case, length, options.seconds)
            got = {"status": status} if status else spawn(table, index, length, options)
            print(f"round {turn + 1}: {case.group:34} {case.side:28} {length:6} {said(got)}", flush=True)
            if got["status"] in ("absent", "error"):
                continue
            found[key] = {"group": case.group, "length": length, "side": case.side, "machine": machine()} | least(
                old, got
            )
            save(list(found.values()))
    return list(found.values())


def foreseen(rows: Iterable[Row], case: Case, length: int, seconds: float) -> str | None:
    """The status of a case that needs no measuring, because a shorter one failed or the growth so far says so."""
    shorter = sorted(
        (row for row in rows if _key(row)[:2] == (case.group, case.side) and int(row["length"]) < length),
        key=lambda row: int(row["length"]),
    )
    if not shorter:
        return None
    if shorter[-1]["status"] != "ok":
        return shorter[-1]["status"]
    time_of = [(int(row["length"]), float(row["us_per_token"])) for row in shorter]
    steps, cost = time_of[-1]
    power = 0.0
    if len(time_of) > 1:
        power = max(0.0, math.log(cost / time_of[-2][1]) / math.log(steps / time_of[-2][0]))
    return "time" if cost * (length / steps) ** power * length * 1e-6 > seconds else None


def least(old: Row | None, got: Row) -> Row:
    """The row with one more round: the smaller of both times and of both peaks."""
    rounds = int(old["rounds"]) + 1 if old else 1
    if got["status"] != "ok":
        return {"status": got["status"], "rounds": rounds}
    before = [old] if old and old["status"] == "ok" else []
    row = {key: min(float(r[key]) for r in [*before, got]) for key in ("us_per_token", "peak_mib")}
    time = float(f"{row['us_per_token']:.4g}")  # four digits, of a copy too, which takes hundredths
    return {"status": "ok", "us_per_token": time, "peak_mib": round(row["peak_mib"], 1), "rounds": rounds}


def machine() -> str:
    release = torch.__version__.split("+")[0]
    return f"{platform.machine()}, {os.cpu_count()} shared cores, one thread, torch {release}"


# Rows


def _key(row: Row) -> tuple[str, str, int]:
    return row["group"], row["side"], int(row["length"])


def read(path: Path) -> list[Row]:
    """The rows of a file, or none if there is no file. A row without a time and a status did not fit in memory."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        row["status"] = row.get("status") or ("ok" if row["us_per_token"] else "memory")
    return rows


def write(path: Path, rows: list[Row], order: list[str]) -> list[Row]:
    """Rows by group, as `order` has them, and length; those of other groups are dropped. Replaces the file at once."""
    rows = sorted((r for r in rows if r["group"] in order), key=lambda r: (order.index(r["group"]), int(r["length"])))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, list[str](COLUMNS), lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)
    return rows


def said(row: Row) -> str:
    """A measurement as text for the screen."""
    if row["status"] == "ok":
        return f"{float(row['us_per_token']):8.1f} us/token {float(row['peak_mib']):7.0f} MiB"
    words = {"memory": "does not fit", "time": "a pass takes too long", "absent": "left out: ", "build": BUILD}
    return words.get(row["status"], "FAILED: ") + (row.get("why", "") if row["status"] in ("absent", "error") else "")


def cell(row: Row) -> str:
    """A cell of a table: microseconds per token, and MiB in brackets."""
    if row["status"] == "ok":
        return f"{float(row['us_per_token']):.1f} ({float(row['peak_mib']):.0f})"
    return {"memory": "does not fit", "time": "too long", "build": BUILD}[row["status"]]


def add_options(parser: argparse.ArgumentParser, lengths: tuple[int, ...], name: str) -> None:
    """Parses the options that every measuring script takes; its rows and its page are called `name`."""
    parser.add_argument("--peers", type=Path, default=Path("peers"), help="folder with the peers' checkouts")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(lengths))
    parser.add_argument("--only", default="", help="measure only the groups with this text in their name")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="measure anew what is chosen, even if there are rows")
    parser.add_argument("--repeats", type=int, default=3, help="measurements per round and case, after the warm-up")
    parser.add_argument("--memory", type=int, default=12, help="address space of a case, GiB")
    parser.add_argument("--seconds", type=float, default=60, help="no pass of a case may take more CPU time")
    parser.add_argument("--build", type=float, default=120, help="CPU time that building or compiling a case may take")
    parser.add_argument("--rows", type=Path, default=Path(f"results/{name}.csv"))
    parser.add_argument("--page", type=Path, default=Path(f"docs/{name}.md"))


def kept(rows: list[Row], wanted: list[tuple[int, Case, int]], fresh: bool) -> list[Row]:
    """The rows to continue from: all or, for a fresh run, those of other cases and lengths."""
    gone = {(case.group, case.side, length) for _, case, length in wanted} if fresh else set()
    return [row for row in rows if _key(row) not in gone]
