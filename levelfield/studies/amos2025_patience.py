"""Does self-pretraining still lift the Transformer and S4 where the arm from scratch is never stopped early?

    levelfield run amos2025_patience --effort overnight
    levelfield report amos2025_patience --effort overnight

In `amos2025_small` every phase ends where validation has stopped improving. On reviews a Transformer from scratch stays
near guessing for thousands of steps, and patience may end it there, before it would have begun to learn; S4 may have
been ended as well. Here either takes all steps that the two phases of self-pretraining are allowed together, under a
learning rate that falls along a cosine, at each of the two rates that were tried there; the Transformer with dropout,
too, which may keep it from learning its training reviews by heart. The runs of the self-pretrained arms are those of
`amos2025_small`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.protocols import scratch
from levelfield.report.decisions import difference
from levelfield.report.verdicts import GUESSES, Claim, Finding, Key, Table, judged_by_task, summed_up
from levelfield.spec import Duration, Effort, Model, Protocol, ReportView, Row, Run, Study
from levelfield.studies._amos2025_small import SPT, SSM, TRANSFORMER, before_and_after, mixers, recipes, task

FASTER = efforts.SEARCH.factors()[1][0]  # the second rate that was tried for each arm, here 2.91 times the first
RATES: Mapping[str, float] = {"scratch_whole": 1.0, "scratch_whole_faster": FASTER}
"""Factor of the learning rate, by the name of the arm from scratch."""
DROPPED = "scratch_whole_dropout"
DROPOUT = {TRANSFORMER: 0.1}
"""Share of what its layers add that a model drops in training, in one further arm from scratch, at the first rate."""
MODELS = {TRANSFORMER: "the Transformer", SSM: "S4"}
"""What findings call each model, by its name."""


def runs(effort: Effort) -> tuple[Run, ...]:
    """Model by model and seed by seed, from scratch at both rates, then self-pretrained.

    The Transformer from scratch with dropout, too. At `smoke` on ListOps, which needs no files.
    """
    name = "listops" if effort == "smoke" else "text"
    return tuple(
        Run(task(name, effort), model, protocol, seed)
        for label in MODELS
        for seed in range(efforts.SIZES[effort].seeds)
        for model, protocol in _arms(name, label, effort)
    )


def _arms(name: str, label: str, effort: Effort) -> Iterator[tuple[Model, Protocol]]:
    """Yields the model with each of its protocols, and with dropout where it has that arm."""
    model, whole = efforts.model(name, mixers()[label], effort, label), tuple(_whole(name, effort))
    yield from ((model, protocol) for protocol in (*whole, _pretrained(name, effort)))
    if label in DROPOUT:
        dropping = replace(model.block, dropout=DROPOUT[label])
        yield replace(model, block=dropping), replace(whole[0], name=DROPPED)


def _whole(name: str, effort: Effort) -> Iterator[Protocol]:
    """Yields the arms from scratch, which nothing ends before the budget of both phases."""
    denoise, labels = recipes(name, effort)
    both = Duration(denoise.budget.value + labels.budget.value, "steps")
    whole = replace(labels, budget=both, schedule="cosine", patience=None, cuts=0, least_gain=0.0)
    for arm, factor in RATES.items():
        yield replace(scratch(replace(whole, lr=factor * labels.lr)), name=arm)


def from_scratch(model: str) -> dict[str, str]:
    """Returns how a model is trained from scratch over all steps, by the names of the arms."""
    how = {arm: f"at {factor:.3g} times the rate" for arm, factor in RATES.items()}
    return how | ({DROPPED: f"with a dropout of {DROPOUT[model]:g}"} if model in DROPOUT else {})


def _pretrained(name: str, effort: Effort) -> Protocol:
    """Returns the arm of `amos2025_small` at the rate that its trials chose on reviews, of both models the same."""
    _, after = before_and_after(name, effort)
    return after.at_rates(lr=FASTER, trials=efforts.SEARCH.trials)


def verdict(rows: Sequence[Row]) -> str:
    """Returns for each arm from scratch whether the lift is shown beyond the noise of seeds and test examples."""
    return summed_up(rows, findings(rows), "Nothing can be said yet: no arm from scratch has been run.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Whether each model's self-pretrained arm is above each of those from scratch; decided together."""
    return judged_by_task(Table.of(rows), _claims)


def _claims(name: str, table: Table) -> Iterator[tuple[str, Claim]]:
    """Yields a question for each model and arm; none is asked where its pretrained arm does not beat guessing."""
    cells = table.cells
    asked = [(model, arm, how) for model in MODELS for arm, how in from_scratch(model).items()]
    for model, arm, how in asked:
        pretrained, whole = Key(name, model, SPT), Key(name, model, arm)
        subject = f"{MODELS[model]}'s lift holds over all steps {how}"
        if pretrained not in cells or whole not in cells:
            yield subject, Claim(None, f"On {name}, {arm} or {SPT} of {model} has not been run.")
            continue
        lift = difference(cells[pretrained], cells[whole], 0.0, table.scatter(name))
        facts = f"On {name}, {model} has {cells[whole]} in {arm} and {cells[pretrained]} pretrained."
        yield subject, Claim(lift if table.learnt(pretrained, GUESSES) else None, facts)


study = Study(
    name="amos2025_patience",
    claim=(
        "The lift of a self-pretrained Transformer and of S4 on reviews is not that of an arm from scratch which "
        "stopped early: it stays where that arm takes all steps which both phases are allowed, at either of two "
        "learning rates, and with dropout in the Transformer."
    ),
    runs=runs,
    views=(
        ReportView("compare", "Accuracy on the test split, with guessing and simple rules"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    deviations=(
        "The first 256 bytes of a review, width 64 and two layers: no printed number belongs beside these.",
        "The arms from scratch take 18,000 steps whatever validation says, and the best step by validation is scored; "
        "the self-pretrained arms end by their patience, which is short.",
        "Both rates from scratch are shown; each self-pretrained arm has that of the two which its trials chose.",
        "One dropout and one rate are tried together, and the self-pretrained arms have none.",
    ),
)
