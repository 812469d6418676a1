"""Measures a training step of every mixer in float32, in bf16 and compiled, beside its peer and the machine's products.

    python benchmarks/train.py --only attention --lengths 1024      # goes on from the rows there are
    python benchmarks/train.py --rounds 2                           # every mixer and length
    python benchmarks/train.py --page-only                          # the page from the rows there are

How it is measured: `measuring.py`. What: `train_cases.py`. All sides of a group are measured in turn in one run; use
their ratios, for absolute numbers belong to the machine and to what else it was doing.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from textwrap import fill

from measuring import WIDTH, Row, add_options, collect, kept, read, said, write
from train_cases import AGAIN, CASES, CLASSES, LENGTHS, MEMORY, PRODUCT_FLOPS, PRODUCTS, SIDES, network

from levelfield.mixers import NAMES
from levelfield.objectives import Classify
from levelfield.runs.flops import cost
from levelfield.spec import Label, Tokens

GROUPS = [PRODUCTS, *NAMES]
GOAL = 1.5  # times as fast in bf16
NOISE = 0.05  # of a ratio, which may be the machine's
PARTS = Path(__file__).resolve().parent.parent / "results" / "speed-step-parts.csv"
ABOUT = """# Speed of a training step

A whole optimizer step of a model of two blocks, width 256, feed-forward layers of 1,024, AdamW, on 8,192 tokens: CPU
time on one thread, least of its repeats. `ours` is float32, and `share` its FLOPs per second, as the ledger counts
them, over what the machine does in plain products of these sizes. The other columns are ratios to it: how many times
as fast a step is, and in brackets its peak of memory in MiB. `others` are another's layer in a model of the same
sizes, in float32 and in a plain loop: below 1 it is slower than ours. Written by `python benchmarks/train.py --peers
PEERS`; rows: `results/speed-train.csv`. Groups and lengths that are not here were not measured. Use the ratios:
absolute numbers belong to the machine ({machine}).

Nothing else ran on the machine, but beside compiled steps and those right before them; beside other work, bf16 gains
less. Each number is of one process; the sides of a mixer were measured one after the other, those of others after all
of ours, so that differences of a twentieth may be the machine's. A kernel that compiles for two minutes of CPU time is
given up. What the rows say:

{peers} The attention of torch and of transformers calls the same fused kernel as ours. Several of the others have
  kernels for GPUs, of which a CPU shows nothing.
{bf16} *Maps* is the share of a float32 step that is spent in linear maps, by torch's profiler
  (`python benchmarks/step_parts.py`), and *by maps* the ratio if these alone became faster, as much as plain products
  do; elementwise steps on half the bytes can add to it. {maps} Recurrences, decays, softmax and the batched products
  inside of them stay in float32 ([numerics](numerics.md)), which costs casts and copies.
{parts}
{compiled}
- Nothing was measured on a GPU, neither utilisation nor hours: the GPU-hours of `levelfield plan` are its operations
  over an assumed 100 TFLOP/s, and its hours on a CPU come from one batch.
"""


class _AnyTask:
    """What counting FLOPs asks of a task."""

    input, output, documents = Tokens(256), Label(CLASSES), 1


@cache
def flops_per_token(label: str, length: int) -> float:
    """FLOPs of forward and backward per token of a batch, as a run's ledger counts them."""
    each = cost(network(label, length, SIDES["ours"]), length, Classify(), _AnyTask())  # pyright: ignore[reportArgumentType]
    sequences = max(1, 8192 // length)
    return each.of(sequences) / (sequences * length)


def limits(rows: Iterable[Row]) -> dict[str, float]:
    """GFLOP/s of plain products by precision."""
    found = [row for row in rows if row["group"] == PRODUCTS and row["status"] == "ok" and row["side"] != MEMORY]
    return {row["side"]: PRODUCT_FLOPS / float(row["us_per_token"]) / 1e3 for row in found}


def copied(rows: Iterable[Row]) -> list[str]:
    """Returns what the rows say of the machine's memory: GB/s of a copy out of cache, read and written."""
    found = [float(row["us_per_token"]) for row in rows if (row["group"], row["side"]) == (PRODUCTS, MEMORY)]
    return [f"Memory: {2 * 4 * WIDTH / time / 1e3:.1f} GB/s, read and written by a copy." for time in found]


def lines(rows: list[Row]) -> Iterator[str]:
    """The table, one line for each mixer at each length."""
    best, groups = limits(rows), dict[tuple[str, int], dict[str, Row]]()
    for row in (row for row in rows if row["group"] != PRODUCTS):
        groups.setdefault((row["group"], int(row["length"])), {})[row["side"]] = row
    maps = linear_maps()
    yield "| mixer | steps | ours, tokens/s | MiB | share | maps | in bf16 | by maps | compiled | others |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    for (label, length), sides in groups.items():
        ours, others = sides["ours"], [side for side in sides if side not in SIDES]
        if ours["status"] != "ok":
            yield f"| `{label}` | {length} | {said(ours)} | | | | | | | |"
            continue
        time, limit = float(ours["us_per_token"]), best.get("float32")
        share = f"{flops_per_token(label, length) / time / 1e3 / limit:.0%}" if limit else ""
        bf16 = ratio(time, sides["ours bf16"]) if "ours bf16" in sides else ""
        before = sides.get(AGAIN, ours)
        compiled = ratio(float(before["us_per_token"]), sides["ours compiled"]) if "ours compiled" in sides else ""
        mapped = maps.get(label) if length == LENGTHS[0] else None
        known = (f"{mapped:.0%}", f"{by_maps(mapped, best):.2f}") if mapped is not None and len(best) == 2 else ("", "")
        beside = (known[0], bf16, known[1], compiled)
        named = "; ".join(f"{side} {ratio(time, sides[side])}" for side in others)
        cells = (f"`{label}`", length, f"{1e6 / time:,.0f}", f"{float(ours['peak_mib']):,.0f}", share, *beside, named)
        yield f"| {' | '.join(map(str, cells))} |"


def linear_maps() -> dict[str, float]:
    """Returns, by mixer, the share of a float32 step that `step_parts.py` found in linear maps."""
    if not PARTS.exists():
        return {}
    with PARTS.open() as file:
        return {r["mixer"]: float(r["linear maps"]) for r in csv.DictReader(file) if r["precision"] == "float32"}


def by_maps(share: float, best: dict[str, float]) -> float:
    """How many times as fast a step is whose share of linear maps alone becomes faster, as plain products do."""
    return 1 / (1 - share + share * best["float32"] / best["bf16"])


def speedups(rows: Iterable[Row], side: str, over: str = "ours") -> dict[tuple[str, str], float]:
    """Returns, by mixer and length, how many times as fast a side is as another."""
    times = {(r["group"], r["length"], r["side"]): float(r["us_per_token"]) for r in rows if r["status"] == "ok"}
    found = {(group, n): time for (group, n, name), time in times.items() if name == side and group != PRODUCTS}
    return {key: times[*key, over] / time for key, time in found.items() if (*key, over) in times}


def about_peers(rows: list[Row]) -> str:
    """Returns what the rows say of others' steps beside ours in the same precision."""
    peers = dict.fromkeys(row["side"] for row in rows if row["group"] != PRODUCTS and row["side"] not in SIDES)
    known = {
        (side, mixer): ratio
        for side in peers
        for (mixer, _), ratio in speedups(rows, side, "ours bf16" if side.endswith("bf16") else "ours").items()
    }
    faster = sorted(((ratio, *names) for names, ratio in known.items() if ratio > 1), reverse=True)
    slower = [1 / ratio for ratio in known.values() if ratio <= 1]
    lost = sum(row["side"] in peers and row["status"] != "ok" for row in rows)
    named = ", ".join(f"{side} by {100 * (ratio - 1):.1f} % (`{mixer}`)" for ratio, side, mixer in faster)
    first = f"- **Of {len(known)} steps of others that were measured, {len(faster) or 'none'} "
    first += f"{'is' if len(faster) < 2 else 'are'} faster than ours**"
    times = f" {len(slower)} take {min(slower):.2f} to {max(slower):.2f} times as long;" if slower else ""
    return f"{first}{': ' if named else ''}{named}.{times} {lost} could not be measured."


def about_bf16(rows: list[Row]) -> str:
    """Returns how many mixers become how much faster in bf16."""
    found = list(speedups(rows, "ours bf16").values())
    slower, much, missed = (sum(map(test, found)) for test in (lambda r: r < 1, lambda r: r >= 1.6, lambda r: r < GOAL))
    return (
        f"- **bf16 is slower than float32 for {slower or 'none'} of the {len(found)} mixers**, and {much} of them "
        f"train 1.6 times as fast or faster. The goal of {GOAL} is missed by {missed}."
    )


def about_compiled(rows: list[Row]) -> str:
    """Returns how many compiled steps are how much faster or slower, and which took too long to compile."""
    found = {mixer: ratio for (mixer, _), ratio in speedups(rows, "ours compiled", AGAIN).items()}
    if not found:
        return "- No step was compiled."
    faster, slower = (sum(sign * (ratio - 1) > NOISE for ratio in found.values()) for sign in (1, -1))
    said = (
        f"- **Compiled, {faster} of {len(found)} steps are faster on a CPU by more than a twentieth**, up to "
        f"{max(found.values()):.2f} times, and {slower} slower, down to {min(found.values()):.2f} times, after up to "
        "two minutes of compiling. They are compared with a float32 step right before them."
    )
    if late := [f"`{row['group']}`" for row in rows if row["side"] == "ours compiled" and row["status"] == "build"]:
        said += f" It takes longer than that for {', '.join(late)}."
    return said


def about_maps(rows: list[Row]) -> str:
    """Returns which mixers that miss the goal would reach it if their linear maps alone became faster."""
    best, maps = limits(rows), linear_maps()
    missed = [mixer for (mixer, _), ratio in speedups(rows, "ours bf16").items() if ratio < GOAL and mixer in maps]
    would = [mixer for mixer in missed if len(best) == 2 and by_maps(maps[mixer], best) >= GOAL]
    named = f" ({', '.join(f'`{mixer}`' for mixer in would)})" if would else ""
    others, mostly = len(missed) - len(would), [share > 0.5 for mixer, share in maps.items() if mixer not in missed]
    failed = sum(maps[mixer] > 0.5 for mixer in missed)
    return (
        f"Of the {sum(mostly) + failed} mixers that spend more than half of a step in maps, {failed or 'none'} "
        f"{'misses' if failed < 2 else 'miss'} it. Of all that miss it, {others} would not reach it by their maps, "
        f"{len(would)} would{named}."
    )


def about_parts() -> str:
    """Returns what the profiled steps say of fused attention, and which of them were slower in bf16."""
    rows = [row for row in csv.DictReader(PARTS.read_text().splitlines()) if "ms" in row] if PARTS.exists() else []
    ms = {(row["mixer"], row["precision"]): float(row["ms"]) for row in rows}
    fused = {(row["mixer"], row["precision"]): float(row["ms"]) * float(row.get("attention") or 0) for row in rows}
    both = [mixer for mixer, precision in ms if precision == "bf16" and (mixer, "float32") in ms]
    ratios = {mixer: fused[mixer, "bf16"] / fused[mixer, "float32"] for mixer in both if fused[mixer, "float32"]}
    slower = [mixer for mixer in both if ms[mixer, "bf16"] > ms[mixer, "float32"]]
    said_of = [f"{ratio:.2f} times (`{mixer}`)" for mixer, ratio in sorted(ratios.items(), key=lambda each: each[1])]
    told = [f"of `{x}` {ms[x, 'bf16']:,.0f} ms in bf16 and {ms[x, 'float32']:,.0f} in float32" for x in slower]
    opposite = f", even in which precision is faster: {'; '.join(told)}" if told else ""
    return (
        "- `results/speed-step-parts.csv` has the parts of each step: a single one under the profiler, so that its "
        f"time is not that of the table{opposite}. "
        + f"Torch's fused attention took, in bf16, {', '.join(said_of)} as long as in float32."
        * bool(said_of)
    )


def ratio(ours: float, row: Row) -> str:
    """How many times as fast as ours in float32, and in brackets the peak of memory in MiB."""
    if row["status"] != "ok":
        return said(row)
    return f"{ours / float(row['us_per_token']):.2f} ({float(row['peak_mib']):,.0f})"


def page(rows: list[Row]) -> str:
    """The page of these rows."""
    said_of = [f"Plain products: {rate:.0f} GFLOP/s in {kind}." for kind, rate in limits(rows).items()]
    said_of += copied(rows)
    machine = rows[0]["machine"] if rows else "none"
    told = {"peers": about_peers(rows), "bf16": about_bf16(rows), "compiled": about_compiled(rows)}
    text = ABOUT.format(machine=machine, maps=about_maps(rows), parts=about_parts(), **told)
    return "\n".join([filled(text), *said_of, "", *lines(rows), ""])


def filled(text: str) -> str:
    """Returns a text whose list is its end, with the lines of each item filled."""
    head, *items = text.split("\n- ")
    said_of = [
        fill(f"- {' '.join(item.split())}", 120, subsequent_indent="  ", break_on_hyphens=False) for item in items
    ]
    return "\n".join([head, *said_of, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, LENGTHS, "speed-train")
    parser.add_argument("--page-only", action="store_true", help="measure nothing")
    parser.add_argument("--sides", nargs="+", default=sorted({case.side for case in CASES}), help="measure only these")
    options = parser.parse_args()
    only = options.only.split(",")
    chosen = [(i, c) for i, c in enumerate(CASES) if c.group == PRODUCTS or only == [""] or c.group in only]
    chosen = [(i, c) for i, c in chosen if c.group == PRODUCTS or c.side in options.sides]
    wanted = [(i, c, n) for n in sorted(options.lengths) for i, c in chosen if n in c.lengths]
    if not options.page_only:
        rows = kept(read(options.rows), wanted, options.fresh)
        collect("train_cases:CASES", wanted, options, rows, lambda found: write(options.rows, found, GROUPS))
    Path(options.page).write_text(page(read(options.rows)))
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
