"""Measures what executing costs besides training: the lease of a run, an engine's overhead, and studies of many runs.

    python benchmarks/engines.py                  the lease, and plan, claim, status and report of many simulated runs
    python benchmarks/engines.py local slurm ray  how a study of 64 runs of a second scales from one worker to two, on
                                                  engines that are here
    python benchmarks/engines.py 10000            the lease, and studies of so many runs alone

Slurm is a real one of two nodes, started on this machine (`tests/support/real_slurm.py`); Ray starts one here, too.
The overhead of an engine is (wall time x workers - the runs' own time) / runs, imports and start included, and its
first step is that of the run which began first, counted from the start of the command; all else is given in CPU time,
and of whole commands also the most memory that they took. Rows are added to
results/speed-engines.csv, each with the load of the machine, which wall times are longer by.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests" / "support")]

import toys  # noqa: E402

from levelfield.engine import status  # noqa: E402
from levelfield.engine.find import Source, choose  # noqa: E402
from levelfield.files import locked, to_line  # noqa: E402
from levelfield.report import query  # noqa: E402
from levelfield.runs import store  # noqa: E402
from levelfield.runs.claims import claim  # noqa: E402
from levelfield.runs.results import StudyIndex  # noqa: E402

PAGE = ROOT / "results" / "speed-engines.csv"
COLUMNS: tuple[str, ...] = ("what", "size", "wall_s", "cpu_s", "per_run_s", "load", "peak_mb")
RUNS, STEPS, PAUSE, WORKERS = 64, 50, 0.02, (1, 2)
SIZES = (100, 1_000, 10_000, 100_000)
WITH_PEAK = """
import sys
from pathlib import Path

from levelfield.cli.app import main

try:
    main(sys.argv[2:])
finally:
    if (status := Path("/proc/self/status")).exists():
        words = status.read_text().split()
        Path(sys.argv[1]).write_text(words[words.index("VmHWM:") + 1])
"""
"""A command that leaves its peak memory in KiB, where there is a /proc. What `wait4` says is no less than the memory of
this process, which a child has until it begins the command."""


@dataclass(frozen=True)
class Cost:
    """Seconds on the wall, and of processors, those of processes that were started included."""

    wall: float
    cpu: float


def timed(work: Callable[[], object]) -> Cost:
    begun = os.times()
    work()
    ended = os.times()
    return Cost(ended.elapsed - begun.elapsed, sum(ended[:4]) - sum(begun[:4]))


def note(what: str, size: int, cost: Cost, per_run: float, peak: int | None = None) -> None:
    """Adds a row, and prints it. per_run: seconds for each run. peak: bytes of memory that a command took at most."""
    row = {"what": what, "size": str(size), "wall_s": f"{cost.wall:.2f}", "cpu_s": f"{cost.cpu:.2f}"}
    row |= {"per_run_s": f"{per_run:.6f}", "load": f"{os.getloadavg()[0]:.1f}"}
    row |= {} if peak is None else {"peak_mb": f"{peak / 1e6:.0f}"}
    earlier = list(csv.DictReader(PAGE.read_text().splitlines())) if PAGE.exists() else []
    with PAGE.open("w", newline="") as file:  # whole, for rows of earlier versions have fewer columns
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*earlier, row])
    memory = "" if peak is None else f"  {peak / 1e6:6.0f} MB"
    print(
        f"{what:<28} {size:>7}  {cost.wall:8.2f} s  {cost.cpu:8.2f} s CPU  {per_run:10.6f} s a run{memory}", flush=True
    )


def lease(folder: Path, count: int = 200) -> None:
    """Claim, commit of five staged files and release, beside staging alone, and beside the lock that it replaced."""

    def files(where: Path) -> None:
        where.mkdir(parents=True, exist_ok=True)
        for name in ("weights", "scores", "rows", "ledger", "done.json"):
            (where / name).write_text(name)

    def leased(number: int) -> None:
        with claim(folder / "leased" / str(number)) as mine:
            assert mine is not None
            files(mine.staging)
            mine.commit()

    def flocked(number: int) -> None:
        where = folder / "flocked" / str(number)
        where.mkdir(parents=True)
        with locked(where / ".claim"):
            files(where)

    for what, one in (("lease of a run", leased), ("flock of a run", flocked)):
        cost = timed(lambda one=one: [one(number) for number in range(count)])
        note(what, count, cost, cost.cpu / count)


def simulated(folder: Path, size: int) -> Path:
    """Writes a study of so many runs, and what each of them left when it was done.

    Files are written plainly: an atomic write of each, which real runs take, would last longer than what is measured.
    """
    path = folder / f"study{size}.py"
    toys.write(path, runs=size)
    runs = choose(Source(str(path)).load(), "smoke")
    out = folder / f"runs{size}"
    store.write_index(out, StudyIndex.of("toys", "smoke", runs))
    phase = {"steps": 3, "examples": 24, "tokens": 144, "flops": 1e6, "wall_s": 1.0, "stopped": ""}
    for run in runs:
        where = store.directory(out, run)
        where.mkdir()
        row = {"run": run.id, "task": "toy", "model": "trap", "protocol": "scratch", "seed": run.seed, "split": "test"}
        row |= {"metric": "accuracy", "unit": "fraction", "value": 0.5, "n": 16}
        (where / store.ROWS).write_text(to_line(row))
        (where / store.LEDGER).write_text(json.dumps({**phase, "parameters": 10, "device": "cpu", "phases": [phase]}))
        (where / store.DONE).write_text(json.dumps({"version": "0"}))
    return path


def passes(path: Path, out: Path, size: int) -> None:
    """The time of each pass over all runs of a study, in a process that has imported everything."""
    runs = choose(Source(str(path)).load(), "smoke")
    work: dict[str, Callable[[], object]] = {
        "load the study": lambda: choose(Source(str(path)).load(), "smoke"),
        "what is done": lambda: [store.complete(store.directory(out, run)) for run in runs],
        "write the index": lambda: store.write_index(out, StudyIndex.of("toys", "smoke", runs)),
        "status": lambda: status.study_status(out, "toys", "smoke"),
        "read all rows": lambda: store.read(out, "toys", "smoke"),
        "results, without a query": lambda: query.collect(out),
    }
    for what, one in work.items():
        cost = timed(one)
        note(what, size, cost, cost.cpu / size)


def commands(path: Path, out: Path, size: int) -> None:
    """The time and peak memory of the commands that go over all runs of a study, start and imports included."""
    folder = out.parent
    study = (str(path), "--effort", "smoke")
    words = {
        "plan": (*study, "--data", str(folder / "data")),
        "status": study,
        "results": ("SELECT count(*) FROM rows",),
        "report": (*study, "--report-dir", str(folder / "report")),
    }
    kept = folder / "peak"
    for command, given in words.items():
        called = [sys.executable, "-c", WITH_PEAK, str(kept), command, *given, "--runs-dir", str(out)]
        cost = timed(lambda called=called: _quiet(called, folder, os.environ))
        peak = 1024 * int(kept.read_text()) if kept.exists() else None
        note(f"levelfield {command}", size, cost, cost.cpu / size, peak)


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    import real_slurm

    with real_slurm.cluster(folder / "slurm") as environment:
        yield environment


def scaling(engine: str, folder: Path) -> None:
    """A study of runs that sleep for most of a second each, with one worker and with two.

    Its runs sleep so that two of them never wait for one core, and what is measured is the engine.
    """
    for workers in WORKERS:
        here = folder / f"{engine}{workers}"
        here.mkdir()
        toys.write(here / "toys.py", runs=RUNS, steps=STEPS, pause=PAUSE)
        words = [sys.executable, "-m", "levelfield", "run", "toys.py", "--effort", "smoke", "--device", "cpu"]
        words += ["--engine", engine, "--jobs", str(workers)]
        with slurm(here) if engine == "slurm" else nullcontext({}) as environment:
            start = time.time()
            cost = timed(lambda words=words, here=here, more=environment: _quiet(words, here, os.environ | more))
        ended = {path: path.stat().st_mtime for path in here.glob("runs/toy-*/ledger.json")}
        own = {path: json.loads(path.read_text())["wall_s"] for path in ended}
        what = f"engine {engine}, {workers} {'worker' if workers == 1 else 'workers'}"
        note(what, len(own), cost, (cost.wall * workers - sum(own.values())) / len(own))
        first = min(ended[path] - own[path] for path in ended) - start
        note(f"{what}: first step", 1, Cost(first, 0), first)
        print(f"{what}: {sum(own.values()):.1f} s of runs; share of the time of workers: ", end="")
        print(f"{sum(own.values()) / cost.wall / workers:.0%}", flush=True)


def _quiet(words: list[str], folder: Path, environment: dict[str, str] | os._Environ[str]) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(words, cwd=folder, env={**environment, "PYTHONPATH": path}, check=True, stdout=subprocess.DEVNULL)


def main(words: list[str]) -> None:
    sizes = [int(word) for word in words if word.isdigit()]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        engines = [word for word in words if not word.isdigit()]
        for engine in engines:
            scaling(engine, folder)
        if engines:
            return
        lease(folder)
        for size in sizes or SIZES:
            path, out = simulated(folder, size), folder / f"runs{size}"
            passes(path, out, size)
            commands(path, out, size)


if __name__ == "__main__":
    main(sys.argv[1:])
