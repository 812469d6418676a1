"""Is scratch training fair to Transformers, on tasks small enough to train every arm until it stops improving?

    levelfield run amos2025_small --effort overnight
    levelfield report amos2025_small --effort overnight

amos2025 trains for days on tasks of 1,024 steps and more. Here a rotary Transformer and S4 of one width and depth learn
three smaller tasks of the same kinds. At `overnight` a phase ends where validation has stopped improving at its rate
and at a fifth of it; on pictures, whose losses go on falling by little, smaller gains count. A third arm trains on
labels for as many steps more as pretraining may take: what it gains is no gain of self-pretraining.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.report.decisions import Narrower, Question, difference
from levelfield.report.part_rules import beside_parts
from levelfield.report.verdicts import GUESSES, Claim, Finding, Key, Table, judged, summed_up
from levelfield.spec import Effort, Model, Protocol, ReportView, Row, Run, Study
from levelfield.studies._amos2025_small import LONGER, SCRATCH, SPT, SSM, TRANSFORMER, mixers, protocols, task

OFFICIAL = ("image", "text")  # need official files; ListOps is generated


def seeds(name: str, effort: Effort) -> int:
    """Returns how many; on real data more, where those of an arm from scratch spread by four points."""
    return 5 if name in OFFICIAL and effort == "overnight" else efforts.SIZES[effort].seeds


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task and seed by seed, both models with each protocol; what needs official files comes last."""
    names = ("listops",) if effort == "smoke" else ("listops", *OFFICIAL)
    return tuple(
        Run(task(name, effort), model, protocol, seed)
        for name in names
        for seed in range(seeds(name, effort))
        for model, protocol in _arms(name, effort)
    )


def _arms(name: str, effort: Effort) -> Iterator[tuple[Model, Protocol]]:
    for label, mixer in mixers().items():
        model = efforts.model(name, mixer, effort, label)
        yield from ((model, protocol) for protocol in protocols(name, effort))


def verdict(rows: Sequence[Row]) -> str:
    """Question by question on every task, what is shown beyond the noise of seeds and test examples."""
    return summed_up(rows, findings(rows), "Nothing can be said yet: no model has all of its cells.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Six questions on every task, of the models with all of their cells; decided together."""
    table = Table.of(rows)
    claims = {f"{question} ({name})": claim for name in table.tasks for question, claim in _claims(name, table)}
    return judged(claims)


def _claims(name: str, table: Table) -> Iterator[tuple[str, Claim]]:
    """Yields every question as soon as one has its cells; the others count as not decided. Nothing is asked of a model
    that does not beat guessing; where it does not beat the best simple rule, the answer says so."""
    places = {(model, p): Key(name, model, p) for model in (TRANSFORMER, SSM) for p in (SCRATCH, LONGER, SPT)}
    arms = {place: table.cells[key] for place, key in places.items() if key in table.cells}
    if not any((model, SPT) in arms and len(arms) > 1 for model in (TRANSFORMER, SSM)):
        return
    scatter, rule = table.scatter(name), f" It cannot be shown to beat the best simple rule, {table.rule(name)}."

    def beats(model: str, rules: Sequence[str] = ()) -> bool:
        return any(table.learnt(places[model, p], rules) for p in (LONGER, SPT))

    def whole(model: str, *others: str) -> bool:
        return all((model, protocol) in arms for protocol in (SPT, *others))

    def asked(model: str, question: Question, facts: str) -> Claim:
        return Claim(question if beats(model, GUESSES) else None, facts if beats(model) else facts + rule)

    for model, called in ((TRANSFORMER, "the Transformer"), (SSM, "S4")):
        if whole(model, SCRATCH):
            three = [(SCRATCH, " from scratch"), (LONGER, " with added steps"), (SPT, " pretrained")]
            shown = ", ".join(f"{arms[model, p]}{how}" for p, how in three if (model, p) in arms)
            lift = difference(arms[model, SPT], arms[model, SCRATCH], 0.0, scatter)
            part = beside_parts(table, name, {f"{called}, pretrained,": arms[model, SPT]})
            yield f"self-pretraining lifts {called}", asked(model, lift, f"On {name}, {model} has {shown}.{part}")
        else:
            yield f"self-pretraining lifts {called}", _absent(name, model)
        if whole(model, LONGER):
            equal = difference(arms[model, SPT], arms[model, LONGER], 0.0, scatter)
            yield (
                f"{called}'s lift holds at an equal allowance of steps",
                asked(model, equal, f"At an equal allowance of steps that is {equal.shown} points."),
            )
        else:
            yield f"{called}'s lift holds at an equal allowance of steps", _absent(name, model)
    for before, narrows in ((SCRATCH, "the gap narrows"), (LONGER, "the gap narrows at an equal allowance of steps")):
        if whole(TRANSFORMER, before) and whole(SSM, before):
            ends = [(arms[TRANSFORMER, p], arms[SSM, p]) for p in (before, SPT)]
            gaps = [difference(s4, transformer).shown for transformer, s4 in ends]
            at = "from scratch" if before == SCRATCH else "where both have added steps"
            facts = f"{SSM} is {gaps[0]} points from the Transformer {at} and {gaps[1]} pretrained."
            able = beats(TRANSFORMER, GUESSES) and beats(SSM, GUESSES)
            yield narrows, Claim(Narrower(ends[0], ends[1], scatter) if able else None, facts)
        else:
            yield narrows, _absent(name, TRANSFORMER if whole(SSM, before) else SSM)


def _absent(name: str, model: str) -> Claim:
    return Claim(None, f"On {name}, not every run of {model} that this takes has finished.")


study = Study(
    name="amos2025_small",
    claim=(
        "Training from scratch underestimates Transformers (amos2025): masked self-pretraining on the task's own "
        "inputs lifts a rotary Transformer, at an equal allowance of steps too, and narrows its distance to S4."
    ),
    runs=runs,
    search=efforts.SEARCH,
    views=(
        ReportView("compare", "Accuracy on the test split, with guessing and simple rules"),
        ReportView("gap", "From scratch to self-pretrained"),
        ReportView("slices", "Where the score comes from"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    deviations=(
        "ListOps of 11 to 63 tokens, CIFAR-10 pooled to 8 x 8 pixels, and the first 256 bytes of a review: no printed "
        "number belongs beside these.",
        "Width 64 and two layers, with one feed-forward layer around either mixer.",
        "The arm with added steps may take as many more as pretraining may. Phases end by patience, so the steps that "
        "were taken differ between the arms; its patience counts from the end of that allowance of pretraining on.",
    ),
)
