"""Measures state-space layers and whole training steps: ours against the published code, in one run on one machine.

    git clone https://github.com/state-spaces/s4 PEERS/s4
    git clone https://github.com/IdoAmos/not-from-scratch PEERS/not-from-scratch
    pip install scipy einops opt_einsum omegaconf hydra-core tqdm     # what the peers import
    python benchmarks/layers.py --peers PEERS                         # layers at 1K, 4K and 16K steps
    python benchmarks/layers.py --peers PEERS --step image            # one optimiser step of amos2025's Image recipes

How it is measured: `measuring.py`. What: `layer_cases.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from layer_cases import BATCH, IMAGE, LAYERS, LENGTHS, STEPS, TOKENS
from measuring import WIDTH, Row, add_options, cell, collect, kept, read, write

ORDER = list(dict.fromkeys(case.group for case in LAYERS + IMAGE))
GOAL = 10  # times faster than the published layer
PEERS = {"s4": "models/s4/s4.py", "not-from-scratch": "src/models/sequence/ss/dss.py"}


def require(peers: Path) -> None:
    """Exits with 2 and one sentence if a checkout is missing."""
    missing = [name for name, file in PEERS.items() if not (peers / name / file).exists()]
    if missing:
        what = f"{peers} has no checkout of {' and '.join(missing)}"
        print(f"{what}: clone both into one folder, as --help shows, and pass it as --peers FOLDER.", file=sys.stderr)
        raise SystemExit(2)


def page(rows: list[Row]) -> str:
    """The page, which begins with ratios: a line per group, length and peer, the peer's time over ours."""
    ours_by = {(r["group"], str(r["length"])): r for r in rows if r["side"] == "ours"}
    lines = [
        "# Speed of the layers",
        "",
        "CPU time of forward and backward, one thread, every case in a process of its own, least of its repeats; peaks",
        f"are resident memory above the start. Width {WIDTH}, {TOKENS} tokens a batch; training steps: batch {BATCH},",
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
        theirs = r["us_per_token"]
        ratio = f"{float(theirs) / float(mine['us_per_token']):.1f}" if theirs else "–"
        cells = [r["group"], r["length"], r["side"], ratio, cell(mine), cell(r)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "## Limits of the machine in the same run", "", "| what | steps | us/token |", "|---|---|---|"]
    lines += [f"| {r['group']} | {r['length']} | {r['us_per_token']} |" for r in rows if r["side"] == "limit"]
    return "\n".join([*lines, "", *remarks(rows)]) + "\n"


def remarks(rows: list[Row]) -> list[str]:
    """The ratios below GOAL and what bounds them: no layer can cost less than the matrix products of its output map."""
    time_of = {(r["group"], str(r["length"]), r["side"]): float(r["us_per_token"] or 0) for r in rows}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, LENGTHS, "speed-layers")
    parser.add_argument("--step", choices=["image"], help="measure training steps of this recipe instead of layers")
    parser.set_defaults(rounds=2)
    options = parser.parse_args()
    require(options.peers)
    cases, table = (IMAGE, "IMAGE") if options.step else (LAYERS, "LAYERS")
    wanted = [(i, c, n) for i, c in enumerate(cases) for n in c.lengths if options.step or n in options.lengths]
    wanted = [(i, c, n) for i, c, n in wanted if options.only in c.group]
    rows = kept(read(options.rows), wanted, options.fresh)
    collect(f"layer_cases:{table}", wanted, options, rows, lambda found: write(options.rows, found, ORDER))
    options.page.write_text(page(read(options.rows)))
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
