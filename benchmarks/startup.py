"""Measures how long the command line takes to answer, here and at an earlier commit, one after the other.

    python benchmarks/startup.py                       # this working tree
    python benchmarks/startup.py --against HEAD~20     # and another commit, in a work tree of its own

Processor seconds are printed beside those of the clock, as only they are comparable on a busy machine. Each figure is
the median of seven runs, after one that is not counted.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = (("--help",), ("plan", "--help"), ("compare", "--help"), ("list", "tasks"))


def once(root: Path, words: tuple[str, ...]) -> tuple[float, float]:
    """Returns the seconds of the clock and of the processor that one command took."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "levelfield", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=root, env=environment)
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(name: str, root: Path, runs: int) -> None:
    for words in WORDS:
        once(root, words)
        clocks, processors = zip(*(once(root, words) for _ in range(runs)))
        clock, processor = statistics.median(clocks), statistics.median(processors)
        print(f"{name:<12} levelfield {' '.join(words):<16} {clock:6.2f} s   {processor:6.2f} s of the processor")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", default="", help="another commit")
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    measure("here", ROOT, arguments.runs)
    if arguments.against:
        with tempfile.TemporaryDirectory() as folder:
            git = ["git", "-C", str(ROOT), "worktree"]
            subprocess.run([*git, "add", "-q", "--detach", folder, arguments.against], check=True)
            try:
                measure(arguments.against, Path(folder), arguments.runs)
            finally:
                subprocess.run([*git, "remove", "--force", folder], check=True)


if __name__ == "__main__":
    main()
