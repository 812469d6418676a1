"""Measures how much memory asking long questions takes: the peak of a process that generates them, or also asks.

    python benchmarks/served_memory.py [--length 1048576] [--count 8] [--tokenizer FILE] [--out FILE.csv]

Each row is of one task, or of several with a + between them, in a process of its own. `generate` makes samples one
after the other and keeps none. `ask` is all of `levelfield ruler` against a server that reads a prompt and says the
same to each. A process that asks holds the ids of all samples of a task and length, which it puts in order, so their
number counts. `before_mib` is the process with all its imports.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

from served_requests import append, machine, serve

from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.served.asking import Served, evaluate
from levelfield.longcontext.served.client import Address, Client
from levelfield.longcontext.served.lengths import tokenizer_here
from levelfield.longcontext.served.way import Way
from levelfield.ruler import generate, named

TASKS = ("niah_single_2", "niah_multikey_3", "vt", "cwe", "fwe", "walks_bfs", "stories_1", "requests_4")
SIDES = ("generate", "ask")
SIZES = ("before_mib", "peak_mib")
COLUMNS = ("task", "side", "length", "tokenizer", "samples", "at_once", *SIZES, "cpu_s", "machine")
MIB = 1024.0


def resident(which: str) -> float:
    """Reads this process's memory in MiB. which: "VmRSS" for now, "VmHWM" for the highest until now."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / MIB for line in file if line.startswith(which))


def work(side: str, args: argparse.Namespace, task: str, port: int, found: multiprocessing.Queue[Any]) -> None:
    """Generates or asks in this process, and sends what it took: memory before, at most, and CPU seconds."""
    tokenizer = tokenizer_here(args.tokenizer)
    tasks = tuple(map(named, task.split("+")))
    before, began = resident("VmRSS"), time.process_time()
    if side == "generate":
        for each in tasks:
            for _ in generate(each, args.length, tokenizer, count=args.count):
                pass
    else:
        address = Address.of(f"http://127.0.0.1:{port}/v1")
        evaluation = Evaluation(tasks, (args.length,), count=args.count)
        with tempfile.TemporaryDirectory() as folder, Client(address, None, connections=args.at_once) as client:
            served = Served(client, "none", Way("text"), tokenizer)
            evaluate(served, [served.put(evaluation)], Path(folder), args.at_once)
    found.put((before, resident("VmHWM"), time.process_time() - began, tokenizer.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--length", type=int, default=1_048_576)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--tokenizer", default="approximate")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    fresh = multiprocessing.get_context("spawn")
    port, found = fresh.Queue(), fresh.Queue()
    server = fresh.Process(target=serve, args=(args.at_once, 0.0, port), daemon=True)
    server.start()
    at, rows = port.get(), list[tuple[Any, ...]]()
    for task in args.tasks:
        for side in SIDES:
            process = fresh.Process(target=work, args=(side, args, task, at, found))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"{task} {side} failed: see above.")
            before, peak, cpu, name = found.get()
            sizes = (f"{n:.4g}" for n in (before, peak))
            asked_at_once = args.at_once if side == "ask" else ""
            rows.append((task, side, args.length, name, args.count, asked_at_once, *sizes, f"{cpu:.3g}", machine()))
            print(dict(zip(COLUMNS, rows[-1])), flush=True)
    server.terminate()
    append(args.out, COLUMNS, rows)


if __name__ == "__main__":
    main()
