"""The quick study: three questions, one of each paper, on tasks that small models learn in minutes on a laptop.

    levelfield demo

Does masked self-pretraining lift attention within the same number of steps (amos2025)? Is a range of a few steps enough
(miralles2025)? Does what was learnt hold at four times the length (huang2024)? ListOps is small but of the benchmark's
kind. In `reach` the order of two marks at a certified range is asked for: a convolution that sees no more scores one
half, and that is proved. Seeds, margins and rules were fixed before anything was run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from levelfield.mixers.conv import Conv
from levelfield.presets import efforts
from levelfield.probes.extrapolation import Extrapolation
from levelfield.probes.locality import Locality
from levelfield.probes.slices import Slices
from levelfield.report.decisions import Contrast, Seeds, difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged
from levelfield.spec import UNTUNED, Effort, Model, Probe, Protocol, ReportView, Row, Run, Study, Task

LISTOPS, MARKS = "listops", "reach"
ATTENTION, S4 = "attention", "s4"
SCRATCH, SPT = "scratch", "spt_masked_matched"
LIFT = 3.0  # points that self-pretraining has to bring
SHORT = 5  # steps a layer sees, two of which see 9
ENOUGH = 0.8  # share of attention's gain over guessing
KERNELS = (5, 17)  # of which two layers see 9 and 33 steps; the marks are 16 apart
TIMES = 4  # the training length
LEFT = 0.5  # share of the gain over guessing that is to be left there


@dataclass(frozen=True)
class Budget:
    """Optimizer steps of every arm on a task, and test sequences."""

    steps: int
    test: int


BUDGETS = {LISTOPS: Budget(1_600, 5_000), MARKS: Budget(600, 4_000)}
"""At `minutes`, by task; at other efforts what `efforts.SIZES` affords."""


def task(name: str, effort: Effort) -> Task:
    made = efforts.task(name, effort)
    return replace(made, test=BUDGETS[name].test) if effort == "minutes" else made


def seeds(effort: Effort) -> range:
    """Five see nearly twice as much as three (docs/verdicts.md)."""
    return range(5 if effort == "minutes" else efforts.SIZES[effort].seeds)


def arms(name: str, effort: Effort) -> Iterator[tuple[Model, Protocol]]:
    """Yields, on ListOps, attention from scratch and self-pretrained, and one short kernel; on marks, two models that
    see everything, and convolutions of growing kernels."""
    size = efforts.sized(effort, {"steps": BUDGETS[name].steps} if effort == "minutes" else {})
    scratch, spt = efforts.protocols(name, effort, ("scratch", "spt_masked"), size)
    attention = efforts.model(name, efforts.ATTENTION, effort, size=size)
    yield attention, scratch
    if name == LISTOPS:
        yield attention, spt
    else:
        yield efforts.model(name, efforts.S4_DIAGONAL, effort, size=size), scratch
    for kernel in (SHORT,) if name == LISTOPS else KERNELS:
        conv = Conv(kernel, hidden=size.width)
        yield efforts.model(name, conv, effort, f"conv{kernel}", size), scratch


def runs(effort: Effort) -> tuple[Run, ...]:
    return tuple(
        Run(task(name, effort), model, protocol, seed)
        for name in (LISTOPS, MARKS)
        for model, protocol in arms(name, effort)
        for seed in seeds(effort)
    )


def probes(run: Run) -> Sequence[Probe]:
    """Kernels are compared from scratch; expressions of three levels cannot be four times as long, marks can."""
    local = (Locality(),) if run.protocol.name == SCRATCH else ()
    if run.task.name == LISTOPS:
        return (*local, Slices())
    return (*local, Extrapolation((1, 2, TIMES), examples=2_000))


def verdict(rows: Sequence[Row]) -> str:
    """Begins with the three answers in one sentence; the numbers follow."""
    found = findings(rows)
    if not found:
        return "Nothing can be said yet: the runs of an arm are missing."
    answered: dict[str, dict[str, list[str]]] = {}
    for finding in found:
        question, _, subject = finding.subject.partition(": ")
        answered.setdefault(question, {}).setdefault(_word(finding), []).append(subject)
    parts = [f"{asked}: {', '.join(_listed(*each) for each in said.items())}" for asked, said in answered.items()]
    return " ".join([f"{'; '.join(parts)}.", *(finding.facts for finding in found)])


def _listed(answer: str, subjects: Sequence[str]) -> str:
    *first, last = subjects
    return f"{answer} on {', '.join(first)} and {last}" if first else f"{answer} on {last}"


def _word(finding: Finding) -> str:
    return {1: "yes", -1: "no"}.get(finding.decided, "not decided" if finding.seen else "nothing can be said")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """One finding on self-pretraining, one a task on the short kernel, and one a model on longer sequences."""
    table, longer = Table.of(rows), Table.of(rows, "length")
    claims = dict(_lift(table)) | dict(_local(table)) | dict(_longer(table, longer))
    return judged({subject: claim for subject, claim in claims.items() if claim is not None})


def _lift(table: Table) -> Iterator[tuple[str, Claim]]:
    before, after = (table.cells.get(Key(LISTOPS, ATTENTION, protocol)) for protocol in (SCRATCH, SPT))
    if before is None or after is None:
        return
    facts = f"On {LISTOPS}, {ATTENTION} has {before} from scratch and {after} self-pretrained within the same steps."
    question = difference(after, before, LIFT, table.scatter(LISTOPS))
    able = table.learnt(Key(LISTOPS, ATTENTION, SCRATCH)) or table.learnt(Key(LISTOPS, ATTENTION, SPT))
    yield f"Self-pretraining brings {LIFT:.0f} points at equal steps: {LISTOPS}", _asked(able, question, facts)


def _local(table: Table) -> Iterator[tuple[str, Claim]]:
    for name in (LISTOPS, MARKS):
        short, free = (table.cells.get(Key(name, model, SCRATCH)) for model in (f"conv{SHORT}", ATTENTION))
        if short is None or free is None:
            continue
        floor = table.floor(name)
        share = (short.mean - floor) / (free.mean - floor) if free.mean > floor else 0.0
        facts = f"On {name}, kernel {SHORT} has {short} and {ATTENTION} {free}: {100 * share:.0f} % of its gain."
        question = Contrast(((1.0, short), (-ENOUGH, free)), (1 - ENOUGH) * floor, table.scatter(name))
        claim = _asked(table.learnt(Key(name, ATTENTION, SCRATCH)), question, facts)
        yield f"a kernel of {SHORT} has {100 * ENOUGH:.0f} % of attention's gain: {name}", claim


def _longer(table: Table, longer: Table) -> Iterator[tuple[str, Claim]]:
    places = sorted({int(key.place) for key in longer.cells if key.task == MARKS and key.place.isdigit()})
    if not places:
        return
    trained, asked = places[0], TIMES * places[0]
    for model in dict.fromkeys(key.model for key in longer.cells if key.task == MARKS):
        one, more = (longer.cells.get(Key(MARKS, model, SCRATCH, str(place))) for place in (trained, asked))
        if one is None or more is None or not table.learnt(Key(MARKS, model, SCRATCH)):
            continue
        facts = f"On {MARKS}, {model} has {one} at {trained} steps and {more} at {asked}."
        question = _kept(one, more, table.floor(MARKS))
        yield f"half of the gain is left at {TIMES} times the length: {model}", Claim(question, facts)


def _kept(one: Seeds, more: Seeds, floor: float) -> Contrast:
    """The same trained models at two lengths, seed by seed."""
    return Contrast(((1.0, more), (-LEFT, one)), (1 - LEFT) * floor, paired=True)


def _asked(able: bool, question: Contrast, facts: str) -> Claim:
    return Claim(question, facts) if able else Claim(None, f"{facts} Attention did not beat the best simple rule.")


study = Study(
    name="demo",
    claim=(
        "Self-pretraining lifts attention at equal steps (amos2025); a short range is enough where a task is local and "
        "only there (miralles2025); what was learnt does not hold at four times the length (huang2024)."
    ),
    runs=runs,
    views=(
        ReportView("gap", "Self-pretraining: from scratch to self-pretrained, at equal steps"),
        ReportView("curve", "Locality: accuracy by kernel", axis="kernel", note="level: models that see everything"),
        ReportView("curve", "Length: asked at twice and four times the training length", axis="length"),
        ReportView("compare", "Every seed of every arm"),
        ReportView("slices", "Where the score comes from"),
        ReportView("training", "Training curves"),
    ),
    probes=probes,
    verdict=verdict,
    deviations=(
        "Tasks and models are far smaller than any paper's; no printed number belongs beside these.",
        UNTUNED,
        "Pretraining takes two fifths of the steps, where the paper gives it steps of its own.",
    ),
)
