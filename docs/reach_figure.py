"""Shows how far each architecture reaches, for docs/findings.py: a table, and the figures of the report.

    table(results)            # lines of Markdown: what the seeds of each model score at each range
    figures(results)          # the same drawn, a panel for each model, and what is asked beyond the range of training
    longer(answer)            # lines of Markdown: what longer ranges show, as far as they have been run

`levelfield/report/certified_ranges.py` draws them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from levelfield.presets import reach_verdict
from levelfield.report import certified_ranges
from levelfield.report.against_printed import pairs
from levelfield.runs.results import Results

if TYPE_CHECKING:
    from findings_subjects import Answer

ALT = "Accuracy against certified range, a panel for each architecture"
NAMES = {
    "attention": "attention, rotary", "s4": "S4, diagonal", "s5": "S5", "lru": "LRU", "linear": "linear attention",
    "mamba": "Mamba", "mamba2": "Mamba-2", "gla": "GLA", "gated_deltanet": "Gated DeltaNet", "rglru": "RG-LRU",
}  # fmt: skip
PASSES = 100 * certified_ranges.PASSED


def table(results: Results) -> Iterator[str]:
    """Yields a row for each model: medians at each range, of how many seeds pass, after how many steps, its reach."""
    seen, own = certified_ranges.seen_by(results.rows), reach_verdict.by_range(results.rows)
    asked = certified_ranges.asked(results.rows)
    steps = steps_taken(results)
    places = sorted({apart for by_range in own.values() for apart in by_range})
    seeds = max((len(values) for by_range in own.values() for values in by_range.values()), default=0)
    yield f"**By model.** Medians of test accuracy in percent, in brackets how many of {seeds} seeds have at least"
    yield f"{PASSES:.0f} %, and where most do, the median of the steps of training. In italics: the model sees no"
    yield "more than the range, so that 50 % is proved. The last column is of models trained at their reach and asked"
    yield "at twice and at four times that range; below 50 % they mostly name the wrong mark.\n"
    yield f"| model | steps it sees | {' | '.join(f'{each:,}' for each in places)} | reach | 2 ×, 4 × |"
    yield "|---" * (len(places) + 4) + "|"
    for model, by_range in own.items():
        cells = []
        for apart in places:
            said = _cell(by_range.get(apart, ()), steps.get((model, apart), 0.0))
            cells.append(f"*{said}*" if seen.get(model, math.inf) <= apart else said)
        longest = reach_verdict.reach(by_range)
        further = (
            [median(certified_ranges.percent(asked[model][longest][n * longest])) for n in (2, 4)] if longest else []
        )
        ends = f"{longest:,}" if longest else "none", ", ".join(f"{value:.1f}" for value in further) or "–"
        yield f"| {named(model)} | {seen.get(model, 'all')} | {' | '.join((*cells, *ends))} |"
    yield ""


def longer(found: Answer) -> Iterator[str]:
    """Yields a row for each model at each range that has been run with all seeds: how many pass, and further on."""
    rows = found.results.rows
    seen, own, asked = certified_ranges.seen_by(rows), reach_verdict.by_range(rows), certified_ranges.asked(rows)
    steps, planned = steps_taken(found.results), {run.seed for run in found.planned}
    done = sum(run.id in found.results.ledgers for run in found.planned)
    yield f"**Longer ranges.** Of the {len(found.planned)} runs of `{found.study.name}` at `{found.effort}`, {done}"
    yield f"are done ({found.hours:.1f} core-hours). These models have all of their {len(planned)} seeds at a range."
    yield "The last columns are medians in percent, without more training, as far as models were asked there.\n"
    yield f"| trained at | model | seeds with {PASSES:.0f} % | steps of training | there | at 2 × | at 4 × |"
    yield "|---|---|---|---|---|---|---|"
    for apart in sorted({apart for by_range in own.values() for apart in by_range}):
        for model, by_range in own.items():
            if len(values := by_range.get(apart, ())) < len(planned):
                continue
            further = [certified_ranges.percent(asked[model][apart].get(n * apart, ())) for n in (1, 2, 4)]
            cells = " | ".join(f"{median(scores):.1f}" if scores else "–" for scores in further)
            sees = f" (sees {seen[model]} steps)" if model in seen else ""
            passing = sum(value >= reach_verdict.PASSED for value in values)
            taken = f"{passing} of {len(values)} | {steps[model, apart]:,.0f}"
            yield f"| {apart:,} | {named(model)}{sees} | {taken} | {cells} |"
    yield ""


def _cell(values: Sequence[float], steps: float) -> str:
    """Says what the seeds of a model at a range score, as shares of 1, and after how many steps they stopped."""
    passing = sum(value >= reach_verdict.PASSED for value in values)
    said = f"{100 * median(values):.1f} ({passing})" if values else "–"
    return f"{said}, {steps:,.0f}" if 2 * passing > len(values) else said


def steps_taken(results: Results) -> dict[tuple[str, int], float]:
    """Returns the median steps of training by model and range."""
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for row in results.rows:
        at, run = pairs(row.get("at", "")), row.get("run", "")
        if "trained" in at and run in results.ledgers:
            found[row.get("model", ""), int(at["trained"])][run] = results.ledgers[run]["steps"]
    return {place: median(by_run.values()) for place, by_run in found.items()}


def figures(results: Results) -> dict[str, bytes]:
    """Returns the figures by the end of their names, PNGs: asked at the range of training, and beyond it."""
    drawn = {
        "": certified_ranges.trained(results.rows, titled),
        "-beyond": certified_ranges.beyond(results.rows, titled),
    }
    return {end: figure.png for end, figure in drawn.items() if figure}


def named(model: str) -> str:
    """Returns what a model is called: the names of convolutions say how many steps they see."""
    return NAMES.get(model) or model.replace("conv", "convolution, ")


def titled(model: str) -> str:
    """Returns what a model is called in a figure, which says how many steps it sees."""
    return NAMES.get(model, "convolution")
