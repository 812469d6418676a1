"""Measures what data cost: the share of a training step that goes into gathering its batch.

    python benchmarks/gather.py

Recipe shapes on generated stand-ins for their data, one thread, process CPU time, the least of several rounds of both
in one run. Writes docs/speed-gather.md and results/speed-gather.csv.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from levelfield.data.batches import SplitOnDevice, order
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.model import Network
from levelfield.objectives import default_objective, heads
from levelfield.objectives.base import BatchPart
from levelfield.rng import generator
from levelfield.spec import Block, Examples, Model, Task
from levelfield.tasks.copying import Copying
from levelfield.tasks.image import Image
from levelfield.tasks.induction import Induction
from levelfield.tasks.listops import ListOps
from levelfield.tasks.mqar import MQAR
from levelfield.train import part_losses

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 5
HEAD = """# Speed of the data path

CPU time of gathering a batch, and of a whole training step (forward and backward) that contains it, one thread, least
of five, in one run of `python benchmarks/gather.py`. Rows: `results/speed-gather.csv`.

| recipe | gather, ms | step, ms | share |
|---|---|---|---|
"""


def equal(count: int, length: int) -> Examples:
    rng = np.random.default_rng(0)
    return Examples.of_equal_length(rng.integers(0, 15, (count, length), dtype=np.uint8), np.zeros(count, np.int64))


def ragged(count: int) -> Examples:
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 15, n, dtype=np.uint8) for n in rng.integers(501, 2000, count)]
    return Examples.of_sequences(sequences, np.zeros(count, np.int64))


def generated(task: Task) -> Examples:
    return task.build(None)["train"]


def least(work: Callable[[int], object]) -> float:
    """CPU seconds."""
    work(0)
    found = []
    for round_ in range(ROUNDS):
        start = time.process_time()
        work(round_)
        found.append(time.process_time() - start)
    return min(found)


def case(name: str, task: Task, examples: Examples, model: Model, batch: int) -> dict[str, object]:
    split = SplitOnDevice(examples, torch.device("cpu"))
    objective = default_objective(task)
    net = Network(model, task.input, heads(objective, task), mask_flag=False, seed=0)

    def gather(step: int) -> object:
        return split.gather(order(0, step, batch=batch, count=len(split)))

    def train(step: int) -> None:
        one = split.gather(order(0, step, batch=batch, count=len(split)))
        shown = objective.model_input(one, task.input, generator(0, step))
        part_losses(net, BatchPart(one, shown), objective, task.input).sum().backward()

    data, whole = least(gather), least(train)
    return {"case": name, "gather_ms": round(1e3 * data, 3), "step_ms": round(1e3 * whole, 1), "share": data / whole}


def percent(row: dict[str, object]) -> str:
    return f"{100 * float(str(row['share'])):.2f} %"


def main() -> None:
    torch.set_num_threads(1)
    transformer = Model((Attention(heads=4),), 3, 64, positions="sinusoidal", block=Block(feedforward=128))
    conv = Model((Conv(5, 64),), 2, 32)
    rows = [
        case("Image, Transformer of amos2025 table 1, batch 8", Image(), equal(45_000, 1024), transformer, 8),
        case("Image, smallest convolution here, batch 64", Image(), equal(45_000, 1024), conv, 64),
        case("ListOps, smallest convolution here, batch 32, ragged", ListOps(), ragged(20_000), conv, 32),
        *(
            case(f"{name}, smallest convolution here, batch {batch}", task, generated(task), conv, batch)
            for name, task, batch in (
                ("MQAR, 64 steps", MQAR(train=20_000), 64),
                ("MQAR, 64 steps, 64 symbols", MQAR(keys=32, values=31, train=20_000), 32),
                ("Copying, 120 steps", Copying(train=20_000), 32),
                ("Selective copying, 4,096 steps", Copying(14, 16, 4_064, "scattered", "markers", train=2_000), 8),
                ("Induction, 256 steps", Induction(train=20_000), 8),
            )
        ),
    ]
    with (ROOT / "results" / "speed-gather.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    cells = [[str(r["case"]), str(r["gather_ms"]), str(r["step_ms"]), percent(r)] for r in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    (ROOT / "docs" / "speed-gather.md").write_text(HEAD + "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
