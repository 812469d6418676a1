"""Does one architecture lead everywhere? Six mixers on recall, state tracking, certified range and handwritten digits.

    levelfield plan scorecard --effort minutes
    levelfield run scorecard --effort minutes
    levelfield report scorecard --effort minutes
    levelfield compare mine.py:Mine --tasks standard --protocols scratch --steps 4000     # the same of your own mixer

It is the comparison of one mixer on the standard tasks, with more seeds and steps and with a question of each arm: is
it below another one where its kind is known to be weak? Attention and recurrences with positive eigenvalues track no
state (Merrill et al. 2024, Grazzi et al. 2024), what has a state of fixed size that no input chooses recalls little
(Arora et al. 2024), and a stack of convolutions sees no mark that is further away than its kernels reach
(docs/reach.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from levelfield.presets import by_name, comparison
from levelfield.presets.options import Options
from levelfield.report.decisions import difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged, told
from levelfield.spec import UNTUNED, Effort, ReportView, Row, Run, Study

FIRST = "gated_deltanet"  # whose parameters the others are given
OTHERS = ("attention", "s4", "conv", "mamba2", "gru")
WEAK: Mapping[str, tuple[str, str]] = {  # the task on which an arm is known to be weak, and what it is beside there
    "attention": ("words", "gru"),
    "gated_deltanet": ("words", "gru"),
    "mamba2": ("words", "gru"),
    "s4": ("recall", "attention"),
    "gru": ("recall", "attention"),
    "conv": ("reach", "s4"),
}
SCRATCH = "scratch"
STANDARD = Options(("standard",), (SCRATCH,), OTHERS)
LONGER = replace(STANDARD, seeds=3, steps=4_000)  # at `minutes`, whose 1,000 steps are too few for words


def runs(effort: Effort) -> Sequence[Run]:
    """Returns the runs of the comparison of the first mixer."""
    options = LONGER if effort == "minutes" else STANDARD
    return comparison.compare(by_name.mixer(FIRST, comparison.NAMED), options).runs(effort)


def verdict(rows: Sequence[Row]) -> str:
    """Says of which arms it is shown that another is above them, and both their scores."""
    return told(findings(rows))


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Asks of each arm whether another one is above it where its kind is known to be weak; all decided together."""
    return judged(dict(_claims(Table.of_all(rows))))


def _claims(table: Table) -> Iterator[tuple[str, Claim]]:
    for model, (task, other) in WEAK.items():
        own, above = (Key(task, name, SCRATCH) for name in (model, other))
        if own not in table.cells or above not in table.cells:
            continue
        scores = table.cells[above], table.cells[own]
        facts = f"On {task}, {other} has {scores[0]} and {model} {scores[1]}."
        lead = difference(*scores, scatter=table.scatter(task))
        yield (
            f"{model} is below {other} on {task}",
            Claim(lead, facts) if table.learnt(above) else Claim(None, f"{facts} {other} did not learn there."),
        )


study = Study(
    name="scorecard",
    claim="No architecture leads everywhere: each of six is below another one on recall, on state tracking or where "
    "range is certified.",
    runs=runs,
    views=(
        ReportView("scorecard", "Scorecard: what each model learns of each task"),
        ReportView("compare", "Every seed of every arm"),
        ReportView("curve", "Longer than in training", axis="length"),
        ReportView("training", "Training curves"),
    ),
    probes=comparison.probes,
    verdict=verdict,
    deviations=(
        UNTUNED,
        "All arms are built to see earlier steps alone, as recurrences do, and have as many parameters as Gated "
        "DeltaNet, as nearly as widths allow.",
        "What is asked of each arm was known from the literature or by proof. The steps were chosen by a pilot, the "
        "first seed of words, reach and digits, so that these answers had been seen in one seed of three.",
        "Of digits, 1,157 pictures to learn from, no question is asked; their scores are described.",
    ),
)
