"""The quick study: what is architecture, what is recipe, and how far do the models see? Minutes on a laptop.

    levelfield demo

Three architectures, each trained from scratch and with masked self-pretraining within the same number of steps, on two
generated tasks; bounded convolutions with growing kernels; and ListOps at twice and four times the training length.
It answers to no printed table: tasks and models are far smaller than anybody's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from levelfield.mixers.conv import Conv
from levelfield.presets import efforts
from levelfield.probes.extrapolation import Extrapolation
from levelfield.probes.locality import Locality
from levelfield.probes.reach import Reach
from levelfield.probes.slices import Slices
from levelfield.report.decisions import Every, Narrower
from levelfield.report.verdicts import Claim, Finding, Key, Table, judged, told
from levelfield.spec import UNTUNED, Effort, Model, Probe, ReportView, Row, Run, Study

KERNELS = (3, 5, 9, 17)  # of the locality curve, steps a layer sees
BESIDE = 5  # the one that stands beside the other architectures on every task


TASKS = ("listops", "recall")


def models(name: str, effort: Effort) -> tuple[Model, ...]:
    """Two that see everything, and one that does not."""
    attention = efforts.model(name, efforts.ATTENTION, effort)
    s4 = efforts.model(name, efforts.S4_DIAGONAL, effort)
    return attention, s4, conv(name, BESIDE, effort)


def conv(name: str, kernel: int, effort: Effort) -> Model:
    """Named by its kernel, so that tables keep the widths of the locality curve apart."""
    return efforts.model(name, Conv(kernel, hidden=efforts.SIZES[effort].width), effort, f"conv{kernel}")


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task, then the other kernels on ListOps."""
    arms = [
        (efforts.task(name, effort), model, protocol)
        for name in TASKS
        for model in models(name, effort)
        for protocol in efforts.protocols(name, effort, ("scratch", "spt_masked"))
    ]
    (scratch,) = efforts.protocols("listops", effort, ("scratch",))
    kernels = KERNELS[:1] if effort == "smoke" else [k for k in KERNELS if k != BESIDE]
    arms += [(efforts.task("listops", effort), conv("listops", k, effort), scratch) for k in kernels]
    return tuple(Run(*arm, seed) for arm in arms for seed in range(efforts.SIZES[effort].seeds))


def probes(run: Run) -> Sequence[Probe]:
    """Kernels are compared from scratch alone; `reach` asks what a model does with the distances it may see."""
    curve = (Locality(),) if run.task.name == "listops" and run.protocol.name == "scratch" else ()
    if run.model.label.startswith("conv") and run.model.label != f"conv{BESIDE}":
        return curve
    # Expressions of three levels cannot be four times as long.
    longer = Extrapolation((1, 2) if run.task.name == "listops" else (1, 2, 4), examples=1_000)
    return (*curve, longer, Slices(), Reach())


def verdict(rows: Sequence[Row]) -> str:
    """Task by task, what is shown beyond the noise of seeds and test examples, and what is only seen."""
    return told(findings(rows), "Nothing can be said yet: the runs of an arm are missing.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Whether self-pretraining within the same steps brings each two architectures closer."""
    table = Table.of(rows)
    return judged({name: claim for name in table.tasks if (claim := _claim(name, table)) is not None})


def _claim(name: str, table: Table) -> Claim | None:
    """None where fewer than two models have both cells."""
    before = {key.model: key for key in table.cells if key.task == name and key.protocol == "scratch"}
    after = {key.model: key for key in table.cells if key.task == name and key.protocol == "spt_masked_matched"}
    models = [model for model in after if model in before]
    if len(models) < 2:
        return None
    cells = table.cells
    told_of = [f"{m} {cells[before[m]]} from scratch and {cells[after[m]]} self-pretrained" for m in models]
    facts = f"On {name}, {'; '.join(told_of)}."
    able = [m for m in models if table.learnt(before[m]) or table.learnt(after[m])]
    pairs = [_narrower(pair, before, after, table) for pair in combinations(able, 2)]
    if not pairs:
        return Claim(None, f"{facts} Fewer than two models beat the best simple rule, {table.rule(name)}.")
    unable = [model for model in models if model not in able]
    rest = f" Left out for not beating the best simple rule, {table.rule(name)}: {', '.join(unable)}." if unable else ""
    return Claim(Every(tuple(pairs)), facts + rest)


def _narrower(pair: tuple[str, str], before: Mapping[str, Key], after: Mapping[str, Key], table: Table) -> Narrower:
    one, two = ((table.cells[keys[pair[0]]], table.cells[keys[pair[1]]]) for keys in (before, after))
    return Narrower(one, two, table.scatter(before[pair[0]].task))


study = Study(
    name="demo",
    claim=(
        "Part of what looks like architecture is the recipe: within one budget, self-pretraining on the task's own "
        "inputs narrows the gap between architectures."
    ),
    runs=runs,
    views=(
        ReportView("gap", "From scratch to self-pretrained, at equal steps"),
        ReportView(
            "curve", "How local is ListOps? Accuracy by kernel", axis="kernel", note="level: models that see everything"
        ),
        ReportView("curve", "Longer than in training", axis="length"),
        ReportView("compare", "Every seed of every arm"),
        ReportView("slices", "Where the score comes from"),
        ReportView("training", "Training curves"),
    ),
    probes=probes,
    verdict=verdict,
    deviations=(
        "Tasks and models are far smaller than any paper's; no printed number belongs beside these.",
        UNTUNED,
        "Two seeds decide nothing: docs/verdicts.md says what three and more would see.",
    ),
)
