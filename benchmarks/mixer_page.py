"""Writes the page and the figure of `mixers.py` from its rows alone: nothing is measured here.

Path("docs/speed-mixers.md").write_text(page(rows))
draw(rows, Path("docs/figures/speed-mixers.png"))
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measuring import TOKENS, WIDTH, Row, batch_tokens, cell
from mixer_cases import CASES, LABELS, LENGTHS, MAP, PRODUCTS, REFERENCE, TRAFFIC, TRANSFORMS

sys.path.append(str(Path(__file__).parents[1] / "docs" / "scripts"))

import contents

GROUPS = list(dict.fromkeys(case.group for case in CASES))
REST = "linear, recurrent"
FAMILIES = {
    "attention": (  # and what has it beside a recurrence
        "attention alibi longformer bigbird reformer linformer performer fox path nsa hymba mega spade".split()  # noqa: SIM905
    ),
    "state space, long convolution": "s4 dlr s5 lru conv convolution gmlp sgconv hyena".split(),  # noqa: SIM905
}
MAPS = {
    "s4": 2,
    "s4: diagonal": 2,
    "sgconv": 2,
    "hyena": 4,
    "mega: average": 0,
    "convolution: kernel given": 0,
}
"""Layers made of a convolution by FFT and linear maps, and the number of their maps of 256 to 256. DLR is one too."""
NEEDED: dict[str, Callable[[int], float]] = {
    "dlr": lambda length: 786_432 + 384 * min(length, TOKENS),  # the sequences of a batch share the kernel's product
    "s5": lambda length: 1_179_648,
    "mega": lambda length: 3_244_032 + 3_584 * length,
    "mega: chunks of 128": lambda length: 3_244_032 + 3_584 * 128,
    "mamba2": lambda length: 3_813_376,
}
"""Operations per token of the matrix products in a layer, forward and backward."""
PRODUCT = 6 * 2 * WIDTH**2  # operations of the products that are measured as a limit, for a token
FFT_FACTOR, LINEAR_FACTOR = 2.5, 1.25


@dataclass(frozen=True)
class Target:
    """Ours at least `factor` times as fast as `side` in all `groups` at all `lengths` that were measured."""

    text: str
    groups: tuple[str, ...]
    sides: tuple[str, ...]
    factor: float
    lengths: tuple[int, ...] = LENGTHS[:3]


TARGETS = (
    Target("S4: 20 times the S4 repository from 4K", ("s4",), ("s4 repository",), 20, LENGTHS[1:3]),
    Target("S4D: 20 times the S4 repository from 4K", ("s4: diagonal",), ("s4 repository",), 20, LENGTHS[1:3]),
    Target("DLR: 4 times its authors' code", ("dlr",), ("not-from-scratch",), 4),
    Target("S5: 4 times s5-pytorch", ("s5",), ("s5-pytorch", "s5-pytorch, half the states"), 4),
    Target("MEGA: 4 times its authors' code", ("mega", "mega: chunks of 128"), ("mega repository",), 4),
    Target("Mamba-2: 60 times transformers", ("mamba2",), ("transformers",), 60),
    Target("Mamba-2: 2.5 times the authors' minimal SSD", ("mamba2: recurrence",), ("mamba repository, minimal",), 2.5),
    Target("RWKV-6: 25 times the recurrent reference at 4K", ("rwkv6: recurrence",),
           ("flash-linear-attention, recurrent",), 25, LENGTHS[1:2]),
    Target("RG-LRU: 50 times the recurrent references at 4K", ("rglru",), ("transformers", "recurrentgemma"), 50,
           LENGTHS[1:2]),
    Target("Longformer, BigBird, Reformer: 1.5 times transformers", ("longformer", "bigbird", "reformer"),
           ("transformers",), 1.5),
)  # fmt: skip
DECISIVE = frozenset(g for t in TARGETS for g in t.groups) | set(MAPS) | {g for g in GROUPS if g.startswith("limit")}


class Results:
    """The rows, indexed by what they measured."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = [row for row in rows if row["group"] in GROUPS]
        self.by = {(row["group"], row["side"], int(row["length"])): row for row in self.rows}

    def status(self, group: str, side: str, length: int) -> str | None:
        row = self.by.get((group, side, length))
        return row["status"] if row else None

    def cost(self, group: str, side: str, length: int) -> float | None:
        """Microseconds per token."""
        return float(self.by[group, side, length]["us_per_token"]) if self.status(group, side, length) == "ok" else None

    def ratio(self, group: str, side: str, length: int) -> float | None:
        """Their time over ours."""
        mine, theirs = self.cost(group, "ours", length), self.cost(group, side, length)
        return theirs / mine if mine and theirs else None

    def products(self, group: str, length: int) -> float | None:
        """Microseconds that a token's matrix products take at the rate of those that were measured, where known."""
        rate = self.cost(PRODUCTS, "limit", LENGTHS[0])
        needed = NEEDED[group](length) / PRODUCT if group in NEEDED else MAPS[group] / 2 if group in MAPS else None
        return None if rate is None or needed is None else needed * rate

    def most(self, group: str, side: str, length: int) -> float | None:
        """What `ratio` would be if ours took only the time of its matrix products, where all of these are known."""
        products, theirs = self.products(group, length) if group in NEEDED else None, self.cost(group, side, length)
        return theirs / products if products and theirs else None

    def peers(self, group: str) -> list[str]:
        """The sides that were measured at any length, in the order of the cases."""
        known = [case.side for case in CASES if case.group == group and case.side not in ("ours", "limit")]
        return [side for side in known if any((group, side, length) in self.by for length in LENGTHS)]


# The page


def page(rows: list[Row]) -> str:
    """The whole page: what was measured, our table, the peers' table, the limits, and how the targets were met."""
    found = Results(rows)
    machines = sorted({row["machine"] for row in found.rows})
    lines = [
        "# Speed of the mixers",
        "",
        "CPU time of forward and backward of one layer, one thread, every case in a process of its own, least of its",
        "repeats, in microseconds per token; peaks are resident memory above the start. Width "
        f"{WIDTH}, float32, {TOKENS} tokens",
        "in sequences of equal length, or one sequence where it is longer. Every mixer is at its default, its bound",
        "the length, in the causal direction where it has one, but:",
        "",
        *(f"- `{label}`: {why};" for label, (_, why) in REFERENCE.items()),
        "- what has two directions only is measured so.",
        "",
        "A line `NAME: recurrence` is the recurrence by itself, without the maps around it, beside references that",
        "have nothing else. Written by `python benchmarks/mixers.py --peers PEERS`; rows: `results/speed-mixers.csv`.",
        f"Use the ratios: absolute numbers belong to the machine ({'; '.join(machines)}).",
        "",
        "![Time per token against length](figures/speed-mixers.png)",
        "",
        "## Ours",
        "",
        "Times faster: the fastest peer's time over ours, at the same length.",
        "",
        *ours_table(found),
        "",
        "## Theirs",
        "",
        "Microseconds per token, and in brackets the peak in MiB. Does not fit: into 12 GiB. Too long: a pass of over",
        "a minute of CPU time, measured or going by the shorter lengths.",
        "",
        *peers_table(found),
        "",
        "## Limits of the machine in the same run",
        "",
        *limits_table(found),
        "",
        "## Targets",
        "",
        "Of at most: what the layer's matrix products alone would allow at the rate above, if all else took no time.",
        "",
        *verdicts(found),
    ]
    return contents.filled("\n".join(lines) + "\n")


def ours_table(found: Results) -> list[str]:
    names = [brief(length) for length in LENGTHS]
    head = ["mixer", *(f"{n}, µs/token" for n in names), f"MiB at {', '.join(names)}", *(f"faster, {n}" for n in names)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for group in GROUPS:
        own = [found.by.get((group, "ours", length)) for length in LENGTHS]
        if group.startswith("limit") or not any(own):
            continue
        times = [f"{float(r['us_per_token']):.1f}" if r and r["status"] == "ok" else words(r) for r in own]
        peaks = [f"{float(r['peak_mib']):.0f}" if r and r["status"] == "ok" else "–" for r in own]
        ratios = [[found.ratio(group, side, n) for side in found.peers(group)] for n in LENGTHS]
        best = [f"{min(r for r in some if r):.1f}" if any(some) else "" for some in ratios]
        lines.append(f"| {' | '.join([f'`{group}`', *times, ', '.join(peaks), *best])} |")
    return lines


def peers_table(found: Results) -> list[str]:
    head = ["mixer", "peer", *map(brief, LENGTHS)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for group in GROUPS:
        for side in found.peers(group):
            cells = [cell(r) if (r := found.by.get((group, side, n))) else "" for n in LENGTHS]
            lines.append(f"| {' | '.join([f'`{group}`', side, *cells])} |")
    return lines


def limits_table(found: Results) -> list[str]:
    lines = ["| what | steps | µs/token | that is |", "|---|---|---|---|"]
    for row in found.rows:
        if row["side"] == "limit":
            said = rate(row["group"], float(row["us_per_token"]))
            lines.append(
                f"| {row['group'].removeprefix('limit: ')} | {row['length']} | {row['us_per_token']} | {said} |"
            )
    return lines


def rate(limit: str, cost: float) -> str:
    """A limit in the machine's own terms."""
    if limit == PRODUCTS:
        return f"{PRODUCT / cost / 1e3:.0f} GFLOP/s"
    if limit == TRAFFIC:
        return f"{2 * 4 * WIDTH / cost / 1e3:.1f} GB/s"
    return ""


def brief(length: int) -> str:
    return f"{length // 1024}K"


def words(row: Row | None) -> str:
    return {"memory": "does not fit", "time": "too long"}[row["status"]] if row else ""


# Targets


def verdicts(found: Results) -> list[str]:
    """A line per target: met, not met or not measured, and by how much."""
    lines = [verdict(found, target) for target in TARGETS]
    lines.insert(1, runs_where_theirs_cannot(found))
    return [*lines, never_slower(found), near_the_transforms(found), linear_memory(found)]


def verdict(found: Results, target: Target) -> str:
    said, ratios = [], []
    for group in target.groups:
        for side in target.sides:
            for length in target.lengths:
                where = brief(length) if len(target.groups) * len(target.sides) == 1 else f"`{group}` {brief(length)}"
                where += f" {side}" if len(target.sides) > 1 else ""
                ratio = found.ratio(group, side, length)
                if ratio:
                    ratios.append(ratio)
                    most = found.most(group, side, length) if ratio < target.factor else None
                    said.append(f"{where}: {ratio:.1f}" + (f" of at most {most:.1f}" if most else ""))
                elif found.cost(group, "ours", length) and found.status(group, side, length):
                    said.append(f"{where}: theirs {words(found.by[group, side, length]).replace('too', 'takes too')}")
    return line(target.text, all(r >= target.factor for r in ratios) if ratios else None, said)


def line(text: str, met: bool | None, said: list[str]) -> str:
    state = {True: "met", False: "**not met**", None: "not measured"}[met]
    return f"- {text}: {state}" + (f" ({'; '.join(said)})." if said else ".")


def runs_where_theirs_cannot(found: Results) -> str:
    mine, theirs = (found.status("s4", side, LENGTHS[2]) for side in ("ours", "s4 repository"))
    met = (mine == "ok" and theirs != "ok") if mine and theirs else None
    how = ["theirs takes too long"] if theirs == "time" else []
    return line("S4 runs at 16K, where the S4 repository cannot", met, how)


def never_slower(found: Results) -> str:
    pairs = [
        (group, side, length, ratio)
        for group in GROUPS
        for side in found.peers(group)
        for length in LENGTHS
        if (ratio := found.ratio(group, side, length))
    ]
    slower = [f"`{group}` {brief(length)}, {side}: {ratio:.2f}" for group, side, length, ratio in pairs if ratio < 1]
    return line(f"never slower than any peer, {len(pairs)} comparisons", not slower if pairs else None, slower)


def near_the_transforms(found: Results) -> str:
    """Our time over that of the five transforms of a convolution and the layer's products, as measured."""
    said, factors = [], []
    for group in (*MAPS, "dlr"):
        for length in LENGTHS:
            mine, transforms = found.cost(group, "ours", length), found.cost(TRANSFORMS, "limit", length)
            products = found.products(group, length)
            if mine and transforms and products is not None:
                factors.append(mine / (transforms + products))
                said.append(f"`{group}` {brief(length)}: {factors[-1]:.1f}")
    text = f"FFT convolutions within {FFT_FACTOR} times the transforms and products they cannot do without"
    return line(text, max(factors) <= FFT_FACTOR if factors else None, said)


def linear_memory(found: Results) -> str:
    """Whether peak memory grows no faster than the tokens between 4K and the longest length measured."""
    over, number = [], 0
    for group in GROUPS:
        longest = max((n for n in LENGTHS[2:] if found.cost(group, "ours", n)), default=0)
        if not longest or not found.cost(group, "ours", LENGTHS[1]) or group.startswith("limit"):
            continue
        few, many = (float(found.by[group, "ours", n]["peak_mib"]) for n in (LENGTHS[1], longest))
        growth = many / max(few, 1) / (batch_tokens(longest) / batch_tokens(LENGTHS[1]))
        number += 1
        if growth > LINEAR_FACTOR:
            over.append(f"`{group}` from 4K to {brief(longest)}: {growth:.1f} times that")
    return line(f"memory linear in the length, {number} mixers and parts", not over if number else None, over)


# The figure


def family(group: str) -> str:
    """The panel of the figure in which a group is drawn."""
    label = group.split(":")[0]
    return next((name for name, labels in FAMILIES.items() if label in labels), REST)


def draw(rows: list[Row], path: Path) -> None:
    """Time per token against length: a panel per family, ours solid, peers dashed in the colour of their mixer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = Results(rows)
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 7.6), sharey=True, layout="constrained")
    for axis, name in zip(axes, [*FAMILIES, REST]):
        labels = [label for label in LABELS if family(label) == name and label != "convolution"]
        for index, label in enumerate(labels):
            _lines(axis, found, label, pyplot.colormaps["tab10"](index % 10), MARKS[index // 10])
        if cost := found.cost(MAP, "limit", LENGTHS[0]):
            axis.axhline(cost, color="0.6", linestyle=":", linewidth=1.5, label="limit: one linear map")
        if name == family("s4"):
            _curve(axis, found, TRANSFORMS, "limit", color="0.6", linewidth=2.5, label="limit: five transforms")
        axis.set(title=name, xscale="log", yscale="log", xlabel="length, steps")
        axis.set_xticks(LENGTHS, [brief(length) for length in LENGTHS])
        axis.minorticks_off()
        axis.set_ylim(bottom=1)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, fontsize=8, frameon=False)
    axes[0].set_ylabel("µs per token, forward and backward")
    figure.suptitle(
        "One layer of width 256, one thread. Solid: ours. Dashed, hollow marks: peers, with colour and mark of their "
        "mixer; where they are recurrences, without the maps around it."
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


MARKS = ("o", "s", "^")  # of ten mixers of a panel each, whose colours repeat


def _lines(axis, found: Results, label: str, color, mark: str) -> None:
    _curve(axis, found, label, "ours", color=color, marker=mark, markersize=5, label=label)
    for group in (label, f"{label}: recurrence"):
        for side in found.peers(group):
            _curve(axis, found, group, side, color=color, linestyle="--", marker=mark, markersize=6, fillstyle="none")


def _curve(axis, found: Results, group: str, side: str, **style: object) -> None:
    points = [(length, cost) for length in LENGTHS if (cost := found.cost(group, side, length))]
    if points:
        axis.plot(*zip(*points), **style)
