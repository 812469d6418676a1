"""How long is long, for models trained here on the same data: does recall drop steeply beyond the training length?

    levelfield run huang2024_small --effort minutes
    levelfield report huang2024_small --effort minutes

huang2024 compares published checkpoints, which differ in size, data and training length. Here eight architectures of
equal parameters read the same needles in the same haystacks at one length, as language models with the loss of the
answers beside that of the next word, and are then asked at half to sixteen times that length, by depth and haystack.
A ninth arm is rotary attention whose training draws its positions at random from as many as the longest text asked has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from levelfield.report.decisions import Contrast
from levelfield.report.same_weights import alike, contrast
from levelfield.report.verdicts import Claim, Finding, capped, judged
from levelfield.spec import UNTUNED, Effort, ReportView, Row, Run, Study
from levelfield.studies import _huang2024_small as needles
from levelfield.studies._huang2024_beyond import LengthScores, brief, falls, farther, haystacks, middles, told_falls

FAR = 4  # times the training length, where remedies are compared


def runs(effort: Effort) -> tuple[Run, ...]:
    return needles.runs(effort, needles.NEEDLE, needles.recipe, needles.SIZES[effort].seeds)


def verdict(rows: Sequence[Row]) -> str:
    """Says which models lose half of the task beyond its length, and in which haystack from where on; whether the
    middle of a text is lost, and whether a haystack beyond the training length is easier than another at it."""
    asked = needles.length_scores(rows)
    if not asked.learnt:
        return asked.unlearnt
    helped_by = f"Without training, at {FAR} times the length: {brief(found)}" if (found := remedies(rows)) else ""
    lines = (capped(rows), told_falls(asked, fallen(rows)), farther(asked), helped_by, brief(places(rows)))
    return "\n".join(filter(None, lines))


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Five families of questions: who falls, which remedy helps, who loses the middle, at the training length and
    beyond it, and whose haystacks are easier than others."""
    return fallen(rows) + remedies(rows) + places(rows)


def fallen(rows: Sequence[Row]) -> list[Finding]:
    """Finds for each model whether, in some haystack, it loses more than half of what it is above guessing, at twice
    the training length and at the longest one asked."""
    return needles.answered(lambda guessing: judged(falls(needles.length_scores(rows, guessing))))


def places(rows: Sequence[Row]) -> list[Finding]:
    """Finds who loses the middle of a text, and whose easy haystack beyond the training length is above a hard one."""
    return needles.answered(lambda guessing: _places(needles.length_scores(rows, guessing)))


def _places(asked: LengthScores) -> list[Finding]:
    middle = judged(middles(asked, beyond=False)) + judged(middles(asked, beyond=True))
    return middle + judged(haystacks(asked))


def remedies(rows: Sequence[Row]) -> list[Finding]:
    """Finds which remedies let the same weights find more, FAR times the training length; none where none was tried."""
    found = [*_remedied(needles.length_scores(rows))]
    gains = alike([gain for _, gain, _ in found])
    return judged({subject: Claim(gain, facts) for (subject, _, facts), gain in zip(found, gains, strict=True)})


def _remedied(asked: LengthScores) -> Iterator[tuple[str, Contrast, str]]:
    """Yields a question, by how much each seed gains, and the scores: only of models that have learnt the task."""
    table, length = asked.table, FAR * asked.trained
    for model in asked.models:
        start = f"{length},remedy="
        cells = {
            key.place.removeprefix(start): cell
            for key, cell in table.cells.items()
            if key.model == model and key.place.startswith(start)
        }
        plain = cells.pop("none", None)
        if plain is None or not asked.able(model):
            continue
        for name, cell in cells.items():
            facts = f"{model} at {length} steps: {plain} as it is, {cell} with {name}."
            yield f"{name} helps {model}", contrast(((1.0, cell), (-1.0, plain))), facts


study = Study(
    name="huang2024_small",
    claim="Scores drop steeply beyond the training length, whatever the architecture (huang2024, section 5): in "
    "some haystack, more than half of it is lost beyond that length.",
    runs=runs,
    views=(
        ReportView("curve", "Beyond the training length", axis="length"),
        ReportView("heat", "By depth of the needle, in tenths of the text", axis="depth"),
        ReportView("heat", "By haystack", axis="format"),
        ReportView("heat", "With remedies that need no training", axis="remedy"),
        ReportView("compare", "At the training length, one needle asked"),
        ReportView("training", "Learning curves"),
    ),
    probes=needles.probes,
    verdict=verdict,
    deviations=(
        needles.MADE_UP,
        UNTUNED,
        "At `overnight` it is not one for all: each arm has the best of four rates, tried beforehand at this size.",
        needles.EQUAL,
        "Where positions are random in training, they are consecutive when the model is asked; Ruoss et al. (2023) "
        "draw them then, too.",
    ),
)
