"""Measures ListOps against the official generator: CPU time per kept expression, summed over threads, in one process.

    git clone https://github.com/google-research/long-range-arena PEERS/long-range-arena
    python benchmarks/generators.py --peers PEERS [--samples 300] [--rounds 7] [--out results/speed-generators.csv]

Both sides do the whole work: draw trees, keep those in the window, drop repeated ones, and give tokens and label. The
official file's own functions are called, without its TensorFlow logging. Rounds alternate between the two, and each
number is the least of its rounds, because other work on the machine can only add time.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from levelfield.tasks.listops import SYMBOLS, ListOps

COLUMNS = ("generator", "work", "implementation", "cpu_ms", "cpu_ms_median", "rounds", "samples", "machine")
OFFICIAL = Path("long-range-arena") / "lra_benchmarks" / "data" / "listops.py"


def official(peers: Path) -> ModuleType:
    """The peer's module, with stand-ins for the two packages that only its command line and its files need."""

    def ignore(*arguments: Any, **named: Any) -> None:
        return None

    stubs = {name: ModuleType(name) for name in ("absl", "absl.app", "absl.flags", "tensorflow.compat.v1")}
    flags = stubs["absl.flags"]
    vars(flags).update(DEFINE_string=ignore, DEFINE_integer=ignore, FLAGS=None)
    vars(stubs["absl"]).update(app=stubs["absl.app"], flags=flags)
    parents = {"tensorflow": ModuleType("tensorflow"), "tensorflow.compat": ModuleType("tensorflow.compat")}
    vars(parents["tensorflow.compat"]).update(v1=stubs["tensorflow.compat.v1"])
    sys.modules.update(stubs | parents)
    spec = importlib.util.spec_from_file_location("official_listops", peers / OFFICIAL)
    if spec is None or spec.loader is None or not (peers / OFFICIAL).exists():
        raise SystemExit(f"{peers / OFFICIAL} does not exist: clone google-research/long-range-arena into {peers}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def theirs(module: ModuleType, count: int, task: ListOps) -> list[tuple[str, int]]:
    """Runs what the official main() does between reading its flags and writing its files."""
    data: set[Any] = set()
    while len(data) < count:
        tree, length = module.generate_tree(1, task.max_depth, task.max_args)
        if task.minimum < length < task.length:
            data.add(tree)
    return [(module.to_string(tree), module.to_value(tree)) for tree in data]


def agree(rows: list[tuple[str, int]]) -> None:
    """Checks the peer's labels by our evaluator, so that both are known to do the same work."""
    from levelfield.tasks._listops.expressions import survey, tokenize

    for text, label in rows:
        out = np.zeros(len(text), np.uint8)
        size = tokenize(np.frombuffer(text.encode(), np.uint8), out)
        assert survey(out[:size], np.array([0, size]))[0][0] == label


def cpu_ms(work: Callable[[], object], samples: int) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) / samples * 1e3


def generation(peers: Path, samples: int, rounds: int) -> list[dict[str, Any]]:
    module = official(peers)
    base = ListOps(val=1, test=1)
    base.build(None)  # compiles
    random.seed(0)
    agree(theirs(module, 20, base))
    times: dict[str, list[float]] = {"levelfield": [], "official": []}
    for i in range(rounds):
        times["official"].append(cpu_ms(lambda: theirs(module, samples, base), samples))
        task = replace(base, train=20 * samples, seed=i)
        times["levelfield"].append(cpu_ms(lambda task=task: task.build(None), task.train))
    counts = {"levelfield": 20 * samples, "official": samples}
    return [row("generate", name, t, counts[name]) for name, t in times.items()]


def other_work(rounds: int) -> list[dict[str, Any]]:
    """Measures reading an official file, and permuting a batch of 32."""
    task = replace(ListOps(val=1, test=1), train=256)
    examples = task.build(None)["train"]
    x = torch.zeros((32, int(examples.lengths[:32].max())), dtype=torch.uint8)
    for i in range(32):
        x[i, : examples.lengths[i]] = torch.from_numpy(examples.sequence(i))
    lengths, generator = torch.from_numpy(examples.lengths[:32]), torch.Generator().manual_seed(0)
    task.augment(x, lengths, generator)
    permute = [cpu_ms(lambda: [task.augment(x, lengths, generator) for _ in range(20)], 640) for _ in range(rounds)]
    words = [" ".join(SYMBOLS[s] for s in examples.sequence(i)).encode() for i in range(len(examples))]
    lines = [text + b"\t%d" % label for text, label in zip(words, examples.y)]
    from levelfield.tasks._listops.release import _parse

    read = [cpu_ms(lambda: [_parse(line, "") for line in lines], len(lines)) for _ in range(rounds)]
    return [row("permute operands", "levelfield", permute, 640), row("read a line", "levelfield", read, len(lines))]


def row(work: str, implementation: str, times: list[float], samples: int) -> dict[str, Any]:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    best, middle = (float(f"{f(times):.4g}") for f in (min, statistics.median))
    return dict(zip(COLUMNS, ("listops", work, implementation, best, middle, len(times), samples, machine)))


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Replaces the rows of the same generator and keeps the others'."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as file:
            kept = [r for r in csv.DictReader(file) if r["generator"] != rows[0]["generator"]]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list[str](COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept + rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", type=Path, required=True, help="folder with a checkout named long-range-arena")
    parser.add_argument("--samples", type=int, default=300, help="expressions of the official generator per round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("results/speed-generators.csv"))
    options = parser.parse_args()
    rows = generation(options.peers, options.samples, options.rounds) + other_work(options.rounds)
    write(options.out, rows)
    for r in rows:
        print(f"{r['work']:18} {r['implementation']:12} {r['cpu_ms']:8.4f} ms, median {r['cpu_ms_median']:.4f}")
    print(f"official / levelfield: {rows[1]['cpu_ms'] / rows[0]['cpu_ms']:.0f}")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
