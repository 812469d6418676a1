"""Measures RULER's generation, ours against NVIDIA's: CPU time per sample in one process, with one tokenizer.

    git clone https://github.com/NVIDIA/RULER PEERS/RULER
    python benchmarks/ruler_generate.py --peers PEERS --tokenizer tokenizer.json [--length 131072] [--out FILE.csv]

The official time is that of its sample loop alone: neither the search for the size before it nor the 15 s its needle
script needs to start. Ours is that of all samples after the first, which prepares tables; that first one is given too.
Both make samples of the same variant (`official`) from the same essays; ours also makes those of `sound`.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import time
from pathlib import Path
from typing import Any

from ruler_peer import File, Official

from levelfield.ruler import PromptOptions, generate, named

TASKS = ("niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multikey_3", "vt", "cwe", "fwe")
COLUMNS = ("task", "length", "tokenizer", "implementation", "flavour", "cpu_ms", "first_ms", "samples", "machine")


def ours(task: str, length: int, tokenizer: File, flavour: str, count: int) -> tuple[float, float]:
    """CPU ms per sample, the least over ten runs, and those of the first sample, which builds the tables."""
    start = time.process_time()
    samples = generate(named(task), length, tokenizer, PromptOptions(flavour), count=count + 1)
    next(samples)
    first = time.process_time() - start
    times: list[float] = []
    for _ in range(10):
        start = time.process_time()
        for _ in range(count // 10):
            next(samples)
        times.append((time.process_time() - start) / (count // 10))
    return min(times) * 1e3, first * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", type=Path, required=True, help="folder with a checkout named RULER")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json, or one packed with xz")
    parser.add_argument("--length", type=int, default=131_072)
    parser.add_argument("--samples", type=int, default=3, help="of the official generator; of ours 20 times as many")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    tokenizer = File(args.tokenizer)
    official = Official(args.peers / "RULER", tokenizer)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    rows: list[dict[str, Any]] = []
    for task in args.tasks:
        least = 0.0
        for name, flavour in (("official", "official"), ("levelfield", "official"), ("levelfield", "sound")):
            if name == "official":
                ms, first = min(official.samples(task, args.length, args.samples)[1]) * 1e3, 0.0
                least = ms
            else:
                ms, first = ours(task, args.length, tokenizer, flavour, 20 * args.samples)
            values = (
                task,
                args.length,
                tokenizer.name,
                name,
                flavour,
                f"{ms:.4g}",
                f"{first:.4g}",
                args.samples,
                machine,
            )
            rows.append(dict(zip(COLUMNS, values)))
            print(f"{task:18} {name:10} {flavour:8} {ms:10.2f} ms  x{least / ms:.0f}", flush=True)
    if args.out:
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(COLUMNS), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
