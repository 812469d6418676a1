"""Is scratch training fair to Transformers? Amos et al. (2025), table 2: a rotary Transformer and S4, each trained from
scratch and after masked self-pretraining on the task's own training inputs.

    levelfield run amos2025_table2 --effort minutes
    levelfield report amos2025_table2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from levelfield.mixers.attention import Attention
from levelfield.mixers.s4 import S4
from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.recipes import amos2025
from levelfield.report.decisions import Every, difference
from levelfield.report.verdicts import Claim, Finding, Key, Table, ahead, told
from levelfield.spec import Effort, Published, ReportView, Row, Run, Study
from levelfield.studies import _deviations as same
from levelfield.studies._amos2025 import Arm, findings_by_task, protocols, runs_of, task

TASKS: dict[Effort, tuple[str, ...]] = {  # what needs official files comes after what does not
    "smoke": ("listops", "pathfinder"),
    "minutes": ("listops", "pathfinder"),
    "overnight": ("listops", "pathfinder", "image"),
    "hours": ("listops", "pathfinder", "text", "retrieval", "image"),
    "paper": ("listops", "pathfinder", "pathx", "pathx256", "text", "retrieval", "image"),
}
S4_ONLY = ("pathx256",)  # printed as computationally infeasible for the Transformer
TRANSFORMER, SSM = "transformer_rotary", "s4"
LEVEL = 5.0
"""Points below S4 that still count as level: below 7.7, the smallest printed gap from scratch."""
SUBSTANTIAL = 10.0
"""Points that self-pretraining has to add to S4 on PathX-256, where the paper speaks of a substantial gain of 20."""


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task: both models, each from scratch and self-pretrained, at every seed."""
    return runs_of(_arms, TASKS[effort], effort)


def _arms(name: str, effort: Effort) -> Iterator[Arm]:
    """The two protocols of a model share the model, and their last phases differ in budget at most."""
    data = task(name, effort)
    if name not in S4_ONLY:
        rotary = amos2025.transformer_rotary(name, effort)
        model = rotary.shape.model(Attention(rotary.heads, rotary="per_head", block=rotary.block), TRANSFORMER)
        yield from (Arm(data, model, protocol) for protocol in protocols(rotary))
    ssm = amos2025.s4(name, effort)
    model = ssm.shape.model(S4(copies=ssm.copies, dt_min=ssm.dt_min, lr=ssm.lr, dt_lr=ssm.dt_lr), SSM)
    yield from (Arm(data, model, protocol) for protocol in protocols(ssm))


def verdict(rows: Sequence[Row]) -> str:
    """Task by task, what is shown beyond the noise of seeds and test examples, and what is only seen."""
    nothing = "Nothing can be said: no task has all of its cells."
    return told(findings(rows), nothing)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Finds, for every task with all of its cells, whether self-pretraining lifts the Transformer, and leaves it at
    most LEVEL points below S4; of a task for S4 alone, whether it lifts S4 by more than SUBSTANTIAL points."""
    return findings_by_task(rows, _claim)


def _claim(name: str, table: Table) -> Claim | None:
    """None where a cell is missing."""
    models = (SSM,) if name in S4_ONLY else (TRANSFORMER, SSM)
    keys = {(model, p): Key(name, model, p) for model in models for p in ("scratch", "spt_masked")}
    if not all(key in table.cells for key in keys.values()):
        return None
    arms, scatter = {place: table.cells[key] for place, key in keys.items()}, table.scatter(name)
    told_of = [f"{m} {arms[m, 'scratch']} from scratch and {arms[m, 'spt_masked']} self-pretrained" for m in models]
    facts = f"On {name}, {'; '.join(told_of)}."
    unable = [model for model in models if not table.learnt(keys[model, "spt_masked"])]
    if unable:
        rule = table.rule(name)
        return Claim(
            None,
            f"{facts} {' and '.join(unable)} self-pretrained cannot be shown to beat the best simple rule, {rule}.",
        )
    lift = difference(arms[models[0], "spt_masked"], arms[models[0], "scratch"], 0.0, scatter)
    if models == (SSM,):
        return Claim(replace(lift, against=SUBSTANTIAL), f"{facts} That is {lift.shown} points.")
    level = difference(arms[TRANSFORMER, "spt_masked"], arms[SSM, "spt_masked"], -LEVEL, scatter)
    before, after = (difference(arms[SSM, p], arms[TRANSFORMER, p]) for p in ("scratch", "spt_masked"))
    gaps = f" {SSM} is {ahead(before)} from scratch and {ahead(after)} after self-pretraining."
    return Claim(Every((lift, level)), facts + gaps)


study = Study(
    name="amos2025_table2",
    claim=(
        "Training from scratch underestimates Transformers: after masked self-pretraining on the task's own training "
        "data, a rotary Transformer comes level with S4, within 5 points; S4 itself gains more than 10 on PathX-256."
    ),
    runs=runs,
    published=(Published("amos2025", "2"),),
    views=(
        ReportView("gap", "What self-pretraining adds"),
        ReportView("compare", "Beside the printed numbers"),
        ReportView("slices", "Where the score comes from"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    search=efforts.SEARCH,
    tuned_at=("overnight",),
    deviations=(
        same.TEXT_SELECTION,
        same.TEXT_LENGTH,
        same.RETRIEVAL_HEAD,
        same.PRETRAINING_HEAD,
        "SPADE, MEGA and Pythia 70M are trained by the study amos2025_table2_others.",
        "Sizes of the printed rotary Transformers are not public except for Image; the others are assumed (each "
        "recipe's `assumed` names them).",
        same.FINE_TUNING_RECIPE,
        same.S4_QUOTED,
        same.GENERATED,
        same.PADDING,
        "The Transformer is not run on PathX-256, which is printed as infeasible.",
        same.S4_DROPOUT,
        same.EPOCHS,
        "S4's cosine falls to zero over the budget of its phase; in the paper's code it does so over a fixed horizon "
        "(50,000 steps on Text, 200,000 on Image, 500,000 on PathX), which shorter phases do not reach.",
        same.ONE_RUN,
        "Below paper, scratch gets the steps of pretraining and fine-tuning together, so that both arms see equally "
        "many examples; the paper's scratch runs train until validation stops improving.",
        "Minutes and smoke leave out Text, Retrieval and Image, which need official files.",
        "Hours trains models of at most 128 channels and 6 layers for 8,000 steps a phase.",
        "Minutes shrinks models and tasks (ListOps of 21 to 199 tokens, easy Pathfinder of 16 x 16 pixels, "
        "one rate of 0.001 for all): printed numbers beside it belong to harder tasks and larger models.",
    ),
)
