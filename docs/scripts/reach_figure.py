"""Shows how far each architecture reaches, for the findings: the answer, a table, and the figures of the report.

    short(answer)             # the answer in a few sentences
    lead(answer)              # what the proof does not say of it
    table(results)            # lines of Markdown: what the seeds of each model score at each range
    figures(results)          # the same drawn, a panel for each model, and what is asked beyond the range of training
    longer(answer)            # lines of Markdown: the same of longer ranges, as far as they have been run
    longer_figures(results)   # the same drawn

`levelfield/report/certified_ranges.py` draws them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import findings_words as words

from levelfield.presets import reach_verdict
from levelfield.report import certified_ranges
from levelfield.report.against_printed import pairs
from levelfield.runs.results import Results
from levelfield.spec import Row

if TYPE_CHECKING:
    from findings_subjects import Answer

LONGER = "findings-reach-longer.png"
ALT = "Accuracy against certified range, a panel for each architecture"
NAMES = {
    "attention": "attention, rotary", "s4": "S4, diagonal", "s5": "S5", "lru": "LRU", "linear": "linear attention",
    "mamba": "Mamba", "mamba2": "Mamba-2", "gla": "GLA", "gated_deltanet": "Gated DeltaNet", "rglru": "RG-LRU",
}  # fmt: skip
PASSES = 100 * certified_ranges.PASSED


class Counted(NamedTuple):
    """How the runs bear out the proof.

    exact, bound: how many of the runs that see no further than the range score exactly 50 %, and how many there are.
    free: the longest range, 0 for none, that each model learns which sees everything. longest: the longest one tried.
    """

    exact: int
    bound: int
    free: Mapping[str, int]
    longest: int


def counted(rows: Sequence[Row]) -> Counted:
    """Counts the runs of convolutions by whether their score is what is proved."""
    own, seen = reach_verdict.by_range(rows), certified_ranges.seen_by(rows)
    bound = [v for m, scores in own.items() for n, values in scores.items() for v in values if seen.get(m, n + 1) <= n]
    free = {model: reach_verdict.reach(scores) or 0 for model, scores in own.items() if model not in seen}
    exact = sum(abs(value - 0.5) < reach_verdict.EXACT for value in bound)
    return Counted(exact, len(bound), free, max(n for scores in own.values() for n in scores))


def short(found: Answer) -> str:
    """Whether what is proved is seen, which models that see everything reach the longest range that was asked, what
    longer training may change, and which of them go on beyond the range of training."""
    own = reach_verdict.by_range(found.results.rows)
    exact, bound, free, longest = counted(found.results.rows)
    told = []
    for steps in sorted({*free.values()}, reverse=True):
        names = [words.named(model) for model, its in free.items() if its == steps]
        told.append(f"{steps or 'none'} by {words.listed(names)}")
    lucky = sum(max(own[model][longest]) >= certified_ranges.PASSED for model, steps in free.items() if steps < longest)
    luck = f" At {longest}, {lucky} others learn it with some seeds: longer training may take them further."
    trained = certified_ranges.asked(found.results.rows)
    beyond = {model: trained[model][steps] for model, steps in free.items() if steps}
    twice, four = (
        [m for m, scores in beyond.items() if median(certified_ranges.percents(scores[times * free[m]])) >= PASSES]
        for times in (2, 4)
    )
    far, farther = (words.listed(map(words.named, models)) for models in (twice, four))
    further = (
        f" Asked at twice that range, without more training, {far} still have {PASSES:.0f} %, and at four times "
        f"{farther} (medians)."
    )
    return (
        f"The runs bear out the proof: {exact} of {bound} runs of convolutions that see no more than the range "
        f"score exactly 50 %. Of {len(free)} models that see everything, this is the longest range that each learns "
        f"when trained at it ({longest} is the longest asked of all): {'; '.join(told)}."
        f"{luck if lucky else ''}{further if twice and four else ''}"
    )


def lead(found: Answer) -> Iterator[str]:
    """Yields what two marks ask of a model that counts its steps."""
    yield (
        "With two marks, a causal model that sees everything can count its steps and tell the order from where each "
        "mark stands, and need not relate one mark to the other: it has to use input from that far back, but the start "
        "of the sequence will do. Three marks (`reach_parity`), which this study does not have, ask for more "
        "([why](reach.md#what-it-does-not-cover))."
    )


def table(results: Results) -> Iterator[str]:
    """Yields a row for each model: medians at each range, of how many seeds pass, after how many steps, its reach."""
    seeds = max(map(len, _scores(results).values()), default=0)
    yield f"**By model.** Medians of test accuracy in percent, in brackets how many of {seeds} seeds have at least"
    yield f"{PASSES:.0f} %, and where most do, the median of the steps of training. In italics: the model sees no"
    yield "more than the range, so that 50 % is proved. The last column is of models trained at their reach and asked"
    yield "at twice and at four times that range; below 50 % they mostly name the wrong mark.\n"
    yield from _rows(results)


def longer(found: Answer) -> Iterator[str]:
    """Yields the same of longer ranges, as far as they have been run, and the link of their figure."""
    done = sum(run.id in found.results.ledgers for run in found.planned)
    few = len({run.seed for run in found.planned})
    lacking = sorted({f"{apart:,}" for (_, apart), values in _scores(found.results).items() if len(values) < few})
    yield f"**Longer ranges.** The same, of the {done} of {len(found.planned)} runs of `{found.study.name}` at"
    yield f"`{found.effort}` that are done ({found.hours:.1f} core-hours)."
    if lacking:
        yield f"Some models have not been run with all of their {few} seeds at {', '.join(lacking)}."
    ranges = {apart for _, apart in _scores(found.results)}
    models = {model for model, _ in _scores(found.results)}
    if len(_scores(found.results)) < len(ranges) * len(models):
        yield "A dash was not run, so that a reach before it may be longer."
    yield ""
    yield from _rows(found.results)
    yield f"![{ALT}, at longer ranges](figures/{LONGER})\n"


def _scores(results: Results) -> dict[tuple[str, int], Sequence[float]]:
    """Returns what the seeds of each model score at each range."""
    own = reach_verdict.by_range(results.rows)
    return {(model, apart): values for model, by_range in own.items() for apart, values in by_range.items()}


def _rows(results: Results) -> Iterator[str]:
    seen, own = certified_ranges.seen_by(results.rows), reach_verdict.by_range(results.rows)
    asked = certified_ranges.asked(results.rows)
    steps = steps_taken(results)
    places = sorted({apart for by_range in own.values() for apart in by_range})
    yield f"| model | steps it sees | {' | '.join(f'{each:,}' for each in places)} | reach | 2 ×, 4 × |"
    yield "|---" * (len(places) + 4) + "|"
    for model, by_range in own.items():
        cells = []
        for apart in places:
            said = _cell(by_range.get(apart, ()), steps.get((model, apart), 0.0))
            cells.append(f"*{said}*" if seen.get(model, math.inf) <= apart else said)
        longest = reach_verdict.reach(by_range)
        beyond = [asked[model][longest].get(n * longest) for n in (2, 4)] if longest else []
        further = [median(certified_ranges.percents(scored)) for scored in beyond if scored]
        ends = f"{longest:,}" if longest else "none", ", ".join(f"{value:.1f}" for value in further) or "–"
        yield f"| {named(model)} | {seen.get(model, 'all')} | {' | '.join((*cells, *ends))} |"
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


def longer_figures(results: Results) -> dict[str, bytes]:
    """Returns the figure of longer ranges by its name, a PNG."""
    drawn = certified_ranges.trained(results.rows, titled)
    return {LONGER: drawn.png} if drawn else {}


def named(model: str) -> str:
    """Returns what a model is called: the names of convolutions say how many steps they see."""
    return NAMES.get(model) or model.replace("conv", "convolution, ")


def titled(model: str) -> str:
    """Returns what a model is called in a figure, which says how many steps it sees."""
    return NAMES.get(model, "convolution")
