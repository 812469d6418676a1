"""Does self-pretraining lift other architectures, and models that read forward alone?

    levelfield run amos2025_arms --effort overnight
    levelfield report amos2025_arms --effort overnight

amos2025 compares a Transformer with S4, and quotes Mega from scratch. Here Mega is self-pretrained too, by masking as
they are. Models that read forward alone, of which Gated DeltaNet is one, predict the next step instead, beside a causal
Transformer and a causal S4. The task is the pictures of `amos2025_small`, and the runs of its Transformer and its S4
are the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from levelfield.mixers.gated_deltanet import GatedDeltaNet
from levelfield.mixers.mega import Mega
from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.report.decisions import Narrower, difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged_by_task, summed_up
from levelfield.spec import Effort, MixerConfig, Model, ReportView, Row, Run, Study
from levelfield.studies import _deviations as same
from levelfield.studies._amos2025_small import HEADS, SCRATCH, SSM, TRANSFORMER, before_and_after, mixers, task

MEGA, DELTA = "mega", "gated_deltanet"
BOTH_WAYS = (TRANSFORMER, SSM, MEGA)
FORWARD = (f"{TRANSFORMER}_causal", f"{SSM}_causal", DELTA)
PRETRAINED: Mapping[str, str] = {**dict.fromkeys(BOTH_WAYS, "spt_masked"), **dict.fromkeys(FORWARD, "spt_causal")}
ASKED = (MEGA, *FORWARD)  # whether they are lifted; the other two are asked in amos2025_small
GAPS = ((TRANSFORMER, MEGA), (FORWARD[0], FORWARD[1]), (FORWARD[0], DELTA))
LIFT = 1.0
"""Points that a lift has to exceed: for less, nobody would train in two phases."""


def models(name: str, effort: Effort) -> Iterator[Model]:
    """Yields three that read in both directions, then three that read forward."""
    small = mixers()
    chosen: dict[str, MixerConfig] = {**small, MEGA: Mega(keys=32, bound=task(name, effort).max_length)}
    chosen |= {f"{label}_causal": mixer for label, mixer in small.items()} | {DELTA: GatedDeltaNet(HEADS)}
    for label, mixer in chosen.items():
        made = efforts.model(name, mixer, effort, label)
        yield replace(made, causal=True) if label in FORWARD else made


def runs(effort: Effort) -> tuple[Run, ...]:
    """Seed by seed, every model with both protocols; at `smoke` on ListOps, which needs no files."""
    name = "listops" if effort == "smoke" else "image"
    return tuple(
        Run(task(name, effort), model, protocol, seed)
        for seed in range(efforts.SIZES[effort].seeds)
        for model in models(name, effort)
        for protocol in before_and_after(name, effort, causal=model.causal)
    )


def verdict(rows: Sequence[Row]) -> str:
    """Question by question, what is shown beyond the noise of seeds and test examples."""
    return summed_up(rows, findings(rows), "Nothing can be said yet: no question has all of its cells.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Whether four models are lifted by more than LIFT points, and three gaps narrow; decided together."""
    return judged_by_task(Table.of(rows), _claims)


def _claims(name: str, table: Table) -> Iterator[tuple[str, Claim]]:
    """Yields every question. Nothing is asked of a model that has not learnt either way, or has not been run."""
    pairs = {m: [Key(name, m, protocol) for protocol in (SCRATCH, after)] for m, after in PRETRAINED.items()}
    pairs = {model: keys for model, keys in pairs.items() if all(key in table.cells for key in keys)}
    arms = {model: [table.cells[key] for key in keys] for model, keys in pairs.items()}
    able = {model: any(table.learnt(key) for key in keys) for model, keys in pairs.items()}
    scatter = table.scatter(name)
    for model in ASKED if arms else ():
        if model not in arms:
            yield f"self-pretraining lifts {model}", Claim(None, f"{model} has not been run in both ways on {name}.")
            continue
        before, after = arms[model]
        facts = f"On {name}, {model} has {before} from scratch and {after} self-pretrained."
        if not able[model]:
            facts += f" It cannot be shown to beat the best simple rule, {table.rule(name)}."
        question = difference(after, before, LIFT, scatter) if able[model] else None
        yield f"self-pretraining lifts {model}", Claim(question, facts)
    for first, second in GAPS if arms else ():
        if first not in arms or second not in arms:
            absent = first if first not in arms else second
            facts = f"{absent} has not been run in both ways on {name}."
            yield f"the gap between {first} and {second} narrows", Claim(None, facts)
            continue
        ends = list(zip(arms[first], arms[second], strict=True))
        gaps = [difference(other, own).shown for own, other in ends]
        facts = f"{second} is {gaps[0]} points from {first} at first and {gaps[1]} pretrained."
        question = Narrower(ends[0], ends[1], scatter) if able[first] and able[second] else None
        yield f"the gap between {first} and {second} narrows", Claim(question, facts)


study = Study(
    name="amos2025_arms",
    claim=(
        "Self-pretraining lifts models that read forward (a Transformer, S4 and Gated DeltaNet) by predicting the next "
        "step, and Mega by masking, and brings them closer to the Transformer; amos2025 claims it of its Transformers "
        "and S4 alone."
    ),
    runs=runs,
    search=efforts.SEARCH,
    views=(
        ReportView("compare", "Accuracy on the test split, with guessing and simple rules"),
        ReportView("gap", "From scratch to self-pretrained"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    deviations=(
        same.POOLED,
        "The paper quotes Mega's scores from scratch and never self-pretrains it: the question is this study's own.",
        "Gated DeltaNet is not in the paper; it reads forward alone, and is compared with models that do so, too.",
        "Causal self-pretraining regresses the gray value of the next pixel, and masked that of hidden pixels.",
        "No arm from scratch has the steps of pretraining added; that of the Transformer and of S4 is in "
        "`amos2025_small`.",
    ),
)
