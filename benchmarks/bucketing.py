"""Measures what batches of similar length save: padding over an epoch, and the time of training on the same examples.

    python benchmarks/bucketing.py [FOLDER]      FOLDER holds the official reviews of IMDb, for Text

Batches drawn at random and batches of `Recipe(bucketed=True)`, in turns in one run: one thread, process CPU time of
gathering, forward and backward over an epoch of a few examples, the least of several rounds. Writes
docs/speed-bucketing.md and results/speed-bucketing.csv.
"""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from levelfield.data.batches import Buckets, SplitOnDevice, order
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.model import Network
from levelfield.objectives import default_objective, heads
from levelfield.rng import generator
from levelfield.spec import Examples, Model, Task
from levelfield.tasks.listops import ListOps
from levelfield.tasks.text import Text
from levelfield.train import training_loss

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3
BATCH = 16
TIMED = {"conv": 384, "attention": 96}  # examples in the epoch whose time is taken
Order = Callable[[int], Tensor]
HEAD = f"""# Batches of like lengths

Padding over one epoch of the whole training split, and CPU time of gathering, forward and backward per 1,000 real steps
over an epoch of {TIMED["conv"]} examples (attention: {TIMED["attention"]}), at batch {BATCH}: drawn at random, and with
`Recipe(bucketed=True)`. One thread, least of {ROUNDS} rounds taken in turns, in one run of
`python benchmarks/bucketing.py`. Rows: `results/speed-bucketing.csv`. Use the ratios: the times belong to one machine,
and so few examples are bucketed a little less well than a pool of {Buckets.POOL} batches.

| task | model | padding, random | padding, bucketed | ms per 1,000 steps, random | bucketed | times faster |
|---|---|---|---|---|---|---|
"""


def at_random(examples: Examples) -> tuple[Order, int]:
    """The order of batches, and its number of steps in an epoch."""
    return lambda step: order(0, step, batch=BATCH, count=len(examples)), math.ceil(len(examples) / BATCH)


def bucketed(examples: Examples) -> tuple[Order, int]:
    buckets = Buckets(0, examples, BATCH)
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


def epoch_time(net: Network, task: Task, split: SplitOnDevice, chosen: tuple[Order, int]) -> float:
    """CPU milliseconds per 1,000 real steps of the sequences."""
    objective, real, start = default_objective(task), 0, time.process_time()
    for step in range(chosen[1]):
        batch = split.gather(chosen[0](step))
        training_loss(net, batch, objective, task.input, generator(0, step)).backward()
        real += int(batch.lengths.sum())
    return 1e6 * (time.process_time() - start) / real


def case(name: str, task: Task, examples: Examples, model: Model) -> dict[str, object]:
    few = examples.take(np.arange(TIMED[model.label]))
    split = SplitOnDevice(few, torch.device("cpu"))
    net = Network(model, task.input, heads(default_objective(task), task), mask_flag=False, seed=0)
    least = {"random": math.inf, "bucketed": math.inf}
    for _ in range(ROUNDS):
        for kind, chosen in (("random", at_random(few)), ("bucketed", bucketed(few))):
            least[kind] = min(least[kind], epoch_time(net, task, split, chosen))
    return {
        "task": name,
        "model": model.label,
        "padding_random": round(padding(examples, at_random(examples)), 4),
        "padding_bucketed": round(padding(examples, bucketed(examples)), 4),
        "ms_random": round(least["random"], 3),
        "ms_bucketed": round(least["bucketed"], 3),
        "faster": round(least["random"] / least["bucketed"], 2),
    }


def line(row: dict[str, object]) -> str:
    shares = [f"{100 * float(str(row[key])):.1f} %" for key in ("padding_random", "padding_bucketed")]
    rest = [str(row[key]) for key in ("ms_random", "ms_bucketed", "faster")]
    return f"| {' | '.join([str(row['task']), str(row['model']), *shares, *rest])} |"


def main() -> None:
    torch.set_num_threads(1)
    tasks: list[tuple[str, Task, Path | None]] = [
        ("ListOps, 500 to 2,000 steps", ListOps(train=20_000), None),
        ("ListOps, 10 to 48 steps", ListOps(minimum=10, length=48, max_depth=3, max_args=5, train=20_000), None),
    ]
    if len(sys.argv) > 1:
        tasks.append(("Text, up to 4,096 bytes", Text(), Path(sys.argv[1])))
    models = Model((Conv(5, 64),), 2, 32), Model((Attention(heads=2),), 2, 32)
    rows = []
    for name, task, source in tasks:
        examples = task.build(source)["train"]
        rows += [case(name, task, examples, model) for model in models]
        print("\n".join(line(row) for row in rows[-len(models) :]), flush=True)
    with (ROOT / "results" / "speed-bucketing.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (ROOT / "docs" / "speed-bucketing.md").write_text(HEAD + "\n".join(line(row) for row in rows) + "\n")


if __name__ == "__main__":
    main()
