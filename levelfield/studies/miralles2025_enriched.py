"""Does enriched training lift every architecture, and does attention live by its positions?

    levelfield run miralles2025_enriched --effort overnight
    levelfield report miralles2025_enriched --effort overnight

miralles2025 augments the training data and sees attention come close to what is built for long sequences, and finds
that position encodings decide how far. Here attention with rotary positions and without any, a bounded convolution and
S4 learn from the plain labels of a task and from its augmented inputs, each until it stops improving. Plain rotary
attention and S4 on ListOps are the arms from scratch of `amos2025_small`, which gives pictures more patience, and on
pictures the augmented convolution is one of `miralles2025_small`: their runs are the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.s4 import S4
from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.protocols import scratch
from levelfield.report.decisions import Narrower, difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged_by_task, summed_up
from levelfield.spec import Effort, Model, Protocol, ReportView, Row, Run, Study
from levelfield.studies._miralles2025_small import GROUPS, SHORT, protocol, task

TASKS = ("listops", "image")  # what needs official files comes last
ROTARY, WITHOUT, BOUNDED, SSM = "transformer_rotary", "transformer", f"conv{SHORT}", "s4"
SCRATCH, ENRICHED = "scratch", "enriched"
HEADS = 4


def models(name: str, effort: Effort) -> tuple[Model, ...]:
    """Returns attention with and without positions, a bounded convolution, and S4."""
    mixers = {
        ROTARY: Attention(HEADS, rotary="per_head"),
        WITHOUT: Attention(HEADS),
        BOUNDED: Conv(SHORT, hidden=efforts.SIZES[effort].width, groups=GROUPS),
        SSM: S4(),
    }
    return tuple(efforts.model(name, mixer, effort, label) for label, mixer in mixers.items())


def protocols(name: str, effort: Effort) -> tuple[Protocol, Protocol]:
    """Returns plain training and enriched training by one and the same recipe."""
    with_more = protocol(name, effort)
    return scratch(with_more.phases[0].recipe), with_more


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task and seed by seed, every model with both protocols."""
    names = TASKS[:-1] if effort == "smoke" else TASKS
    return tuple(
        Run(task(name, effort), model, training, seed)
        for name in names
        for seed in range(efforts.SIZES[effort].seeds)
        for model in models(name, effort)
        for training in protocols(name, effort)
    )


def verdict(rows: Sequence[Row]) -> str:
    """Task by task, what is shown beyond the noise of seeds and test examples, and what is only seen."""
    return summed_up(rows, findings(rows), "Nothing can be said yet: no task has all of its cells.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Six questions on every task with all of its cells, decided together."""
    return judged_by_task(Table.of(rows), _claims)


def _claims(name: str, table: Table) -> Iterator[tuple[str, Claim]]:
    """Nothing where a cell is missing. Of two arms neither of which has learnt, nothing is asked."""
    names, trainings = (ROTARY, WITHOUT, BOUNDED, SSM), (SCRATCH, ENRICHED)
    arms = {(model, training): Key(name, model, training) for model in names for training in trainings}
    if not all(key in table.cells for key in arms.values()):
        return
    cells, scatter = {place: table.cells[key] for place, key in arms.items()}, table.scatter(name)

    def above(first: tuple[str, str], second: tuple[str, str], facts: str) -> Claim:
        if not any(table.learnt(arms[place]) for place in (first, second)):
            return Claim(None, f"{facts} Neither beat the best simple rule, {table.rule(name)}.")
        return Claim(difference(cells[first], cells[second], 0.0, scatter), facts)

    for model in (ROTARY, BOUNDED, SSM):
        plain, more = cells[model, SCRATCH], cells[model, ENRICHED]
        facts = f"On {name}, {model} has {plain} with plain training and {more} enriched."
        yield f"enriched training lifts {model}", above((model, ENRICHED), (model, SCRATCH), facts)
    for training in trainings:
        facts = (
            f"On {name}, attention has {cells[ROTARY, training]} with positions, {cells[WITHOUT, training]} without."
        )
        yield f"positions lift attention, {training}", above((ROTARY, training), (WITHOUT, training), facts)
    before, after = ((cells[ROTARY, training], cells[SSM, training]) for training in trainings)
    gaps = [difference(ssm, attention).shown for attention, ssm in (before, after)]
    able = all(table.learnt(arms[model, training]) for model in (ROTARY, SSM) for training in trainings)
    moved = [difference(late, early).shown for early, late in zip(before, after, strict=True)]
    facts = f"{SSM} is {gaps[0]} points from rotary attention at first and {gaps[1]} enriched, by which "
    facts += f"attention has {moved[0]} and {SSM} {moved[1]}."
    yield "the gap narrows", Claim(Narrower(before, after, scatter) if able else None, facts)


study = Study(
    name="miralles2025_enriched",
    claim=(
        "Enriched training lifts attention and brings it nearer to SSMs, which gain little by it, and attention needs "
        "positions (miralles2025). Whether it lifts a convolution and an SSM is asked as well."
    ),
    runs=runs,
    search=efforts.SEARCH,
    views=(
        ReportView("compare", "Every seed of every arm"),
        ReportView("slices", "Where the score comes from"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    deviations=(
        "ListOps of 11 to 63 tokens and CIFAR-10 pooled to 8 x 8 pixels: no printed number belongs beside these.",
        "Width 64 and two layers, with one feed-forward layer around each mixer; one bounded convolution, of kernel "
        f"{SHORT} in {GROUPS} groups of channels.",
        "The policy of augmentation was made for pictures of 32 x 32 pixels and is as strong at 8 x 8.",
    ),
)
