"""Measures what less padding saves: the padding of an epoch, and the time of training on the same examples.

    python benchmarks/bucketing.py [FOLDER]      FOLDER holds the official reviews of IMDb, for Text

Batches drawn at random, batches of `Recipe(bucketed=True)`, and the first ones computed with `--by-length`, in turns in
one run: one thread, process CPU time of gathering, forward and backward over an epoch of a few examples, the least of
several rounds. Writes docs/speed-bucketing.md and results/speed-bucketing.csv.
"""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from levelfield.data.batches import Buckets, SplitOnDevice, order
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.model import Network
from levelfield.objectives import default_objective, heads
from levelfield.objectives.base import BatchPart, lengths_apart
from levelfield.rng import generator
from levelfield.spec import Examples, Model, Run, Task
from levelfield.studies.reach import study
from levelfield.tasks.listops import ListOps
from levelfield.tasks.text import Text
from levelfield.train import part_losses

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3
BATCH = 16
TIMED = {"conv": 384, "attention": 96, "s4": 192, "mamba": 96}  # examples in the epoch whose time is taken
KINDS = ("random", "bucketed", "by_length")
Order = Callable[[int], Tensor]
HEAD = f"""# Batches with less padding

Padding over one epoch of the whole training split, and CPU milliseconds of gathering, forward and backward per 1,000
real steps over an epoch of {TIMED["conv"]} examples (attention and Mamba: {TIMED["attention"]}, S4: {TIMED["s4"]}):
drawn at random, with `Recipe(bucketed=True)`, and drawn at random but computed with `--by-length`
([numerics.md](numerics.md)), which pads nothing. Batches have {BATCH} examples; on `reach` models and batches are those
of the study at `minutes`. One thread, least of {ROUNDS} rounds taken in turns, in one run of
`python benchmarks/bucketing.py`. Rows: `results/speed-bucketing.csv`. Use the ratios: the times belong to one machine,
and so few examples are bucketed a little less well than a pool of {Buckets.POOL} batches.

Bucketing saves about as much, and changes which examples share a batch: those of nearly one length, so a gradient is of
that length alone. `--by-length` leaves the batch as it was drawn. It pays where a batch has few and very different
lengths, and takes up to 4.2 times as long where sequences are short and nearly all lengths differ.

| task | model | padding, random | padding, bucketed | ms, random | bucketed | times faster | by length | times faster |
|---|---|---|---|---|---|---|---|---|
"""


def at_random(examples: Examples, size: int) -> tuple[Order, int]:
    """The order of batches of a size, and its number of steps in an epoch."""
    return lambda step: order(0, step, batch=size, count=len(examples)), math.ceil(len(examples) / size)


def bucketed(examples: Examples, size: int) -> tuple[Order, int]:
    buckets = Buckets(0, examples, size)
    buckets.order(0)
    return buckets.order, buckets.ends[1]


def padding(examples: Examples, chosen: tuple[Order, int]) -> float:
    """The share of an epoch's positions that are padding."""
    lengths = torch.from_numpy(np.ascontiguousarray(examples.lengths))
    real = computed = 0
    for step in range(chosen[1]):
        batch = lengths[chosen[0](step)]
        real, computed = real + int(batch.sum()), computed + len(batch) * int(batch.max())
    return 1 - real / computed


def epoch_time(net: Network, task: Task, split: SplitOnDevice, chosen: tuple[Order, int], apart: bool) -> float:
    """CPU milliseconds per 1,000 real steps of the sequences. apart: each length of a batch is computed by itself."""
    objective, real, start = default_objective(task), 0, time.process_time()
    for step in range(chosen[1]):
        batch = split.gather(chosen[0](step))
        whole = BatchPart(
            batch, objective.model_input(batch, task.input, generator(0, step)), [1.0] * len(objective.parts)
        )
        for part in lengths_apart(whole, objective) if apart else [whole]:
            part_losses(net, part, objective, task.input).sum().backward()
        real += int(batch.lengths.sum())
    return 1e6 * (time.process_time() - start) / real


def case(name: str, task: Task, examples: Examples, model: Model, size: int) -> dict[str, object]:
    few = examples.take(np.arange(TIMED[model.mixers[0].label]))
    split = SplitOnDevice(few, torch.device("cpu"))
    net = Network(model, task.input, heads(default_objective(task), task), mask_flag=False, seed=0)
    least = dict.fromkeys(KINDS, math.inf)
    for _ in range(ROUNDS):
        for kind in KINDS:
            chosen = bucketed(few, size) if kind == "bucketed" else at_random(few, size)
            least[kind] = min(least[kind], epoch_time(net, task, split, chosen, apart=kind == "by_length"))
    return {
        "task": name,
        "model": model.label,
        "padding_random": round(padding(examples, at_random(examples, size)), 4),
        "padding_bucketed": round(padding(examples, bucketed(examples, size)), 4),
        "ms_random": round(least["random"], 3),
        "ms_bucketed": round(least["bucketed"], 3),
        "faster": round(least["random"] / least["bucketed"], 2),
        "ms_by_length": round(least["by_length"], 3),
        "faster_by_length": round(least["random"] / least["by_length"], 2),
    }


@cache
def training(task: Task, source: Path | None) -> Examples:
    return task.build(source)["train"]


def certified() -> list[tuple[Run, int]]:
    """The runs of the study `reach` at `minutes` at its longest range, of some of its models, each with its batch."""
    runs = [run for run in study.runs("minutes") if run.seed == 0 and run.model.mixers[0].label in TIMED]
    longest = max(run.task.max_length for run in runs)
    chosen = {run.model.mixers[0].label: run for run in runs if run.task.max_length == longest}
    return [(run, run.protocol.phases[-1].recipe.batch) for run in chosen.values()]


def line(row: dict[str, object]) -> str:
    shares = [f"{100 * float(str(row[key])):.1f} %" for key in ("padding_random", "padding_bucketed")]
    rest = [str(row[key]) for key in list(row)[4:]]
    return f"| {' | '.join([str(row['task']), str(row['model']), *shares, *rest])} |"


def main() -> None:
    torch.set_num_threads(1)
    usual = Model((Conv(5, 64),), 2, 32), Model((Attention(heads=2),), 2, 32)
    tasks: list[tuple[str, Task, Path | None]] = [
        ("ListOps, 500 to 2,000 steps", ListOps(train=20_000), None),
        ("ListOps, 10 to 48 steps", ListOps(minimum=10, length=48, max_depth=3, max_args=5, train=20_000), None),
    ]
    if len(sys.argv) > 1:
        tasks.append(("Text, up to 4,096 bytes", Text(), Path(sys.argv[1])))
    asked = [(name, task, source, model, BATCH) for name, task, source in tasks for model in usual]
    asked += [("reach, ranges 4 to 256", run.task, None, run.model, size) for run, size in certified()]
    rows = list[dict[str, object]]()
    for name, task, source, model, size in asked:
        rows.append(case(name, task, training(task, source), model, size))
        print(line(rows[-1]), flush=True)
    with (ROOT / "results" / "speed-bucketing.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (ROOT / "docs" / "speed-bucketing.md").write_text(HEAD + "\n".join(line(row) for row in rows) + "\n")


if __name__ == "__main__":
    main()
