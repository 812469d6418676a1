"""How long is long where no one place has the answer: does counting fall beyond the training length, as recall does?

    levelfield run huang2024_counting --effort overnight
    levelfield report huang2024_counting --effort overnight

`huang2024_small` hides one answer in a text. Here the most frequent word of the whole text is asked for, as in RULER's
tests of aggregation, of the same architectures in the same way, and of rotary attention whose training draws its
positions at random from as many as the longest text asked has (Ruoss et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from levelfield.probes.depths import Depths
from levelfield.report.verdicts import Finding, capped, judged
from levelfield.spec import UNTUNED, Duration, Effort, Probe, Recipe, ReportView, Row, Run, Study
from levelfield.studies import _huang2024_small as needles
from levelfield.studies._huang2024_beyond import LengthScores, brief, falls, farther, haystacks, told_falls
from levelfield.tasks.frequent_word import FrequentWord

NAME = "frequent_word"
FACTORS = (0.5, 1, 2, 4, 8, needles.FARTHEST)  # of the training length, asked by the probe
STEPS = 4_000  # a cap that training at `overnight` should not reach
VALIDATE = 120  # steps between validations at `overnight`: a pilot had learnt the task after 250
UNHURRIED = Duration(600, "steps")  # before which a phase at `overnight` does not end
SEEDS = 10  # at `overnight`: five left most of the questions about the longest texts open


def runs(effort: Effort) -> tuple[Run, ...]:
    """Seed by seed, every architecture."""
    seeds = SEEDS if effort == "overnight" else needles.SIZES[effort].seeds
    return needles.runs(effort, NAME, recipe, seeds)


def recipe(arm: str, effort: Effort) -> Recipe:
    """Returns the recipe of the needles, rates included; at `overnight` with validations, and an end, that suit a task
    that is learnt sooner."""
    shared = needles.recipe(arm, effort)
    if effort != "overnight":
        return shared
    lengths = {"budget": Duration(STEPS, "steps"), "validate_every": Duration(VALIDATE, "steps")}
    return replace(shared, patience_after=UNHURRIED, **lengths)


def probes(run: Run) -> Sequence[Probe]:
    return (Depths((0.5, 1, 2), examples=60),) if run.task.max_length < 32 else (Depths(FACTORS),)


def length_scores(rows: Sequence[Row]) -> LengthScores:
    """Scores of counting, in which guessing is to name any word of the text."""
    task = needles.task_of(rows, NAME)
    assert isinstance(task, FrequentWord)
    return LengthScores.of(rows, lambda length, layout: task.at_length(length).passage_only)


def verdict(rows: Sequence[Row]) -> str:
    """Says which models lose half of the task beyond its length, and whether a layout there is easier than another at
    it."""
    asked = length_scores(rows)
    if not asked.learnt:
        return asked.unlearnt
    fallen, more = judged(falls(asked)), judged(haystacks(asked, "layout"))
    lines = (capped(rows), told_falls(asked, fallen, "layout"), farther(asked), brief(more))
    return "\n".join(filter(None, lines))


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Two families of questions: who loses more than half beyond the training length, and whose easy layout there is
    above a hard one at it."""
    asked = length_scores(rows)
    return judged(falls(asked)) + judged(haystacks(asked, "layout"))


study = Study(
    name="huang2024_counting",
    claim="Scores drop steeply beyond the training length on every kind of task, whatever the architecture (huang2024, "
    "section 5): in some layout, more than half of counting is lost beyond that length.",
    runs=runs,
    views=(
        ReportView("curve", "Beyond the training length", axis="length"),
        ReportView("heat", "By layout of the answer", axis="format"),
        ReportView("compare", "At the training length"),
        ReportView("training", "Learning curves"),
    ),
    probes=probes,
    verdict=verdict,
    deviations=(
        needles.MADE_UP,
        "RULER asks for ten common or three frequent words, of which the others are a tenth or a part of Zipf's law; "
        "here one is asked for, with rivals of seven tenths, at every length.",
        UNTUNED,
        "At `overnight` it is not one for all: each arm has the rate that was best for it on needles.",
        "Where positions are random in training, they are consecutive when the model is asked; Ruoss et al. draw them "
        "then, too.",
        needles.EQUAL,
    ),
)
