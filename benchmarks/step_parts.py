"""Measures what a training step spends its time on: linear maps, other products, attention, loops, casts, the rest.

    python benchmarks/step_parts.py [MIXER ...]      # every mixer where none is named; goes on from the rows there are

The steps are those of `train.py` at 1,024 steps of sequence, in float32 and in bf16, one thread: torch's profiler adds
up the time of each operator by itself over one step, after two that are not counted. Use the shares, for absolute
numbers belong to the machine. Writes results/speed-step-parts.csv, which the page of `train.py` reads.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from train_cases import SIDES, ours

from levelfield.mixers import NAMES

ROWS = Path(__file__).resolve().parent.parent / "results" / "speed-step-parts.csv"
LENGTH = 1024
KINDS = {"float32": "ours", "bf16": "ours bf16"}
PARTS = {
    "linear maps": ("aten::mm", "aten::addmm", "mkldnn::"),
    "batched products": ("aten::bmm", "aten::baddbmm", "aten::addbmm"),
    "attention": ("aten::_scaled_dot_product", "aten::_flash_attention"),
    "loops": ("levelfield::",),
    "transforms": ("aten::_fft",),
    "casts and copies": ("aten::copy_", "aten::cat", "aten::_to_copy", "aten::clone"),
    "optimizer": ("aten::_fused_adamw", "aten::_foreach"),
}
REST = "rest"
COLUMNS = ("mixer", "precision", "ms", *PARTS, REST)


def part_of(operator: str) -> str:
    """Returns the part that an operator belongs to, by how its name begins."""
    return next((part for part, names in PARTS.items() if operator.startswith(names)), REST)


def measure(label: str, precision: str) -> dict[str, object]:
    """Returns the milliseconds of one step, and the share of each part in it."""
    work, _ = ours(label, SIDES[KINDS[precision]])(Path(), LENGTH)
    for _ in range(2):
        work()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        work()
    spent = dict.fromkeys((*PARTS, REST), 0.0)
    for event in found.key_averages():
        spent[part_of(event.key)] += event.self_cpu_time_total / 1e3
    total = sum(spent.values())
    shares = {part: round(time / total, 4) for part, time in spent.items()}
    return {"mixer": label, "precision": precision, "ms": round(total, 1), **shares}


def main() -> None:
    torch.set_num_threads(1)
    names = sys.argv[1:] or NAMES
    rows = list(csv.DictReader(ROWS.open())) if ROWS.exists() else []
    known = {(row["mixer"], row["precision"]) for row in rows}
    for label in names:
        for precision in KINDS:
            if sys.argv[1:] or (label, precision) not in known:
                rows = [row for row in rows if (row["mixer"], row["precision"]) != (label, precision)]
                rows.append(measure(label, precision))
                print(*rows[-1].values(), flush=True)
                rows.sort(key=lambda row: (NAMES.index(str(row["mixer"])), str(row["precision"]) != "float32"))
                with ROWS.open("w", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS)
                    writer.writeheader()
                    writer.writerows(rows)


if __name__ == "__main__":
    main()
