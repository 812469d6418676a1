"""Does precision change an answer? Attention and S4 in float32 and in bf16, seed by seed from the same weights.

    levelfield run precision --effort minutes
    levelfield report precision --effort minutes

Training in bf16 rounds what every product reads, so that no score stays what it was to the last digit. What matters to
a comparison is whether a score moves by as much as comparisons ask about. Three points is what the demo asks of
self-pretraining, on the same task with the same budget: where bf16 stays within them, such a question has the answer
that float32 would have given.

Both runs of a seed begin with the same weights and read the same batches, so that seeds are compared one by one, and
the test split is large enough to show a difference of a point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from levelfield.presets import efforts
from levelfield.report.decisions import Every, Flipped
from levelfield.report.same_weights import alike, contrast
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged, told
from levelfield.spec import UNTUNED, Effort, MixerConfig, Numerics, ReportView, Row, Run, Study, Task

LISTOPS, SCRATCH = "listops", "scratch"
MIXERS: Mapping[str, MixerConfig] = {"attention": efforts.ATTENTION, "s4": efforts.S4_DIAGONAL}
ROUNDED = "_bf16"  # ends the names of models that are trained in it
MARGIN = 3.0  # points
STEPS = 1_600  # of the optimizer, at `minutes`
TESTED = 20_000  # examples


def task(effort: Effort) -> Task:
    made = efforts.generated(LISTOPS, effort)
    return replace(made, test=TESTED) if effort == "minutes" else made


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
    """Says mixer by mixer whether its two scores are within MARGIN."""
    return told(findings(rows))


def findings(rows: Sequence[Row]) -> list[Finding]:
    """One finding a mixer, by two one-sided tests: yes within the margin, no beyond it in either direction."""
    return judged(dict(_claims(Table.of(rows))))


def _claims(table: Table) -> Iterator[tuple[str, Claim]]:
    arms = {name: tuple(table.cells.get(Key(LISTOPS, name + end, SCRATCH)) for end in (ROUNDED, "")) for name in MIXERS}
    both = {name: (rounded, plain) for name, (rounded, plain) in arms.items() if rounded and plain}
    apart = alike([contrast(((1.0, rounded), (-1.0, plain))) for rounded, plain in both.values()])
    for (name, (rounded, plain)), pair in zip(both.items(), apart, strict=True):
        said = f"; bf16 against float32, seed by seed: {span}" if (span := pair.span()) else ""
        facts = f"On {LISTOPS}, {name} has {plain} in float32 and {rounded} in bf16{said}."
        low, high = replace(pair, against=-MARGIN), Flipped(replace(pair, against=MARGIN))
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
