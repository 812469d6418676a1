"""Is every task learnable as it is prepared here? The smallest sensible model of each against guessing.

    levelfield data prepare text_1k --from aclImdb_v1/          # and so on for what reads official files
    levelfield run every_task --effort minutes
    levelfield report every_task --effort minutes

A task on which nothing learns may be hard, or its labels may be wrong; a small model that beats guessing rules the
second out. It is a check of the data, not a comparison: every task has the model that suits it. Each kind of task is
there once but for `corpus`, which is texts of one's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from levelfield.mixers.conv import Conv
from levelfield.mixers.gru import GRU
from levelfield.objectives import default_objective
from levelfield.presets import efforts
from levelfield.probes.slices import Slices
from levelfield.protocols import scratch
from levelfield.report.decisions import Question, Seeds, difference, holm
from levelfield.report.verdicts import EXPLAINED, Table
from levelfield.spec import Block, Duration, Effort, MixerConfig, ReportView, Row, Run, Study, Task, Unlabelled
from levelfield.spec.study import GUESSES, SHARES

LOCAL = Conv(kernel=9, hidden=48)
FAR = efforts.S4_DIAGONAL
EXACT = efforts.ATTENTION
STATES = GRU()


@dataclass(frozen=True)
class Case:
    """A small model for a task, at `minutes`. steps: of the optimizer."""

    mixer: MixerConfig
    steps: int = 1_000
    batch: int = 32
    depth: int = 2
    width: int = efforts.SIZES["minutes"].width
    lr: float = 2e-3
    norm: Literal["layer", "batch"] = "layer"
    dropout: float = 0.1


GENERATED: dict[str, Case] = {
    "listops": Case(EXACT),
    "recall": Case(EXACT),
    "pathfinder": Case(FAR, steps=3_000),
    "mqar": Case(EXACT, steps=2_000),
    "needle": Case(EXACT, steps=2_000),
    "copying": Case(EXACT, steps=2_000),
    "selective_copying": Case(EXACT, steps=2_000),
    "induction": Case(EXACT, steps=2_000),
    "pulse": Case(LOCAL),
    "frequent_word": Case(EXACT),
    "reach": Case(FAR),
    "in_context_recall": Case(EXACT, steps=2_000),
    "noisy_recall": Case(EXACT, steps=2_000),
    "fuzzy_recall": Case(EXACT, steps=2_000),
    "memorisation": Case(LOCAL),
    "compression": Case(EXACT, steps=2_000),
    "dyck": Case(EXACT),
    "flipflop": Case(STATES),
    "parity": Case(STATES),
    "modular": Case(STATES),
    "words": Case(STATES),
    "digits": Case(FAR),
}
OFFICIAL: dict[str, Case] = {  # these read official files
    "image_15k": Case(FAR, steps=600),
    "scifar_15k": Case(FAR, steps=600),
    "text_1k": Case(LOCAL),
    # Two texts are alike by how far their pooled features are from those of other texts: batch statistics centre them.
    "retrieval_2k": Case(Conv(kernel=7, hidden=128), 1_500, depth=1, width=128, lr=1e-2, norm="batch", dropout=0.0),
    "speech_part": Case(FAR, steps=800, batch=16),
    "bidmc_beats_windows": Case(FAR, steps=300, batch=8),
    "imdb_text": Case(LOCAL, steps=500),
}


def task(name: str, effort: Effort) -> Task:
    """A generated task at the size of the effort; any other as it is."""
    return efforts.sized_task(name, effort)


def runs(effort: Effort) -> tuple[Run, ...]:
    """One run each; `smoke` makes do without official files."""
    cases = GENERATED if effort == "smoke" else GENERATED | OFFICIAL
    return tuple(_run(task(name, effort), name, case, effort) for name, case in cases.items())


def _run(task: Task, name: str, case: Case, effort: Effort) -> Run:
    size = efforts.SIZES[effort]
    model = efforts.model(name, case.mixer, effort)
    if isinstance(task.output, Unlabelled):
        model = replace(model, causal=True)
    if effort == "minutes":
        model = replace(model, depth=case.depth, width=case.width)
    pair = "interaction" if task.documents == 2 else "concat"
    block = Block(norm=case.norm, feedforward=model.block.feedforward, dropout=case.dropout)
    model = replace(model, pair=pair, block=block)
    steps = case.steps if effort == "minutes" else size.steps
    recipe = replace(
        efforts.recipe(effort),
        lr=case.lr,
        batch=min(case.batch, size.batch),
        budget=Duration(steps, "steps"),
        validate_every=Duration(max(2, steps // 10), "steps"),
        bucketed=effort != "paper",
    )
    return Run(task, model, scratch(recipe, default_objective(task)), seed=0)


def verdict(rows: Sequence[Row]) -> str:
    """Says which tasks were learnt, above guessing beyond the noise of test examples; which beat the best simple
    rule."""
    guessed, beaten = (holm(asked(rows, only)) for only in (GUESSES, ()))
    if not guessed:
        return "Nothing can be said yet: no run is complete."
    learnt = [name for name, answer in guessed.items() if answer > 0]
    failed = [name for name in guessed if name not in learnt]
    short = [name for name in learnt if beaten[name] <= 0]
    answer = "Yes" if not failed else "Partly" if learnt else "No"
    parts = [f"{answer}: on {len(learnt)} of {len(guessed)} tasks a small model is above guessing beyond noise."]
    parts += [f"Not learnt: {', '.join(failed)}."] if failed else []
    parts += [f"Not above the best simple rule: {', '.join(short)}."] if short else []
    return " ".join(parts)


def asked(rows: Sequence[Row], only: Sequence[str] = ()) -> dict[str, Question]:
    """Asks of each task whether its one run is above the best of the simple rules, of all or of those named.

    No claim is made about other seeds, so only test examples vary.
    """
    found: dict[str, Question] = {}
    for metrics in (SHARES, EXPLAINED):
        table = Table.of(rows, metrics=metrics)
        for key, arm in table.cells.items():
            rule = table.rule(key.task, only)
            floor = rule.score if rule else Seeds((0.0,), trained=False)
            found[key.task] = difference(replace(arm, trained=False), floor)
    return found


study = Study(
    name="every_task",
    claim="Every task, prepared as it is here, lets a small model learn something within minutes.",
    runs=runs,
    views=(
        ReportView("compare", "Test scores, and what needs no sequence model"),
        ReportView("training", "Learning curves"),
        ReportView("slices", "Where the score comes from"),
    ),
    probes=lambda run: (Slices(),),
    verdict=verdict,
    deviations=(
        "Each task has a model that suits it, so nothing here compares models.",
        "Generated tasks have the sizes of the effort, and text, speech and retrieval are cut to what minutes allow.",
    ),
)
