"""Measures how long the command line takes to answer, beside the goal of each command.

    python benchmarks/startup.py                       # all: each shipped study takes seconds, and is planned twice
    python benchmarks/startup.py --only plan           # commands with this word in them
    python benchmarks/startup.py --against HEAD~20     # help and lists alone, and those of another commit after them

Each command is a process of its own, of which the second and third run count and the first does not; the least of each
time is given. Only processor seconds are comparable on a busy machine. Nothing is prepared and no run is done, but for
the report, which is of 1,000 simulated runs (`benchmarks/engines.py`). Rows replace those of the same commands in
results/speed-startup.csv, each with the load of the machine.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "results" / "speed-startup.csv"
COLUMNS = ("command", "wall_s", "cpu_s", "goal_s", "load")
WORDS = (("--help",), ("plan", "--help"), ("compare", "--help"), ("list", "tasks"))
HELP, PLAN, REPORT = 0.3, 5.0, 20.0  # seconds: the goals
DONE = 1_000  # runs that are reported


class Command(NamedTuple):
    """Words after `levelfield`, as they are run and as they are shown, and the goal in seconds."""

    words: tuple[str, ...]
    shown: str
    goal: float


class Spent(NamedTuple):
    """Seconds of the clock and of the processor."""

    wall: float
    cpu: float


def once(words: Sequence[str], root: Path, folder: Path) -> Spent:
    """Runs one command with the code of `root` in a folder."""
    before = os.times()
    command = [sys.executable, "-m", "levelfield", *words]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    after = os.times()
    return Spent(after.elapsed - before.elapsed, sum(after[2:4]) - sum(before[2:4]))


def measured(words: Sequence[str], root: Path, folder: Path, runs: int) -> Spent:
    """The least of each time, over `runs` runs after one that does not count."""
    spent = [once(words, root, folder) for _ in range(runs + 1)][1:]
    return Spent(min(each.wall for each in spent), min(each.cpu for each in spent))


def commands(folder: Path, only: str) -> Iterator[Command]:
    """Yields what has this word in it."""
    sys.path.insert(0, str(ROOT))
    from levelfield.engine.find import listing

    made = [Command(words, " ".join(words), HELP) for words in WORDS]
    for name in listing("studies"):
        words = ("plan", name, "--effort", "paper")
        made.append(Command(words, " ".join(words), PLAN))
    shown = f"report of {DONE} done runs"
    if only in shown:
        import engines

        study = str(engines.simulated(folder, DONE))
        words = ("report", study, "--effort", "smoke", "--runs-dir", f"runs{DONE}", "--report-dir", "report")
        made.append(Command(words, shown, REPORT))
    return (command for command in made if only in command.shown)


def write(found: dict[str, dict[str, str]]) -> None:
    """Replaces the rows of the commands that were measured."""
    rows = {}
    if PAGE.exists():
        with PAGE.open(newline="") as file:
            rows = {row["command"]: row for row in csv.DictReader(file)}
    with PAGE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows((rows | found).values())


def measure_all(only: str, runs: int) -> None:
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for command in commands(folder, only):
            spent = measured(command.words, ROOT, folder, runs)
            row = {"command": command.shown, "wall_s": f"{spent.wall:.2f}", "cpu_s": f"{spent.cpu:.2f}"}
            found[command.shown] = row | {"goal_s": str(command.goal), "load": f"{os.getloadavg()[0]:.1f}"}
            print(f"{command.shown:<48} {spent.wall:7.2f} s {spent.cpu:7.2f} s CPU   goal {command.goal} s", flush=True)
            write(found)


def compare(commit: str, runs: int) -> None:
    """Help and lists, here and at another commit, in a work tree of its own."""
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", folder, commit], check=True)
        try:
            for name, root in (("here", ROOT), (commit, Path(folder))):
                for words in WORDS:
                    spent = measured(words, root, root, runs)
                    print(f"{name:<12} levelfield {' '.join(words):<16} {spent.wall:6.2f} s {spent.cpu:6.2f} s CPU")
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", default="", help="another commit")
    parser.add_argument("--only", default="", help="commands with this text in them")
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.against:
        compare(arguments.against, arguments.runs)
    else:
        measure_all(arguments.only, arguments.runs)


if __name__ == "__main__":
    main()
