"""State-space layers and whole training steps: ours against the published code, in one run on one machine.

    git clone https://github.com/state-spaces/s4 PEERS/s4
    git clone https://github.com/IdoAmos/not-from-scratch PEERS/not-from-scratch
    pip install scipy einops opt_einsum omegaconf hydra-core tqdm     # what the peers import
    python benchmarks/layers.py --peers PEERS                         # layers at 1K, 4K and 16K steps
    python benchmarks/layers.py --peers PEERS --step image            # one optimiser step of amos2025's Image recipes

Every case is a process of its own with one thread, so that memory peaks are its own and nobody warms another's caches.
A number is the least CPU time (user and system) of a forward and backward, after a warm-up, over all rounds; rounds go
through all cases in turn, because other work on the machine can only add time, and would else hit one side alone.
Peaks are resident memory above what the process held before its first forward.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from layer_cases import BATCH, IMAGE, LAYERS, LENGTHS, STEPS, WIDTH, Case

ORDER = list(dict.fromkeys(case.group for case in LAYERS + IMAGE))
COLUMNS = ("group", "length", "side", "us_per_token", "peak_mib", "rounds", "machine")
GOAL = 10  # times faster than the published layer
PEERS = {"s4": "models/s4/s4.py", "not-from-scratch": "src/models/sequence/ss/dss.py"}


def require(peers: Path) -> None:
    """Exit with 2 and one sentence where a checkout is missing."""
    missing = [name for name, file in PEERS.items() if not (peers / name / file).exists()]
    if missing:
        what = f"{peers} has no checkout of {' and '.join(missing)}"
        print(f"{what}: clone both into one folder, as --help shows, and pass it as --peers FOLDER.", file=sys.stderr)
        raise SystemExit(2)


# Measuring


def measure(case: Case, peers: Path, length: int, repeats: int, memory: int) -> dict[str, float]:
    """In a process of its own: least CPU time in microseconds per token, and peak memory in MiB."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    resource.setrlimit(resource.RLIMIT_AS, (memory << 30, memory << 30))
    work, tokens = case.make(peers, length)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work()
    times: list[float] = []
    while len(times) < repeats or sum(times) < 2:
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"us_per_token": min(times) / tokens * 1e6, "peak_mib": peak / 1024}


def spawn(index: int, length: int, options: argparse.Namespace) -> dict[str, float] | None:
    """`measure` in a child process; None where it does not fit into the memory allowed."""
    command = [sys.executable, __file__, "--peers", str(options.peers), "--case", str(index), "--length", str(length)]
    command += ["--memory", str(options.memory), "--repeats", str(options.repeats)]
    command += ["--step", options.step] if options.step else []
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if ran.returncode == 0:
        return json.loads(ran.stdout.splitlines()[-1])
    if "MemoryError" in ran.stderr or "alloc" in ran.stderr.splitlines()[-1]:
        return None
    raise SystemExit(ran.stderr)


def collect(cases: tuple[Case, ...], options: argparse.Namespace) -> list[dict[str, Any]]:
    release = torch.__version__.split("+")[0]
    machine = f"{platform.machine()}, {os.cpu_count()} shared cores, one thread, torch {release}"
    wanted = [(i, c, n) for i, c in enumerate(cases) for n in c.lengths if options.step or n in options.lengths]
    wanted = [(i, c, n) for i, c, n in wanted if options.only in c.group]
    found: dict[tuple[int, int], list[dict[str, float]]] = {(i, n): [] for i, _, n in wanted}
    for turn in range(options.rounds):
        for i, case, length in wanted:
            if turn and not found[i, length]:
                continue
            got = spawn(i, length, options)
            found[i, length] += [got] if got else []
            text = "does not fit" if got is None else f"{got['us_per_token']:8.1f} us/token {got['peak_mib']:7.0f} MiB"
            print(f"round {turn + 1}: {case.group:34} {case.side:24} {length:6} {text}", flush=True)
    rows = []
    for i, case, length in wanted:
        row: dict[str, Any] = {"group": case.group, "length": length, "side": case.side, "machine": machine}
        if got := found[i, length]:
            row |= {key: round(min(g[key] for g in got), 1) for key in ("us_per_token", "peak_mib")}
        rows.append(row | {"rounds": options.rounds})
    return rows


# Writing


def merge(path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These rows and the file's of other groups and lengths, in the order of the cases; written back."""
    fresh = {(r["group"], str(r["length"])) for r in rows}
    kept: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as file:
            kept = [r for r in csv.DictReader(file) if (r["group"], r["length"]) not in fresh and r["group"] in ORDER]
    rows = sorted(kept + rows, key=lambda r: (ORDER.index(r["group"]), int(r["length"])))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list[str](COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return rows


def page(rows: list[dict[str, Any]]) -> str:
    """Ratios first: a line per group, length and peer, peer's time over ours."""
    ours_by = {(r["group"], str(r["length"])): r for r in rows if r["side"] == "ours"}
    lines = [
        "# Speed of the layers",
        "",
        "CPU time of forward and backward, one thread, every case in a process of its own, least of its repeats; peaks",
        f"are resident memory above the start. Width {WIDTH}, about 16K tokens a batch; training steps: batch {BATCH},",
        f"{STEPS} steps, AdamW included. Written by `python benchmarks/layers.py --peers PEERS [--step image]`; rows:",
        "`results/speed-layers.csv`. Use the ratios: absolute numbers belong to the machine named there.",
        "",
        "| what | steps | against | times faster | ours, us/token (MiB) | theirs, us/token (MiB) |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        mine = ours_by.get((r["group"], str(r["length"])))
        if r["side"] == "ours" or mine is None:
            continue
        theirs = r.get("us_per_token") or ""
        ratio = f"{float(theirs) / float(mine['us_per_token']):.1f}" if theirs else "–"
        cells = [r["group"], r["length"], r["side"], ratio, cell(mine), cell(r)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "## Limits of the machine in the same run", "", "| what | steps | us/token |", "|---|---|---|"]
    lines += [f"| {r['group']} | {r['length']} | {r['us_per_token']} |" for r in rows if r["side"] == "limit"]
    return "\n".join([*lines, "", *remarks(rows)]) + "\n"


def remarks(rows: list[dict[str, Any]]) -> list[str]:
    """What stays below GOAL and what bounds it: no layer can cost less than the matrix products of its output map."""
    time_of = {(r["group"], str(r["length"]), r["side"]): float(r.get("us_per_token") or 0) for r in rows}
    lines = [
        "## What bounds them",
        "",
        "Every state-space layer here ends in GELU, a linear map to twice the width and a gate, ours and theirs alike.",
        "The matrix products of that map alone bound what all other speed-ups can come to. The transforms are those of",
        "torch; our convolution brings its own, so it may cost less than they do.",
        "",
    ]
    for (group, length, side), theirs in time_of.items():
        mine = time_of.get((group, length, "ours"), 0.0)
        if side in ("ours", "limit") or not theirs or not mine or theirs >= GOAL * mine:
            continue
        line = f"- {group}, {length} steps, against {side}: {theirs / mine:.1f} times, below {GOAL}"
        products = time_of.get(("limit: its matrix products alone", length, "limit"))
        if products and group.startswith(("S4", "DLR")):
            line += f"; with all but the products free it would be {theirs / products:.1f}"
        lines.append(line + ".")
    for (group, length, side), mine in time_of.items():
        transforms = time_of.get(("limit: five transforms by torch", length, "limit"))
        if group.startswith("convolution") and side == "ours" and transforms:
            lines.append(f"- Our convolution costs {mine / transforms:.1f} times five transforms at {length} steps.")
    return lines


def cell(row: dict[str, Any]) -> str:
    return f"{row['us_per_token']} ({float(row['peak_mib']):.0f})" if row.get("us_per_token") else "does not fit"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path("peers"), help="folder with checkouts s4, not-from-scratch")
    parser.add_argument("--step", choices=["image"], help="measure training steps of this recipe instead of layers")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--only", default="", help="measure only the groups with this text in their name")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="measurements per round and case, after the warm-up")
    parser.add_argument("--memory", type=int, default=12, help="address space of a case, GiB")
    parser.add_argument("--rows", type=Path, default=Path("results/speed-layers.csv"))
    parser.add_argument("--page", type=Path, default=Path("docs/speed-layers.md"))
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    require(options.peers)
    cases = IMAGE if options.step else LAYERS
    if options.case is not None:
        got = measure(cases[options.case], options.peers, options.length, options.repeats, options.memory)
        print(json.dumps(got))
        return
    rows = merge(options.rows, collect(cases, options))
    options.page.write_text(page(rows))
    print(f"wrote {options.rows} and {options.page}")


if __name__ == "__main__":
    main()
