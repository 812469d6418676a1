"""Does precision change an answer? Attention and S4 in float32 and in bf16, seed by seed from the same weights.

    levelfield run precision --effort minutes
    levelfield report precision --effort minutes

Training in bf16 rounds what every product reads, so that no score stays what it was to the last digit. What matters to
a comparison is whether a score moves by as much as comparisons ask about. Three points is what the demo asks of
self-pretraining, on the same task with the same budget: where bf16 stays within them, such a question has the answer
that float32 would have given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from levelfield.presets import efforts
from levelfield.report.decisions import Every, Flipped, difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged, power, told
from levelfield.spec import UNTUNED, Effort, MixerConfig, Numerics, ReportView, Row, Run, Study, Task

LISTOPS, SCRATCH = "listops", "scratch"
MIXERS: Mapping[str, MixerConfig] = {"attention": efforts.ATTENTION, "s4": efforts.S4_DIAGONAL}
ROUNDED = "_bf16"  # ends the names of models that are trained in it
MARGIN = 3.0  # points
STEPS = 1_600  # of the optimizer, at `minutes`


def task(effort: Effort) -> Task:
    made = efforts.task(LISTOPS, effort)
    return replace(made, test=5_000) if effort == "minutes" else made


def runs(effort: Effort) -> tuple[Run, ...]:
    """Seed by seed, each mixer in both precisions."""
    size = efforts.sized(effort, {"steps": STEPS, "seeds": 3} if effort == "minutes" else {})
    (scratch,) = efforts.protocols(LISTOPS, effort, (SCRATCH,), size)
    return tuple(
        Run(task(effort), efforts.model(LISTOPS, mixer, effort, name + end, size), scratch, seed, numerics)
        for seed in range(size.seeds)
        for name, mixer in MIXERS.items()
        for end, numerics in (("", Numerics()), (ROUNDED, Numerics("bf16")))
    )


def verdict(rows: Sequence[Row]) -> str:
    """Mixer by mixer, whether its two scores are within MARGIN, and which differences these runs could have seen."""
    found = findings(rows)
    return " ".join(filter(None, (told(found), power(Table.of(rows), 2 * len(found)) if found else "")))


def findings(rows: Sequence[Row]) -> list[Finding]:
    """One finding a mixer, by two one-sided tests: yes within the margin, no beyond it in either direction."""
    return judged(dict(_claims(Table.of(rows))))


def _claims(table: Table) -> Iterator[tuple[str, Claim]]:
    for name in MIXERS:
        plain, rounded = (table.cells.get(Key(LISTOPS, name + end, SCRATCH)) for end in ("", ROUNDED))
        if plain is None or rounded is None:
            continue
        scatter = table.scatter(LISTOPS)
        span = difference(rounded, plain, scatter=scatter).span()
        apart = f"; bf16 against float32: {span}" if span else ""
        facts = f"On {LISTOPS}, {name} has {plain} in float32 and {rounded} in bf16{apart}."
        low = difference(rounded, plain, -MARGIN, scatter)
        high = Flipped(difference(rounded, plain, MARGIN, scatter))
        able = table.learnt(Key(LISTOPS, name, SCRATCH))
        yield (
            f"bf16 within {MARGIN:.0f} points of float32: {name}",
            Claim(Every((low, high)), facts) if able else Claim(None, f"{facts} It did not learn in float32."),
        )


study = Study(
    name="precision",
    claim="Training in bf16 leaves answers as they are: scores of attention and S4 stay within 3 points of float32.",
    runs=runs,
    views=(
        ReportView("compare", "Every seed in both precisions"),
        ReportView("training", "Training curves"),
    ),
    verdict=verdict,
    deviations=(
        "One small task and two small models: longer sequences and deeper models round more often.",
        UNTUNED,
    ),
)
