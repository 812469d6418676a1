"""Beyond Long Range Arena: Amos et al. (2025), table 3, on raw speech, sequential CIFAR-10 in colour and BIDMC.

    levelfield run amos2025_table3 --effort minutes
    levelfield report amos2025_table3

A rotary Transformer and S4, each from scratch and self-pretrained on the task's own training inputs, with 25 % of the
steps hidden (50 % of pictures). On Speech Commands also as causal models, pretrained to predict the next sample; their
names end in `_causal`. BIDMC is regression, scored by R2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from levelfield.mixers.attention import Attention
from levelfield.mixers.s4 import S4
from levelfield.objectives import Trainable, default_objective
from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.protocols import scratch, spt_causal, spt_masked
from levelfield.recipes import amos2025
from levelfield.report.decisions import Contrast, Every, difference
from levelfield.report.verdicts import EXPLAINED, Claim, Finding, Key, Table, ahead, judged, told
from levelfield.spec import Effort, Protocol, Published, ReportView, Row, Run, Study, Task
from levelfield.studies import _deviations as same
from levelfield.studies._amos2025 import Arm, runs_of
from levelfield.tasks.bidmc import Bidmc
from levelfield.tasks.pathfinder import Pathfinder
from levelfield.tasks.pulse import Pulse
from levelfield.tasks.scifar import SCifar
from levelfield.tasks.speech import Speech

COLUMNS: dict[Effort, tuple[str, ...]] = {  # names of recipes; what needs official files comes after what does not
    "smoke": ("bidmc_hr", "speech", "speech_causal"),
    "minutes": ("bidmc_hr", "speech", "speech_causal", "scifar"),
    "overnight": ("bidmc_hr",),  # of the others one run is hours on a CPU
    "hours": ("speech", "speech_causal", "scifar", "bidmc_hr", "bidmc_rr", "bidmc_spo2"),
    "paper": ("speech", "speech_causal", "scifar", "bidmc_hr", "bidmc_rr", "bidmc_spo2"),
}
TRANSFORMER, SSM = "transformer_rotary", "s4"
CAUSAL = "_causal"
NARROWER = 2.0
"""Points by which the distance to S4 has to shrink, so that it has to be larger at first: the paper writes of
substantially narrowing it."""
SOLVED = 95.0
"""Percent of the variance that both models explain from scratch where the paper calls them near-perfect."""


def task(column: str, effort: Effort) -> Task:
    """The printed task from `hours` on. Below, a drawn pulse is there for BIDMC; at smoke, Pathfinder for speech."""
    if column.startswith("speech"):
        small = Pathfinder(16, train=64, val=16, test=16)
        return {"smoke": small, "minutes": Speech(steps=2_000)}.get(effort, Speech())
    if column == "scifar":
        return SCifar(train=15_000, test=5_000) if effort == "minutes" else SCifar()
    small = {"smoke": Pulse(4, train=64, val=16, test=16), "minutes": Pulse(), "overnight": Pulse()}
    return small[effort] if effort in small else BIDMC[column]


BIDMC: dict[str, Task] = {
    "bidmc_hr": Bidmc("hr", "windows", "monash"),
    "bidmc_rr": Bidmc("rr", "windows", "monash"),
    "bidmc_spo2": Bidmc("spo2", "windows", "monash"),
}


def runs(effort: Effort) -> tuple[Run, ...]:
    """Column by column: both models, each from scratch and self-pretrained, at every seed."""
    return runs_of(_arms, COLUMNS[effort], effort)


def _arms(column: str, effort: Effort) -> Iterator[Arm]:
    """The two protocols of a model share the model, and their last phases differ in recipe at most."""
    data = task(column, effort)
    objective, causal = default_objective(data), column.endswith(CAUSAL)
    end = CAUSAL if causal else ""
    rotary, ssm = amos2025.transformer_rotary(column, effort), amos2025.s4(column, effort)
    attention = Attention(rotary.heads, rotary="per_head", block=rotary.block)
    model = rotary.shape.model(attention, TRANSFORMER + end, causal=causal)
    yield from (Arm(data, model, protocol) for protocol in _protocols(rotary, causal, objective))
    s4 = S4(ssm.state, copies=ssm.copies, dt_min=ssm.dt_min, lr=ssm.lr, dt_lr=ssm.dt_lr)
    model = ssm.shape.model(s4, SSM + end, causal=causal)
    yield from (Arm(data, model, protocol) for protocol in _protocols(ssm, causal, objective))


def _protocols(setting: amos2025.Setting, causal: bool, objective: Trainable) -> tuple[Protocol, Protocol]:
    first, then = setting.pretrain, setting.finetune
    if causal:
        pretrained = spt_causal(first, then, loss=setting.loss, objective=objective)
    else:
        pretrained = spt_masked(first, then, setting.ratio, loss=setting.loss, objective=objective)
    return scratch(setting.scratch, objective), pretrained


def verdict(rows: Sequence[Row]) -> str:
    """Column by column, what is shown beyond the noise of seeds and test examples, and what is only seen."""
    return told(findings(rows), "Nothing can be said: no column has all four of its cells.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Finds, for classification, whether self-pretraining lifts the Transformer and narrows its distance to S4 by
    NARROWER points or more: it has to be farther behind than that from scratch, and may be ahead after. Of regression:
    whether both models explain SOLVED percent from scratch: little is left to add."""
    shares, explained = Table.of(rows), Table.of(rows, metrics=EXPLAINED)
    claims = {}
    for name in shares.tasks:
        for end in ("", CAUSAL):
            claims[f"{name} (causal)" if end else name] = _classified(name, end, shares)
    claims |= {name: _regressed(name, explained) for name in explained.tasks}
    return judged({name: claim for name, claim in claims.items() if claim is not None})


def _four(name: str, end: str, table: Table) -> dict[tuple[str, str], Key] | None:
    """Keys of a column by model and phase, before or after self-pretraining; None where a cell is missing."""
    protocols = {"before": "scratch", "after": "spt_causal" if end else "spt_masked"}
    keys = {(m, when): Key(name, m + end, p) for m in (TRANSFORMER, SSM) for when, p in protocols.items()}
    return keys if all(key in table.cells for key in keys.values()) else None


def _facts(name: str, end: str, keys: Mapping[tuple[str, str], Key], table: Table) -> str:
    cells = {place: table.cells[key] for place, key in keys.items()}
    parts = [
        f"{m} {cells[m, 'before']} from scratch and {cells[m, 'after']} self-pretrained" for m in (TRANSFORMER, SSM)
    ]
    gap, gap_after = (difference(cells[SSM, when], cells[TRANSFORMER, when]) for when in ("before", "after"))
    return (
        f"On {name}{' (causal)' if end else ''}, {'; '.join(parts)}. {SSM} is {ahead(gap)} from scratch and "
        f"{ahead(gap_after)} after self-pretraining."
    )


def _classified(name: str, end: str, table: Table) -> Claim | None:
    if (keys := _four(name, end, table)) is None:
        return None
    cells, scatter = {place: table.cells[key] for place, key in keys.items()}, table.scatter(name)
    facts = _facts(name, end, keys, table)
    if unable := [model for model in (TRANSFORMER, SSM) if not table.learnt(keys[model, "after"])]:
        rule = table.rule(name)
        return Claim(
            None,
            f"{facts} {' and '.join(unable)} self-pretrained cannot be shown to beat the best simple rule, {rule}.",
        )
    behind = difference(cells[SSM, "before"], cells[TRANSFORMER, "before"], NARROWER, scatter)
    if behind.value <= 0:
        return Claim(None, f"{facts} {TRANSFORMER} is not behind {SSM} from scratch, so that no distance can narrow.")
    lift = difference(cells[TRANSFORMER, "after"], cells[TRANSFORMER, "before"], 0.0, scatter)
    signs = {(SSM, "before"): 1, (TRANSFORMER, "before"): -1, (SSM, "after"): -1, (TRANSFORMER, "after"): 1}
    narrower = Contrast(tuple((sign, cells[place]) for place, sign in signs.items()), NARROWER, scatter)
    return Claim(Every((lift, behind, narrower)), facts)


def _regressed(name: str, table: Table) -> Claim | None:
    if (keys := _four(name, "", table)) is None:
        return None
    facts, scatter = _facts(name, "", keys, table), table.scatter(name)
    if not all(table.learnt(keys[model, "before"]) for model in (TRANSFORMER, SSM)):
        return Claim(None, f"{facts} From scratch, not both beat the best simple rule, {table.rule(name)}.")
    solved = [Contrast(((1.0, table.cells[keys[m, "before"]]),), SOLVED, scatter) for m in (TRANSFORMER, SSM)]
    return Claim(Every(tuple(solved)), facts)


study = Study(
    name="amos2025_table3",
    claim=(
        "What self-pretraining adds is not a matter of one benchmark: on raw speech and sequential CIFAR-10 it narrows "
        "the gap between a Transformer and S4 by more than 2 points, and on BIDMC both models explain more than 95 % "
        "from scratch and leave little to add."
    ),
    runs=runs,
    published=(Published("amos2025", "3"),),
    views=(
        ReportView("gap", "What self-pretraining adds"),
        ReportView("gap", "What self-pretraining adds to regression", metric="r2"),
        ReportView("compare", "Beside the printed numbers"),
        ReportView("compare", "Beside the printed numbers of regression", metric="r2"),
        ReportView("slices", "Where the score comes from"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    search=efforts.SEARCH,
    tuned_at=("overnight",),
    deviations=(
        "The paper says that self-pretraining narrows the gap to S4. By its own numbers that gap is 9.05 and then 8.96 "
        "points on causal speech, and the verdict says no there.",
        "The table does not name the pretraining objective: here masked for bidirectional models, next-sample for "
        "causal ones.",
        "Scratch scores of S4 on Speech Commands and sCIFAR are quoted by the paper from another code base; here they "
        "are trained with that code base's recipe.",
        same.FINE_TUNING_RECIPE,
        "The released configurations pretrain S4 on speech with layer norm and fine-tune it with batch norm, and "
        "pretrain the Transformer on BIDMC with sinusoidal positions and fine-tune it with rotary ones; here a model "
        "keeps its norm (batch) and its positions (rotary).",
        "The released configuration keeps the speech model with the worst, not the best, pretraining error; here the "
        "best.",
        "Learning rates that are halved every 100 epochs fall linearly here (BIDMC); the Transformer's plateau rule "
        "watches the training loss, the original's validation accuracy, and the last tenth of training has a tenth of "
        "the rate, which the original has not (speech).",
        "On speech the step sizes of S4 have the rate of the phase; the configuration's one number for the state space "
        "may be meant for them as well.",
        same.S4_DROPOUT,
        "R2 is that of the whole test split; the released code averages it over batches, dropping the last one.",
        "BIDMC's printed split shuffles windows that share up to 29 of 32 seconds, and so does this one; the baseline "
        "`nearest_window` shows what that is worth, and the tasks `bidmc_hr_patients` and so on keep recordings apart.",
        "The paper ends a phase after 200 epochs or 24 hours on one GPU, whichever comes first, and Transformers on "
        "Speech Commands after five days on four; here only the printed epochs end it, however long they take.",
        "S4's cosine falls to zero over the budget of its phase; in the paper's code it does so over a fixed horizon "
        "(200,000 steps), which shorter phases do not reach.",
        same.ONE_RUN,
        "Below paper, scratch gets the steps of pretraining and fine-tuning together, and all batches are of one size.",
        "Hours trains models of at most 128 channels and 6 layers for 8,000 steps a phase; S4's state is 64 on BIDMC.",
        "Minutes shrinks models and tasks: speech at 2 kHz, 15,000 CIFAR-10 pictures, and a drawn pulse in the place "
        "of BIDMC; smoke has a drawn picture in the place of speech.",
    ),
)
