"""Measures how fast S4's kernels decay before and after training, from runs whose weights are at hand.

    levelfield run amos2025_small --effort overnight --filter "image8-s4-s*"
    python benchmarks/kernel_decay.py --runs-dir runs       # writes results/kernel-decay.csv and a figure

amos2025 looks at learned kernels to see what self-pretraining changes. The probe `kernels` gives the share of a
kernel's energy within a lag, layer by layer. A line is the mean of three seeds, and its band goes from the lowest to
the highest. `start` is the same model before any step.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import tyro

from levelfield.engine.find import find_run
from levelfield.probes.kernels import Kernels
from levelfield.report import style
from levelfield.report.against_printed import pairs
from levelfield.run import build_net, load_net
from levelfield.runs import store
from levelfield.runs.phases import last_objective
from levelfield.spec import Row, Run

FIELDS = ("run", "task", "model", "protocol", "seed", "at", "metric", "value", "n")
START, PROTOCOLS = "start", {"scratch": "from scratch", "spt_masked": "self-pretrained"}
CSV, PNG = Path("results/kernel-decay.csv"), Path("docs/figures/kernel-decay.png")


def chosen(folder: Path) -> list[Run]:
    """Returns S4's runs on pictures in a folder, from scratch and self-pretrained, with the recipes that were tuned."""
    found = [place.name for name in PROTOCOLS for place in sorted(folder.glob(f"image8-s4-{name}-*"))]
    return [find_run(name, folder) for name in found]


def measured(runs: Sequence[Run], folder: Path) -> Iterator[Row]:
    """Yields the rows of the probe for every run, and for the start of those from scratch."""
    for run in runs:
        about = Row(run=run.id, task=run.task.name, model=run.model.label, seed=run.seed)
        nets = {run.protocol.name: load_net(run, store.directory(folder, run))}
        if run.protocol.name == "scratch":
            nets[START] = build_net(run, last_objective(run)).eval()
        for protocol, net in nets.items():
            for row in Kernels().measure(net, run, lambda task: {}):
                yield about | row | Row(protocol=protocol)


def lines(rows: Sequence[Any]) -> dict[tuple[str, str], dict[int, list[float]]]:
    """Returns shares by (layer, protocol) and lag, a number for each seed."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        place = pairs(row["at"])
        by_lag = found.setdefault((place["layer"], row["protocol"]), {})
        by_lag.setdefault(int(place["lag"]), []).append(float(row["value"]))
    return found


def draw(rows: Sequence[Any]) -> bytes:
    """Returns a PNG with a panel for each layer."""
    found = lines(rows)
    layers, names = sorted({layer for layer, _ in found}), {START: "before training", **PROTOCOLS}
    shade = style.colours(list(names))
    with style.canvas() as make:
        figure, axes = style.panels(make, len(layers), 3.1, columns=2)
        for panel, layer in zip(axes, layers, strict=True):
            steps = [lag + 1 for lag in found[layer, START]]
            for protocol, name in names.items():
                by_lag = found[layer, protocol]
                low, high = ([100 * end(shares) for shares in by_lag.values()] for end in (min, max))
                panel.fill_between(steps, low, high, color=shade[protocol], alpha=0.15, lw=0)
                means = [100 * fmean(shares) for shares in by_lag.values()]
                panel.plot(steps, means, "o-", color=shade[protocol], markersize=3.5, label=name)
            panel.set_xscale("log", base=2)
            panel.set_xticks(steps, [str(step) for step in steps])
            panel.set_xticks([], minor=True)
            panel.set_title(f"layer {layer}")
            panel.set_xlabel("steps that are counted, from the nearest")
            panel.set_ylabel("energy of the kernel (%)")
        axes[0].legend(frameon=False, fontsize=8)
        return style.render(figure, "kernel-decay")[1]


def main(runs_dir: Path = Path("runs")) -> None:
    """Writes the rows and the figure. runs_dir: folder of the runs, with their weights."""
    rows = list(measured(chosen(runs_dir), runs_dir))
    with CSV.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    PNG.write_bytes(draw(rows))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
