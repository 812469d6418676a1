"""Measures how fast samples are made: CPU time of every task of RULER, and of every one beyond it, at one length.

    python benchmarks/question_speed.py --tokenizer tokenizer.json [--length 131072] [--samples 5] [--out FILE.csv]

The time is that of the process, all its threads together, so that other work on the machine changes it less than the
clock's. The first sample of a task prepares its tables, and has a column of its own; of those after it the median
counts. Questions of SQuAD and HotpotQA are measured where --squad and --hotpot name their files, or with --stand-in on
made-up files of the official ones' size, which the column `texts` says. A row is written as soon as it is measured, in
place of the one of the same task, length and tokenizer.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

from ruler_peer import File
from stand_in_questions import stand_ins

from levelfield.ruler import BEYOND, RULER, PromptOptions, Questions, RulerTask, Sources, generate
from levelfield.spec import UserError

COLUMNS = ("task", "version", "length", "tokenizer", "cpu_ms", "per_second", "first_ms", "samples", "machine", "texts")
FLAVOUR = "sound"


def measured(task: RulerTask, length: int, tokenizer: File, options: PromptOptions, count: int) -> tuple[float, float]:
    """Returns the CPU ms of a sample, the median of so many, and those of the first one. Raises UserError."""
    samples, times = generate(task, length, tokenizer, options, count=count + 1), list[float]()
    for _ in range(count + 1):
        start = time.process_time()
        next(samples)
        times.append((time.process_time() - start) * 1e3)
    return statistics.median(times[1:]), times[0]


def put(path: Path, row: dict[str, str]) -> None:
    """Writes the row into the file, in place of an earlier one of the same task, length and tokenizer."""
    rows: list[dict[str, str]] = []
    if path.exists():
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    place = ("task", "length", "tokenizer")
    kept = [old for old in rows if any(old[name] != row[name] for name in place)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, row])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json, or one packed with xz")
    parser.add_argument("--length", type=int, default=131_072)
    parser.add_argument("--samples", type=int, default=5, help="of each task, after the first")
    parser.add_argument("--tasks", nargs="+", help="names; all unless they are given")
    parser.add_argument("--squad", type=Path)
    parser.add_argument("--hotpot", type=Path)
    parser.add_argument("--stand-in", action="store_true", help="for files that are not given, make some up")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    given = {name: str(path) for name, path in (("squad", args.squad), ("hotpot", args.hotpot)) if path}
    with tempfile.TemporaryDirectory() as folder:
        made_up = stand_ins(Path(folder)) if args.stand_in else {}
        measure(args, given, {name: path for name, path in made_up.items() if name not in given})


def measure(args: argparse.Namespace, given: dict[str, str], made_up: dict[str, str]) -> None:
    """Measures the tasks asked for and writes their rows. given, made_up: files of questions, by data set."""
    files = given | made_up
    options, tokenizer = PromptOptions(FLAVOUR, sources=Sources(**files)), File(args.tokenizer)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    for task in (*RULER, *BEYOND):
        if (args.tasks and task.name not in args.tasks) or (isinstance(task, Questions) and task.dataset not in files):
            continue
        try:
            ms, first = measured(task, args.length, tokenizer, options, args.samples)
        except UserError as error:
            print(f"{task.name}: {error}", flush=True)
            continue
        texts = "stand-in" if isinstance(task, Questions) and task.dataset in made_up else ""
        numbers = (f"{ms:.4g}", f"{1e3 / ms:.4g}", f"{first:.4g}", args.samples, machine, texts)
        row = (task.name, task.version(FLAVOUR), args.length, tokenizer.name, *numbers)
        print(f"{task.name:24} {ms:10.2f} ms {1e3 / ms:10.1f} per second; the first {first:8.1f} ms", flush=True)
        if args.out:
            put(args.out, dict(zip(COLUMNS, map(str, row))))


if __name__ == "__main__":
    main()
